"""Replace the old positions that a message contains by the new positions of the same entries."""

from collections.abc import Mapping

from pydantic import JsonValue

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.context_entry import BranchSummary, Compaction, Label, LeafMove, Prune
from lanebus.bus.messages.control import Steer
from lanebus.bus.messages.events import (
    CompactionEnded,
    ControlAnswered,
    MessageEnded,
    MessageStarted,
    PruneApplied,
    RevertApplied,
    ToolEnded,
    TurnEnded,
    TurnStarted,
    UsageSettled,
)
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.message import UserMessage
from lanebus.handlers.context.read_marks import DEFERRED, READ_UP_TO
from lanebus.handlers.json_fields import Object
from lanebus.handlers.transcripts.format import Moved
from lanebus.handlers.transcripts.position_map import PositionMap
from lanebus.handlers.transcripts.tree_placement import LEFT_LABEL

__all__ = ("POSITIONS", "moved")

POSITIONS: Mapping[str, tuple[str, ...]] = {
    TurnStarted.KIND: ("prompts",),
    TurnEnded.KIND: ("message", "toolResults"),
    UsageSettled.KIND: ("message",),
    MessageStarted.KIND: ("shown", "held"),
    MessageEnded.KIND: ("position",),
    ToolEnded.KIND: ("position",),
    CompactionEnded.KIND: ("position",),
    PruneApplied.KIND: ("pruned",),
    RevertApplied.KIND: ("target", "summary"),
    ControlAnswered.KIND: ("control",),
    Steer.KIND: ("position",),
}
"""kind of an agent event or command → its fields that hold positions, or lists of positions"""


def moved(message: Publishable) -> Publishable | Moved:
    """Return a `Moved` that replaces the positions in the message. If the message has no positions, return the message
    itself.

    If the referenced entry could not be imported, the position of a neighbour in the LLM lane is used. For a leaf move
    and a branch summary, this is the previous entry; for a compaction, the next entry.

    If the referenced entry never existed, the message has no effect in the new session either. A label of such an entry
    becomes an extension message of kind `import.label`. Events and prunes lose the position of such an entry.
    """
    match message:
        case LeafMove(to=int(to)):
            return Moved(lambda new: message.model_copy(update={"to": _leaf_target(to, new)}))
        case Compaction(first_kept=int(kept)):
            return Moved(lambda new: message.model_copy(update={"first_kept": _kept(kept, new)}))
        case Prune(pruned=pruned):
            return Moved(lambda new: message.model_copy(update={"pruned": _known(pruned, new)}))
        case BranchSummary(branch=int(at)):
            return Moved(lambda new: message.model_copy(update={"branch": new.of(at) or new.llm_at_or_before(at)}))
        case Label():
            return Moved(lambda new: _label(message, new))
        case AssistantMessage(metadata=dict(metadata)) | UserMessage(metadata=dict(metadata)) if _is_position(
            metadata.get(READ_UP_TO)
        ):
            return Moved(lambda new: _seen(message, metadata, new))
        case ExtensionMessage(kind=kind, data=dict(data)) if kind in POSITIONS:
            return Moved(lambda new: ExtensionMessage.of(kind, _event(data, POSITIONS[kind], new)))
        case _:
            return message


def _leaf_target(to: int, new: PositionMap) -> int | None:
    """Return the new target of a leaf move. If the old target never existed, return the last entry: no effect."""
    return new.of(to) or (new.llm_at_or_before(to) if new.is_lost(to) else new.last_llm())


def _kept(first: int, new: PositionMap) -> int | None:
    return new.of(first) or (new.llm_at_or_after(first) if new.is_lost(first) else None)


def _known(positions: tuple[int, ...], new: PositionMap) -> tuple[int, ...]:
    return tuple(now for position in positions if (now := new.of(position)) is not None)


def _label(label: Label, new: PositionMap) -> Publishable:
    target = new.of(label.target)
    if target is None:
        return ExtensionMessage.of(LEFT_LABEL, label.model_dump(mode="json", by_alias=True, exclude_none=True))
    return label.model_copy(update={"target": target})


def _seen(message: LlmMessage, metadata: Object, new: PositionMap) -> LlmMessage:
    """Replace the positions in a message's metadata: how far the model had read, and the entries it was not shown."""
    seen, held = metadata[READ_UP_TO], metadata.get(DEFERRED)
    read = new.llm_at_or_before(seen) if isinstance(seen, int) else None
    mapped: Object = {**metadata, READ_UP_TO: read or 0}
    if isinstance(held, list):
        mapped[DEFERRED] = [at for at in (_at(item, new) for item in held) if at is not None]
    return message.model_copy(update={"metadata": mapped})


def _event(data: Object, names: tuple[str, ...], new: PositionMap) -> Object:
    result: Object = {}
    for name, value in data.items():
        if name not in names:
            result[name] = value
        elif isinstance(value, list):
            result[name] = [at for at in (_at(item, new) for item in value) if at is not None]
        elif (at := _at(value, new)) is not None:
            result[name] = at
    return result


def _at(value: JsonValue, new: PositionMap) -> JsonValue:
    """Return the new position of an entry, or None. Return a value that is not a position unchanged."""
    return new.of(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _is_position(value: JsonValue) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
