"""Overlays on the log: compactions of single loops, and pruned entries.

Nothing is removed from the log. An overlay is an entry of its own and covers only earlier entries. So the context of an
earlier position still shows the covered entries.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lanebus.bus.messages.context_entry import LoopCompaction, Prune
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.message import DeveloperMessage, SystemMessage
from lanebus.bus.wire.envelope import Envelope
from lanebus.handlers.context.summaries import prune_message

__all__ = ("Placed", "overlaid")


class Placed(NamedTuple):
    """An entry at its place in the context, or an overlay in place of the entries that the overlay covers.

    An overlay is a loop compaction or a prune.
    """

    envelope: Envelope
    instead: tuple[LlmMessage, ...] | None = None
    """For an overlay, the messages that replace the covered entries. None for any other entry."""


def overlaid(path: Sequence[Envelope]) -> list[Placed]:
    """Apply the overlays on a path. Return the remaining entries and overlays. Pure.

    Each overlay takes the place of the first entry that it covers. An overlay that covers nothing adds no messages.
    """
    remaining = [Placed(envelope) for envelope in path]
    latest = {envelope.message.loop_id: envelope for envelope in path if isinstance(envelope.message, LoopCompaction)}
    for overlay in path:
        match overlay.message:
            case LoopCompaction() as compaction if latest[compaction.loop_id] is overlay:
                covered = _turns_left_out(remaining, overlay.position, compaction)
                remaining = _replaced(remaining, covered, Placed(overlay, compaction.block.messages))
            case Prune(pruned=pruned) as prune:
                covered = {position for position in pruned if position < overlay.position}
                memo = prune_message(prune)
                remaining = _replaced(remaining, covered, Placed(overlay, (memo,) if memo else ()))
            case _:
                pass
    return remaining


def _turns_left_out(remaining: Iterable[Placed], before: int, compaction: LoopCompaction) -> set[int]:
    """Return the positions of a loop's messages before position `before`, without the turns that `compaction` keeps."""
    kept = compaction.block.keep_first
    return {
        placed.envelope.position
        for placed in remaining
        if placed.envelope.position < before
        and isinstance(message := placed.envelope.message, LlmMessage)
        and message.turn_id is not None
        and message.turn_id.loop_id == compaction.loop_id
        and (kept is None or message.turn_id.turn_index not in kept)
    }


def _replaced(remaining: Sequence[Placed], covered: set[int], replacement: Placed) -> list[Placed]:
    """Put `replacement` in place of all covered entries. Covered instructions stay, because they still hold."""
    result: list[Placed] = []
    is_placed = False
    for placed in remaining:
        is_instruction = isinstance(placed.envelope.message, SystemMessage | DeveloperMessage)
        if placed.envelope.position not in covered or is_instruction:
            result.append(placed)
        elif not is_placed:
            result.append(replacement)
            is_placed = True
    return result
