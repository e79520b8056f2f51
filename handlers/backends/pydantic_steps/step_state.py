"""The state of a session that stores a run's steps, folded from the log."""

from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import JsonValue

from lanebus.bus.digits import number_in
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.wire.envelope import Cursor

__all__ = (
    "EFFECT",
    "EVENT",
    "MESSAGE",
    "RUN",
    "SNAPSHOT",
    "STEP_KINDS",
    "StepState",
    "StoredSnapshot",
    "fold",
    "sequence_of",
)

RUN = "store.steps.run"
EVENT = "store.steps.event"
MESSAGE = "store.steps.message"
SNAPSHOT = "store.steps.snapshot"
EFFECT = "store.steps.effect"

STEP_KINDS = (RUN, EVENT, MESSAGE, SNAPSHOT, EFFECT)

Fields = dict[str, JsonValue]


class StoredMessage(NamedTuple):
    """One message of a run."""

    stored: Fields
    """the message, for `load_message`"""
    shown: int | None
    """position of its last message in the LLM lane; None if it has none"""


class StoredSnapshot(NamedTuple):
    """One snapshot: its fields, and its messages, which other snapshots share."""

    fields: Fields
    messages: tuple[StoredMessage, ...]


@dataclass(slots=True)
class StepState:
    """What a session stores of a run."""

    run: Fields | None = None
    events: list[Fields] = field(default_factory=list[Fields])
    event_keys: set[str] = field(default_factory=set[str])
    snapshots: list[StoredSnapshot] = field(default_factory=list[StoredSnapshot])
    snapshot_keys: set[str] = field(default_factory=set[str])
    latest_sequence: int = -1
    """the highest number that a snapshot's key began with; -1 if there is none"""
    effects: dict[str, Fields] = field(default_factory=dict[str, Fields])
    """id of a tool call → its newest record"""
    new: list[StoredMessage] = field(default_factory=list[StoredMessage])
    """messages that the next snapshot has and the snapshots before it do not have"""
    turns: int = 0
    """number of responses so far"""

    @property
    def history(self) -> tuple[StoredMessage, ...]:
        """The messages of the newest snapshot."""
        return self.snapshots[-1].messages if self.snapshots else ()


def sequence_of(key: str) -> int | None:
    """Return the number that a snapshot's key begins with, such as 3 of "3:1:complete"; None if there is none."""
    number, colon, _ = key.partition(":")
    return number_in(number) if colon else None


def fold(state: StepState, cursor: Cursor, message: Publishable) -> None:
    """Add the message of an entry to a state. What has another form is left out."""
    if not isinstance(message, ExtensionMessage) or not isinstance(data := message.data, dict):
        return
    match message.kind, data:
        case "store.steps.run", _:
            state.run = data
        case "store.steps.event", _:
            state.events.append(data)
            if isinstance(key := data.get("idempotency_key"), str):
                state.event_keys.add(key)
        case "store.steps.message", {"back": int(back), "turns": int(turns)}:
            state.new.append(StoredMessage(data, cursor.position - back if back else None))
            state.turns = turns
        case "store.steps.message", {"shown": int() | None as shown}:
            state.new.append(StoredMessage(data, shown))
        case "store.steps.snapshot", {"kept": int(kept)}:
            state.snapshots.append(StoredSnapshot(data, (*state.history[:kept], *state.new)))
            state.new = []
            if isinstance(key := data.get("idempotency_key"), str):
                state.snapshot_keys.add(key)
                sequence = sequence_of(key)
                state.latest_sequence = max(state.latest_sequence, -1 if sequence is None else sequence)
        case "store.steps.effect", {"tool_call_id": str(call)}:
            state.effects[call] = data
        case _:
            pass
