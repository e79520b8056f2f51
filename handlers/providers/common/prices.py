"""What a call costs by the providers' price lists: the extra `cost`.

The lists come with the package and nothing is fetched. A cost is stored with the package's version, so that a replay
gives the same money and never asks again.
"""

from datetime import UTC, datetime
from decimal import Decimal
from importlib.metadata import version

from lanebus.bus.errors import SetupError
from lanebus.bus.messages.message import AssistantMessage
from lanebus.bus.messages.usage import Cost, Usage

__all__ = ("PricesMissing", "are_prices_there", "list_price", "listed_window", "with_list_price")

_PROVIDERS = {"gemini": "google"}


class PricesMissing(SetupError):
    """The price lists are not installed."""

    def __init__(self) -> None:
        super().__init__("the price lists are not installed: pip install 'lanebus[cost]'")


def are_prices_there() -> bool:
    """Whether the price lists are installed. It imports them, which takes a while the first time."""
    try:
        import genai_prices  # noqa: PLC0415  # an extra, and slow to import
    except ModuleNotFoundError:
        return False
    return bool(genai_prices)


def listed_window(*, provider: str, model: str) -> int | None:
    """How many tokens fit into the model's context window, by the list; None where the list does not know it.

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
    """What the tokens cost by the list; None where the list does not know the model, which is not the same as 0.

    `input` is the price of all that went in: lists give one sum for fresh and cached tokens.

    Args:
        timestamp: when it was called, milliseconds UTC, as prices change; now if None.

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


def with_list_price(message: AssistantMessage) -> AssistantMessage:
    """The message with its cost by the list, where it has none and the list knows its model.

    Raises:
        PricesMissing: the extra `cost` is not installed.
    """
    usage = message.usage
    if usage is None or usage.cost is not None or message.provider is None or message.model is None:
        return message
    cost = list_price(usage, provider=message.provider, model=message.model, timestamp=message.timestamp)
    return message if cost is None else message.model_copy(update={"usage": usage.model_copy(update={"cost": cost})})


def _plain(amount: Decimal) -> Decimal:
    """Without the exponent of a product: 0.00300000 and 3E-3 are stored as 0.003."""
    return Decimal(format(amount.normalize(), "f"))
