"""Compute the cost of a call from the providers' price lists. Needs the extra `cost`, the package `genai-prices`.

The price lists are part of that package; nothing is fetched. A cost is stored with the package's version. So a replay
returns the same amount without another look-up.
"""

from datetime import UTC, datetime
from decimal import Decimal
from importlib.metadata import version

from lanebus.bus.errors import SetupError
from lanebus.bus.messages import Cost, Usage

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
