"""The state of a session that stores conversations: its records and its entries, folded from the log."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import JsonValue

from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.wire.envelope import Cursor
from lanebus.handlers.backends.pydantic_ai.stored_json import instructions_in

__all__ = ("CONVERSATION_KINDS", "DELETED", "ENTRY", "RECORD", "ConversationState", "StoredEntry", "fold")

ENTRY = "store.conversations.entry"
RECORD = "store.conversations.record"
DELETED = "store.conversations.deleted"

CONVERSATION_KINDS = (ENTRY, RECORD, DELETED)


class StoredEntry(NamedTuple):
    """One entry of a conversation, as it is stored."""

    id: str
    parent_id: str | None
    stored: dict[str, JsonValue]
    """the message, for `load_message`"""
    position: int
    """position of the entry's message"""
    shown: int | None
    """position of the entry's last message in the LLM lane; None if it has none"""
    instructions: str | None
    """instructions of the newest request that has some, up to this entry"""


@dataclass(slots=True)
class ConversationState:
    """What a session stores of conversations. A fork also has the records of its origin."""

    records: dict[str, dict[str, JsonValue]] = field(default_factory=dict[str, dict[str, JsonValue]])
    """conversation id → JSON of its newest record"""
    entries: dict[str, StoredEntry] = field(default_factory=dict[str, StoredEntry])
    """entry id → entry"""
    leaf: str | None = None
    """the entry that the next message of the LLM lane continues; None before the first"""
    loops: int = 0
    """number of appends with a response so far"""

    def revision(self, conversation_id: str) -> JsonValue:
        """Return the revision of a conversation's record. None if there is no record."""
        return self.records.get(conversation_id, {}).get("revision")

    def path(self, entry_id: str | None) -> Iterator[StoredEntry]:
        """Yield an entry and those before it, the newest first. Ends at an entry that the session does not have."""
        while entry_id is not None and (entry := self.entries.get(entry_id)) is not None:
            yield entry
            entry_id = entry.parent_id

    def instructions_at(self, entry_id: str | None) -> str | None:
        """Return the newest instructions up to an entry. None if there are none."""
        entry = None if entry_id is None else self.entries.get(entry_id)
        return None if entry is None else entry.instructions

    def shown_up_to(self, entry_id: str | None) -> int | None:
        """Return the position of the last message in the LLM lane up to an entry. None if there is none."""
        return next((entry.shown for entry in self.path(entry_id) if entry.shown is not None), None)


def fold(state: ConversationState, cursor: Cursor, message: Publishable) -> None:
    """Add the message of an entry to a state. What has another form is left out."""
    if not isinstance(message, ExtensionMessage) or not isinstance(data := message.data, dict):
        return
    match message.kind, data:
        case "store.conversations.entry", {"id": str(entry_id), "back": int(back), "loops": int(loops)}:
            parent, shown = data.get("parentId"), cursor.position - back if back else None
            parent_id = parent if isinstance(parent, str) else None
            instructions = instructions_in(data) or state.instructions_at(parent_id)
            state.entries[entry_id] = StoredEntry(entry_id, parent_id, data, cursor.position, shown, instructions)
            state.leaf, state.loops = entry_id, loops
        case "store.conversations.record", {"conversation_id": str(conversation), "head_id": head}:
            state.records[conversation] = data
            state.leaf = head if isinstance(head, str) else None
        case "store.conversations.deleted", {"conversation_id": str(conversation)}:
            state.records.pop(conversation, None)
            state.entries.clear()
            state.leaf = None
        case _:
            pass
