"""All providers by name, each imported on first use, and the cost of a call by their price lists.

The price lists are part of that package; nothing is fetched. A cost is stored with the package's version. So a replay
returns the same amount without another look-up.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import NamedTuple, Protocol, Unpack, cast

from lanebus.bus.errors import SetupError
from lanebus.bus.messages import AssistantMessage, Cost, Rates, Usage
from lanebus.handlers.context import Context
from lanebus.handlers.projections import Lazy
from lanebus.handlers.providers.answer import Answer
from lanebus.handlers.providers.request import Json, ProviderRequest, RequestOptions


class _ToRequest(Protocol):
    def __call__(self, context: Context, **options: Unpack[RequestOptions]) -> ProviderRequest: ...


class _FromResponse(Protocol):
    def __call__(
        self, response: Json, *, model: str | None = None, rates: Rates | None = None, names: Mapping[str, str] = ...
    ) -> AssistantMessage: ...


class _MakeAnswer(Protocol):
    def __call__(
        self, model: str | None = None, rates: Rates | None = None, names: Mapping[str, str] = ...
    ) -> Answer: ...


class Provider(NamedTuple):
    """The functions that write requests to one provider's API and read its answers."""

    to_request: _ToRequest
    """Turns a context into a request: its body, its warnings, and the ids and names that differ from the log's."""
    from_response: _FromResponse
    """Turns a whole response into a message."""
    answer: _MakeAnswer
    """Creates an empty answer. The events of a stream are added to this answer."""


_PLACES = {
    "anthropic": ("anthropic", "to_anthropic", "from_anthropic", "AnthropicAnswer"),
    "openai-chat": ("openai_chat", "to_openai_chat", "from_openai_chat", "OpenAIChatAnswer"),
    "openai-responses": (
        "openai_responses",
        "to_openai_responses",
        "from_openai_responses",
        "OpenAIResponsesAnswer",
    ),
    "gemini": ("gemini", "to_gemini", "from_gemini", "GeminiAnswer"),
}


def _load(name: str) -> Provider:
    package, *names = _PLACES[name]
    module = import_module(f"lanebus.handlers.providers.{package}")
    to_request, from_response, answer = (getattr(module, each) for each in names)
    # A test type-checks each function by calling it.
    return Provider(cast("_ToRequest", to_request), cast("_FromResponse", from_response), cast("_MakeAnswer", answer))


PROVIDERS = Lazy({name: partial(_load, name) for name in _PLACES})
"""Name of an API, such as "openai-chat" → its functions."""


# Compute the cost of a call from the providers' price lists. Needs the extra `cost`, the package `genai-prices`.


_PROVIDERS = {"gemini": "google"}


class PricesMissing(SetupError):
    """The price lists are not installed."""

    def __init__(self) -> None:
        super().__init__("the price lists are not installed", "run: pip install 'lanebus[cost]'")


def are_prices_there() -> bool:
    """Return whether the price lists are installed. The first call imports them, which is slow."""
    try:
        import genai_prices  # noqa: PLC0415  # an extra, and slow to import
    except ModuleNotFoundError:
        return False
    return bool(genai_prices)


def listed_window(*, provider: str, model: str) -> int | None:
    """Return the model's context window in tokens; None if the list does not know the model.

    Raises:
        PricesMissing: the extra `cost` is not installed.
    """
    try:
        import genai_prices  # noqa: PLC0415
    except ModuleNotFoundError:
        raise PricesMissing from None
    try:
        found = genai_prices.calc_price(genai_prices.Usage(), model, provider_id=_PROVIDERS.get(provider, provider))
    except LookupError:
        return None
    return found.model.context_window


def list_price(usage: Usage, *, provider: str, model: str, timestamp: int | None = None) -> Cost | None:
    """Return the cost of the tokens; None if the list does not know the model. An unknown cost is not a cost of 0.

    The cost's `input` covers fresh and cached tokens, because the list has one sum for both.

    Args:
        usage: the tokens.
        provider: the provider's name in messages.
        model: the model's name.
        timestamp: time of the call in milliseconds UTC, because prices change; None means now.

    Raises:
        PricesMissing: the extra `cost` is not installed.
    """
    try:
        import genai_prices  # noqa: PLC0415  # an extra, and slow to import
    except ModuleNotFoundError:
        raise PricesMissing from None
    counted = genai_prices.Usage(
        input_tokens=usage.input + usage.cache_read + usage.cache_write,
        output_tokens=usage.output,
        cache_read_tokens=usage.cache_read,
        cache_write_tokens=usage.cache_write,
    )
    try:
        price = genai_prices.calc_price(
            counted,
            model,
            provider_id=_PROVIDERS.get(provider, provider),
            genai_request_timestamp=None if timestamp is None else datetime.fromtimestamp(timestamp / 1000, UTC),
        )
    except LookupError:
        return None
    return Cost(
        input=_plain(price.input_price),
        output=_plain(price.output_price),
        total=_plain(price.total_price),
        source=f"genai-prices/{version('genai-prices')}",
    )


def _plain(amount: Decimal) -> Decimal:
    """Return the amount without an exponent and without zeros at the end: 0.00300000 and 3E-3 become 0.003."""
    return Decimal(format(amount.normalize(), "f"))
