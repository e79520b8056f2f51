"""Batches: tool results that were read from one graph message, and are written as one graph message again."""

from collections.abc import Iterator, Sequence

from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.tool_result import ToolResultMessage

__all__ = ("batch_name", "grouped")

_PREFIX = "batch"


def batch_name(results: Sequence[ToolResultMessage]) -> str:
    """Return the batch id for the tool results of a graph message that has no id of its own.

    The id includes the number of results, which shows where a batch ends if the next batch has the same id.
    """
    return f"{_PREFIX}:{len(results)}:{results[0].tool_call_id}"


def grouped(messages: Sequence[Publishable]) -> Iterator[list[Publishable]]:
    """Yield each message alone, but consecutive results of one batch together."""
    group: list[Publishable] = []
    for message in messages:
        if group and not _goes_on(group, message):
            yield group
            group = []
        group.append(message)
    if group:
        yield group


def _goes_on(group: list[Publishable], message: Publishable) -> bool:
    """Return whether `message` belongs to the batch of `group`.

    If the graph message had an id, that id is the batch's name and the id of the batch's first result. So a result
    whose own id is the batch's name starts a new batch. A batch named by `batch_name` ends after the number of results
    in its name.
    """
    match group[0], message:
        case ToolResultMessage(batch_id=str(one)) as first, ToolResultMessage(batch_id=str(other)):
            is_full = not first.id and one == f"{_PREFIX}:{len(group)}:{first.tool_call_id}"
            return one == other != message.id and not is_full
        case _:
            return False
