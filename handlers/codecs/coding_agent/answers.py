"""Why an answer of seed 000 ended, what it took, and what that cost."""

from decimal import Decimal
from typing import get_args

from lanebus.bus.messages.message import StopReason
from lanebus.bus.messages.usage import Cost, Usage
from lanebus.handlers.codecs.json_object import JsonObject
from lanebus.handlers.json_fields import Object

__all__ = ("SOURCE", "stop_of", "usage_of", "written_stop", "written_usage")

SOURCE = "seed-000"
"""Where a cost came from that was read: that agent worked it out and wrote it down."""

_STOP: dict[str, StopReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "toolUse",
    "content_filter": "guardRail",
    "abort": "aborted",
    "error": "error",
}
_TOKENS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_read": "cache_read_tokens",
    "cache_write": "cache_write_tokens",
}
_COST = ("input", "output", "cache_read", "cache_write", "total")


def stop_of(message: JsonObject) -> tuple[StopReason, str | None]:
    """The reason in our words; one that neither of us knows is a stop, with its own word kept."""
    word = message.text("stop_reason")
    if word is None:
        return "stop", None
    if word in _STOP:
        return _STOP[word], None
    for ours in get_args(StopReason):
        if word == ours:
            return ours, None
    return "stop", word


def written_stop(reason: StopReason) -> str:
    """The nearest of their six words."""
    return next((theirs for theirs, ours in _STOP.items() if ours == reason), "stop")


def usage_of(message: JsonObject) -> Usage | None:
    """The tokens and, unless it is 0 throughout, which is what stands there where nobody knows it, the cost.

    They write no total: it is the sum of all four.
    """
    usage = message.object("usage")
    if usage is None:
        return None
    counts = {ours: usage.count(theirs) or 0 for ours, theirs in _TOKENS.items()}
    cost = usage.object("cost")
    amounts = {} if cost is None else {name: cost.dollars(name) for name in _COST}
    return Usage.model_validate(
        {
            **counts,
            "total_tokens": sum(counts.values()),
            "cost": Cost(**amounts, source=SOURCE) if any(amounts.values()) else None,
        }
    )


def written_usage(usage: Usage) -> Object:
    """The usage as they write it, all fields always."""
    cost = usage.cost or Cost()
    amounts: Object = {name: _number(getattr(cost, name)) for name in _COST}
    counts: Object = {theirs: getattr(usage, ours) for ours, theirs in _TOKENS.items()}
    return {**counts, "cost": amounts}


def _number(amount: Decimal) -> float:
    return float(amount) if abs(amount) < 10**12 else 0.0
