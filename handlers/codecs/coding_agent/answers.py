"""Read and write the stop reason, usage and cost of a `coding-agent` system's answer."""

from decimal import Decimal
from typing import get_args

from lanebus.bus.messages.assistant import StopReason
from lanebus.bus.messages.usage import Cost, Usage
from lanebus.handlers.codecs.json_object import JsonObject
from lanebus.handlers.json_fields import Object

__all__ = ("SOURCE", "stop_of", "usage_of", "written_stop", "written_usage")

SOURCE = "seed-000"
"""`Cost.source` of a cost that the `coding-agent` system computed and stored in its message."""

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
    """Return lanebus's stop reason and, if the message's word is unknown, this word; otherwise None.

    A word that neither the `coding-agent` system nor lanebus knows is read as "stop".
    """
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
    """Return the nearest of the `coding-agent` system's six stop reasons."""
    return next((theirs for theirs, ours in _STOP.items() if ours == reason), "stop")


def usage_of(message: JsonObject) -> Usage | None:
    """Return tokens and cost. A cost of 0 in every field means unknown.

    The `coding-agent` system stores no total of tokens, so the total is the sum of the four counts.
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
    """Return the usage in the form of the `coding-agent` system, with all fields."""
    cost = usage.cost or Cost()
    amounts: Object = {name: _number(getattr(cost, name)) for name in _COST}
    counts: Object = {theirs: getattr(usage, ours) for ours, theirs in _TOKENS.items()}
    return {**counts, "cost": amounts}


def _number(amount: Decimal) -> float:
    return float(amount) if abs(amount) < 10**12 else 0.0
