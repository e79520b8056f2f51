"""The usage of a run as JSON: tokens, and the cost in US dollars."""

from pydantic import JsonValue

from lanebus.bus.messages.usage import Usage
from lanebus.handlers.projections.usage import summary
from lanebus.handlers.protocols.run_events import RunRested

__all__ = ("usage_totals",)


def usage_totals(rested: RunRested) -> JsonValue:
    """Return the usage of a run, in all and of each model; None if nothing is known of it."""
    if not rested.usage:
        return None
    total = Usage()
    for _, _, usage in rested.usage:
        total = total.combine(usage)
    models: list[JsonValue] = [
        {"provider": provider, "model": model, **_numbers(usage)} for provider, model, usage in rested.usage
    ]
    return {**_numbers(total), "models": models}


def _numbers(usage: Usage) -> dict[str, JsonValue]:
    found = summary(usage)
    cost = found["cost"]
    return {
        "input": found["input"],
        "output": found["output"],
        "reasoning": found["reasoning"],
        "cacheRead": found["cache_read"],
        "cacheWrite": found["cache_write"],
        "totalTokens": found["total_tokens"],
        "cost": None if cost is None else cost["total"],
    }
