"""An imported answer with tool calls that have no result. Its calls are closed and never run. Pure."""

from collections import Counter
from typing import NamedTuple

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import ToolCallBlock
from lanebus.handlers.context.fold import Context

__all__ = ("ImportedAnswer", "imported_answer")


class ImportedAnswer(NamedTuple):
    """An imported answer and its open tool calls."""

    position: int
    open_calls: tuple[ToolCallBlock, ...]
    """calls in the order of the answer. An id that the answer repeats is listed once for each missing result"""


def imported_answer(context: Context, *, most_calls: int = 100) -> ImportedAnswer | None:
    """Return the newest imported answer of the context that has open calls; None if there is none.

    Args:
        context: the session's context.
        most_calls: maximum number of calls to return. When these have results, the next call returns the rest.
    """
    waiting = context.pairing.waiting
    left = set(waiting)
    if not left:
        return None
    for envelope in reversed(context.path):
        message = envelope.message
        if not isinstance(message, AssistantMessage):
            continue
        calls = tuple(message.tool_calls())
        found = left.intersection(call.id for call in calls)
        if found and envelope.is_imported:
            missing = Counter({call: len(waiting[call]) for call in found})
            return ImportedAnswer(envelope.position, _last(calls, missing)[:most_calls])
        left -= found  # an id names the newest call that has it
        if not left:
            return None
    return None


def _last(calls: tuple[ToolCallBlock, ...], missing: Counter[str]) -> tuple[ToolCallBlock, ...]:
    """Return the last calls of each id, as many as `missing` counts: results belong to the first calls of an id."""
    last: list[ToolCallBlock] = []
    for call in reversed(calls):
        if missing[call.id] > 0:
            missing[call.id] -= 1
            last.append(call)
    return tuple(reversed(last))
