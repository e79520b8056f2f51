"""`LanebusConversationStore`: pydantic-ai's conversations in sessions, and their forks in forks.

`conversation_messages` says what a save appends, and `ConversationState` what the log adds up to.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from pydantic import JsonValue, TypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.messages import ModelMessage

from lanebus import Bus, Cursor, ExtensionMessage
from lanebus.errors import SessionErased, SessionExists
from lanebus.handlers.integrations.bounds import DEFAULT_BACKEND_BOUNDS, BackendBounds
from lanebus.handlers.integrations.pydantic_ai.messages import (
    ShownMessages,
    instructions_in,
    load_message,
    size_of,
    store_message,
)
from lanebus.handlers.integrations.session_states import SessionStates, session_id_of
from lanebus.integration import batched, now_ms
from lanebus.messages import LeafMove, Publishable

# The state of a session that stores conversations: its records and its entries, folded from the log.

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


# The messages that one save of a conversation appends.

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


class _Elsewhere(Exception):  # no error for the caller
    """The record's history begins in another session."""


class LanebusConversationStore(ConversationStore):
    """Stores each conversation of pydantic-ai in a session of the bus.

        store = LanebusConversationStore(bus)
        conversation = await store.load("support-42") or Conversation(conversation_id="support-42")
        result = await agent.run("Where is order 1042?", conversation=conversation)
        await store.save(result)

    A conversation's session has its id; an id with other characters than a session's gets a session by its hash. The
    session's LLM lane shows the messages, with their turns and usage. A fork of a conversation is a fork of its
    session.

    Atomicity: a save appends all its messages and the record in one step, or raises `ConversationConflict` and appends
    nothing. Of two processes that save the same revision, one succeeds. A save of more than `batch_bytes` is appended
    in parts, the record last; until then the conversation loads as before.

    Cancellation: a save that is cancelled is applied completely or not at all, except for its parts.

    Deletion: `delete` appends an entry, after which the conversation neither loads nor lists. Its log stays, because
    forks may share it. `Session.erase` removes the log.
    """

    def __init__(self, bus: Bus, *, agent: str = "pydantic-ai", bounds: BackendBounds = DEFAULT_BACKEND_BOUNDS) -> None:
        """
        Args:
            bus: the bus.
            agent: the agent that new sessions belong to. Conversations of other agents are not listed.
            bounds: limits of the store.

        Raises:
            InvalidName: `agent` does not match `[A-Za-z0-9_.-]{1,64}`.
        """
        self._bus, self._agent, self._bounds = bus, agent, bounds
        self._states = SessionStates[ConversationState](
            bus.session, ConversationState, fold, kinds=CONVERSATION_KINDS, agent=agent, bounds=bounds
        )
        self._homes: OrderedDict[str, str] = OrderedDict()
        """last entry of a known history → session. Without it, `read_history` searches all sessions"""

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return a conversation's record; None if there is none, or if its session was erased.

        Raises:
            Unavailable: the server cannot be reached.
        """
        session_id = self._session_id(conversation_id)
        try:
            async with self._states.newest(session_id) as state:
                found = state.records.get(conversation_id)
        except SessionErased:
            return None
        if found is None:
            return None
        record = RECORDS.validate_python(found)
        for entry_id in (*record.branches, record.head_id):
            self._note_home(entry_id, session_id)
        return record

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """Return the records, newest `updated_at` first. It reads what is new in each session of the agent.

        Args:
            scope: only records of this scope; None means all.
            limit: maximum number of records; None means unlimited.

        Raises:
            Unavailable: the server cannot be reached.
        """
        found: list[ConversationRecord | None] = []
        for heads in batched(await self._bus.sessions(agent=self._agent), self._bounds.reads_at_once):
            found += await asyncio.gather(*(self._record_in(head.session) for head in heads))
        chosen = [record for record in found if record is not None and scope in {None, record.scope}]
        chosen.sort(key=lambda record: record.updated_at, reverse=True)
        return chosen[:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Append new entries and the record, if the stored revision is `expected_revision`.

        Raises:
            ConversationConflict: the stored revision is another one, a record exists although `expected_revision` is
                None, or no conversation has the entry `record.head_id`. Nothing was appended.
            SessionErased: the conversation's session was erased, so its id cannot be used again.
            MessageTooLarge: one entry is too large for a publish.
            Unavailable: the server cannot be reached. Nothing was appended.
        """
        session_id = self._session_id(record.conversation_id)
        media = self._bus.media
        new = [
            NewEntry(each.id, each.parent_id, each.message, await store_message(media, each.message, self._bounds))
            for each in new_entries
        ]
        try:
            await self._append(session_id, record, new, expected_revision)
        except _Elsewhere:
            await self._append(session_id, record, await self._adopted(session_id, record, new), expected_revision)
        self._note_home(record.head_id, session_id)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Append that the conversation is deleted. Its log stays.

        Raises:
            ConversationConflict: no record with `expected_revision` is stored. Nothing was appended.
            Unavailable: the server cannot be reached. Nothing was appended.
        """

        def decide(state: ConversationState) -> list[Publishable]:
            if state.revision(conversation_id) != expected_revision:
                raise ConversationConflict(conversation_id)
            return [LeafMove(timestamp=now_ms()), ExtensionMessage.of(DELETED, {"conversation_id": conversation_id})]

        try:
            await self._states.append(self._session_id(conversation_id), decide)
        except SessionErased:
            raise ConversationConflict(conversation_id) from None

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return an entry by its id.

        The entry is searched in all sessions of the agent, unless it is the last one of a conversation that this store
        has read.

        Raises:
            KeyError: no conversation has the entry.
            Unavailable: the server cannot be reached.
        """
        for entry in await self._path(entry_id):
            return await self._loaded(entry)
        raise KeyError(entry_id)

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """Return the entries up to `head_id`, in order; with `limit` only the last ones.

        Raises:
            KeyError: no conversation has one of the entries.
            Unavailable: the server cannot be reached.
        """
        if head_id is None or limit == 0:
            return []
        path = await self._path(head_id)
        first = path[-1] if path else None
        if first is None or (first.parent_id is not None and (limit is None or len(path) < limit)):
            raise KeyError(head_id if first is None else first.parent_id)
        return [await self._loaded(entry) for entry in reversed(path[:limit])]

    # --- the log ----------------------------------------------------------------------------------------------------

    def _session_id(self, conversation_id: str) -> str:
        return session_id_of(conversation_id, prefix="pydantic-ai")

    async def _append(
        self, session_id: str, record: ConversationRecord, new: Sequence[NewEntry], expected: str | None
    ) -> None:
        def decide(state: ConversationState, part: Sequence[NewEntry], *, is_last: bool) -> list[Publishable]:
            if state.revision(record.conversation_id) != expected:
                raise ConversationConflict(record.conversation_id)
            if record.head_id is not None and record.head_id not in state.entries and record.head_id not in ids:
                raise _Elsewhere
            return [*conversation_messages(state, session_id, record if is_last else None, part, self._bounds)]

        ids, (*first, last) = {each.id for each in new}, in_parts(new, self._bounds)
        for part in first:
            await self._states.append(session_id, partial(decide, part=part, is_last=False))
        await self._states.append(session_id, partial(decide, part=last, is_last=True))

    async def _adopted(self, session_id: str, record: ConversationRecord, new: Sequence[NewEntry]) -> list[NewEntry]:
        """Fork the session that has the record's history. If the record's session exists, return copies instead.

        Raises:
            ConversationConflict: no conversation has the entry `record.head_id`.
        """
        path = await self._path(record.head_id, record.forked_from)
        if not path:
            raise ConversationConflict(record.conversation_id)
        home = self._states.session(self._homes[path[0].id])
        try:
            await home.fork(path[0].position, id=session_id, agent=self._agent)
        except SessionExists:
            copied = [
                NewEntry(entry.id, entry.parent_id, (await self._loaded(entry)).message, entry.stored)
                for entry in reversed(path)
            ]
            return [*copied, *new]
        return list(new)

    async def _path(self, entry_id: str | None, conversation_id: str | None = None) -> list[StoredEntry]:
        """Return an entry and those before it, the newest first; empty if no conversation has the entry."""
        if entry_id is None:
            return []
        likely = self._homes.get(entry_id) or (conversation_id and self._session_id(conversation_id))
        if likely and (path := await self._path_in(likely, entry_id)):
            return path
        for head in await self._bus.sessions(agent=self._agent):
            if path := await self._path_in(head.session, entry_id):
                return path
        return []

    async def _path_in(self, session_id: str, entry_id: str) -> list[StoredEntry]:
        try:
            async with self._states.newest(session_id) as state:
                path = [*state.path(entry_id)]
        except SessionErased:
            return []
        if path:
            self._note_home(entry_id, session_id)
        return path

    async def _loaded(self, entry: StoredEntry) -> ConversationEntry:
        message = await load_message(self._bus.media, entry.stored)
        return ConversationEntry(id=entry.id, parent_id=entry.parent_id, message=message)

    async def _record_in(self, session_id: str) -> ConversationRecord | None:
        try:
            async with self._states.newest(session_id) as state:
                found = [record for name, record in state.records.items() if self._session_id(name) == session_id]
        except SessionErased:
            return None
        return RECORDS.validate_python(found[0]) if found else None  # a fork has the records of its origin too

    def _note_home(self, entry_id: str | None, session_id: str) -> None:
        if entry_id is not None:
            self._homes[entry_id] = session_id
            self._homes.move_to_end(entry_id)
            if len(self._homes) > self._bounds.cached_sessions:
                self._homes.popitem(last=False)
