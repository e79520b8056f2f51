"""The messages that one save of a conversation appends."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pydantic import JsonValue, TypeAdapter
from pydantic_ai.conversation_store import ConversationRecord
from pydantic_ai.messages import ModelMessage

from lanebus.bus.messages.context_entry import LeafMove
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.llm import now_ms
from lanebus.handlers.backends.bounds import BackendBounds
from lanebus.handlers.backends.pydantic_ai.shown_messages import ShownMessages
from lanebus.handlers.backends.pydantic_ai.stored_json import size_of
from lanebus.handlers.backends.pydantic_conversations.conversation_state import ENTRY, RECORD, ConversationState

__all__ = ("RECORDS", "NewEntry", "conversation_messages", "in_parts")

RECORDS = TypeAdapter[ConversationRecord](ConversationRecord)
"""records as JSON"""


class NewEntry(NamedTuple):
    """An entry to append."""

    id: str
    parent_id: str | None
    message: ModelMessage
    stored: dict[str, JsonValue]
    """the message as `store_message` stored it"""


def conversation_messages(
    state: ConversationState,
    session_id: str,
    record: ConversationRecord | None,
    new: Sequence[NewEntry],
    bounds: BackendBounds,
) -> Iterator[Publishable]:
    """Yield the messages of an append: each new entry after what the LLM lane shows of it, and the record last.

    Args:
        state: the session's state before the save.
        session_id: the session.
        record: the record after the save; None for all parts of a save but the last.
        new: the new entries, in order.
        bounds: longer texts are cut in the LLM lane.
    """
    head_id = None if record is None else record.head_id
    start = new[0].parent_id if new else head_id
    if start != state.leaf:  # the conversation continues another branch, and so does the context
        yield LeafMove(to=state.shown_up_to(start), timestamp=now_ms())
    shown = ShownMessages(session_id, state.loops + 1, before=state.instructions_at(start), bounds=bounds)
    for entry in new:
        yield from shown.of(entry.message)
        stored = {key: value for key, value in entry.stored.items() if key in {"message", "value"}}
        loops = state.loops + (1 if shown.turns else 0)
        fields: dict[str, JsonValue] = {"id": entry.id, "parentId": entry.parent_id, "back": shown.back, "loops": loops}
        yield ExtensionMessage.of(ENTRY, {**fields, **stored})
    if record is not None:
        yield ExtensionMessage.of(RECORD, RECORDS.dump_python(record, mode="json"))


def in_parts(new: Sequence[NewEntry], bounds: BackendBounds) -> list[list[NewEntry]]:
    """Return the entries in parts of at most `batch_bytes`, or of one entry. There is at least one part."""
    parts: list[list[NewEntry]] = [[]]
    size = 0
    for entry in new:
        size += size_of(entry.stored)
        if size > bounds.batch_bytes and parts[-1]:
            parts.append([])
            size = size_of(entry.stored)
        parts[-1].append(entry)
    return parts
