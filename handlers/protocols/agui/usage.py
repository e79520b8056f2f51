"""Usage in the form of AG-UI, where totals include their parts."""

from pydantic import JsonValue

from lanebus.bus.messages.usage import Usage
from lanebus.handlers.protocols.run_events import RunRested

__all__ = ("cost_of", "token_usage")

_MOST = 2**53 - 1
"""the largest integer that the protocol allows"""


def token_usage(rested: RunRested) -> list[JsonValue]:
    """Return the tokens of a run, one entry for each provider and model."""
    return [_entry(provider, model, usage) for provider, model, usage in rested.usage]


def cost_of(rested: RunRested) -> str | None:
    """Return the cost of a run in US dollars as a decimal text; None if it is not known."""
    total = Usage()
    for _, _, usage in rested.usage:
        total = total.combine(usage)
    return None if total.cost is None else str(total.cost.total)


def _entry(provider: str | None, model: str | None, usage: Usage) -> JsonValue:
    names: dict[str, JsonValue] = {}
    if provider:
        names["provider"] = provider
    if model:
        names["model"] = model
    whole = usage.input + usage.cache_read + usage.cache_write
    return {
        **names,
        "inputTokens": _count(whole),
        "outputTokens": _count(usage.output),
        "totalTokens": _count(usage.total_tokens or whole + usage.output),
        "reasoningTokens": _count(usage.reasoning),
        "cachedInputTokens": _count(usage.cache_read),
        "cacheWriteInputTokens": _count(usage.cache_write),
    }


def _count(tokens: int) -> int:
    return min(max(tokens, 0), _MOST)  # counts come from the provider unchecked
