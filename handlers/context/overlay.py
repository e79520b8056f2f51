"""What lies over the log when a context is built: loops told shorter, and entries that were pruned.

Nothing is ever removed: an overlay is an entry of its own, and a context from before it shows everything. It says
nothing of what comes after it, so an entry that is appended later stands as it is.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lanebus.bus.messages.context_entry import LoopCompaction, Prune
from lanebus.bus.messages.message import DeveloperMessage, LlmMessage, SystemMessage
from lanebus.bus.wire.envelope import Envelope
from lanebus.handlers.context.summaries import prune_message

__all__ = ("Stands", "overlaid")


class Stands(NamedTuple):
    """An entry in its place in the context."""

    envelope: Envelope
    instead: tuple[LlmMessage, ...] | None = None
    """what an overlay says, where others stood; None: the entry says what it says"""


def overlaid(path: Sequence[Envelope]) -> list[Stands]:
    """What stands of a path under the overlays that are on it. Pure: the path is as it was.

    Each overlay takes the place of the first entry that it covers; one that covers nothing there says nothing.
    """
    standing = [Stands(envelope) for envelope in path]
    latest = {envelope.message.loop_id: envelope for envelope in path if isinstance(envelope.message, LoopCompaction)}
    for overlay in path:
        match overlay.message:
            case LoopCompaction() as compaction if latest[compaction.loop_id] is overlay:
                covered = _turns_left_out(standing, overlay.position, compaction)
                standing = _replaced(standing, covered, Stands(overlay, compaction.block.messages))
            case Prune(pruned=pruned) as prune:
                covered = {position for position in pruned if position < overlay.position}
                memo = prune_message(prune)
                standing = _replaced(standing, covered, Stands(overlay, (memo,) if memo else ()))
            case _:
                pass
    return standing


def _turns_left_out(standing: Iterable[Stands], before: int, compaction: LoopCompaction) -> set[int]:
    """Positions of the loop's messages before its overlay, but for the turns that are kept as they were."""
    kept = compaction.block.keep_first
    return {
        stands.envelope.position
        for stands in standing
        if stands.envelope.position < before
        and isinstance(message := stands.envelope.message, LlmMessage)
        and message.turn_id is not None
        and message.turn_id.loop_id == compaction.loop_id
        and (kept is None or message.turn_id.turn_index not in kept)
    }


def _replaced(standing: Sequence[Stands], covered: set[int], said: Stands) -> list[Stands]:
    """The same with one thing in place of all that is covered. Instructions are never covered: they still hold."""
    result: list[Stands] = []
    is_said = False
    for stands in standing:
        is_instruction = isinstance(stands.envelope.message, SystemMessage | DeveloperMessage)
        if stands.envelope.position not in covered or is_instruction:
            result.append(stands)
        elif not is_said:
            result.append(said)
            is_said = True
    return result
