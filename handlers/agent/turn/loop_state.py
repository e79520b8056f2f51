"""The state of a session's loop, derived from its folds, and the sessions that a worker keeps in memory."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import anyio
from pydantic import ValidationError

from lanebus.bus import FirstPage, Log, OpenSession, Session, SessionHead
from lanebus.bus.errors import ArchiveDamaged, BusError, CursorTrimmed, EntriesMissing, LogRolledBack, Unavailable
from lanebus.bus.messages import (
    AssistantMessage,
    Compaction,
    Lane,
    LlmMessage,
    ToolCallBlock,
    ToolResultMessage,
    TurnId,
    UserMessage,
)
from lanebus.bus.text import number_in
from lanebus.bus.wire import START, Cursor, Envelope
from lanebus.handlers.agent.bounds import DEFAULT_WORKER_BOUNDS, WorkerBounds
from lanebus.handlers.context import (
    ENTRY_BYTES,
    Context,
    RecentSessions,
    evolve,
    fold_kept,
    is_prompt,
    left_over,
    read_position,
    require_whole,
    unreadable_up_to,
)
from lanebus.handlers.projections import STATUS, STATUS_KINDS, Command, LoopStatus, Status

# The answer that a loop continues: the model's last answer with the tool results so far. Pure.

_TOOL_STOPS = frozenset({"toolUse", "stop", "length"})


class OpenAnswer(NamedTuple):
    """A loop's last answer and the results of its tool calls."""

    position: int
    message: AssistantMessage
    turn_id: TurnId
    """the turn of the tool results: the answer's own turn, or a turn of the loop that adopted the answer"""
    results: tuple[tuple[int, ToolResultMessage], ...]
    """tool results with their positions, in log order"""

    @property
    def calls(self) -> tuple[ToolCallBlock, ...]:
        """The tool calls that need a result."""
        return wanted_calls(self.message)

    @property
    def open_calls(self) -> tuple[ToolCallBlock, ...]:
        """The tool calls that have no result yet."""
        answered = {result.tool_call_id for _, result in self.results}
        return tuple(call for call in self.calls if call.id not in answered)

    @property
    def turn_ids(self) -> tuple[TurnId, ...]:
        """The turns that the answer and its results name."""
        named = (self.turn_id, *(result.turn_id for _, result in self.results))
        return tuple(turn_id for turn_id in named if turn_id is not None)

    @property
    def is_continued(self) -> bool:
        """Whether a call has no result, or a result asks for another model call."""
        return bool(self.calls) and (bool(self.open_calls) or not all(result.terminate for _, result in self.results))

    def adopted(self, turn_id: TurnId) -> OpenAnswer:
        """Return a copy for a turn of another loop. The copy has no usage: the loop that called the model has counted
        it."""
        return self._replace(turn_id=turn_id, message=self.message.model_copy(update={"usage": None}))


def is_cut(message: AssistantMessage) -> bool:
    """Whether the answer failed and its loop stays open: the next turn answers the same prompts."""
    metadata = message.metadata or {}
    return bool(metadata.get(CUT) or metadata.get(AGAIN))


def wanted_calls(message: AssistantMessage) -> tuple[ToolCallBlock, ...]:
    """Return the tool calls of an answer that need a result; none if the answer failed or was cut."""
    return tuple(message.tool_calls()) if message.stop_reason in _TOOL_STOPS else ()


def open_answer(path: Sequence[Envelope]) -> OpenAnswer | None:
    """Return the answer that the next turn continues; None if there is no answer, or the last answer is complete.

    Imported entries are passed over: no loop continues an imported answer.
    """
    results: list[tuple[int, ToolResultMessage]] = []
    cut: OpenAnswer | None = None
    for envelope in reversed(path):
        if envelope.is_imported:
            continue
        match envelope.message:
            case ToolResultMessage() as result:
                if IMPORTED_CALL not in (result.metadata or {}):  # an imported call may have the id of the loop's call
                    results.append((envelope.position, result))
            case UserMessage(turn_id=TurnId()) as note if WARNING not in (note.metadata or {}):
                return cut  # the note at the end of a loop
            case AssistantMessage(turn_id=TurnId() as turn_id) as message:
                ids = {call.id for call in message.tool_calls()}
                own = tuple((at, result) for at, result in reversed(results) if result.tool_call_id in ids)
                answer = OpenAnswer(envelope.position, message, turn_id, own)
                if is_cut(message):
                    cut = cut or answer
                    continue
                if cut is not None:  # the cut model call had these results as its input
                    return cut._replace(results=own) if answer.is_continued else cut
                return answer if answer.is_continued else None
            case AssistantMessage():
                return cut  # an answer outside of a turn, or a worker's record that the agent failed
            case _:
                pass
    return cut


# The state of a session's loop, derived from the folds of both lanes. Pure.
#
# Entries that belong together are appended in one batch: the final answer with the loop's end, and a turn's last result
# with the turn's end. The log contains both entries of such a pair or neither.
#
# A message that a user sends while the model answers precedes that answer in the log, although the model did not read
# the message. The answer's metadata (`READ_UP_TO` and `DEFERRED`) records what the model has read.
#
# Imported entries are part of the context but not of the loop: imported messages need no answer, and imported answers
# have read nothing.


@dataclass(frozen=True, slots=True)
class LoopState:
    """What is left to do in a session."""

    read_up_to: int
    """messages up to this position need no answer, except for `prompts` and `deferred`"""
    visible_up_to: int
    """a model was shown every message up to this position, even if the model's answer was cut"""
    prompts: tuple[int, ...]
    """positions of the user messages that the next request answers"""
    deferred: tuple[int, ...]
    """positions of the follow-up messages that wait until the loop has ended"""
    answer: OpenAnswer | None
    """the answer that the next turn continues; None if the next turn starts from prompts. If a loop is open, the
    `turn_id` of this answer is a turn of the open loop"""
    loop_id: str | None
    """id of the session's open loop"""
    is_stopped: bool
    """whether the last loop was paused, handed off or compacted. The next loop continues its work"""
    is_waiting: bool
    """whether tool calls are open, and all of them wait for a person"""
    is_halted: bool
    """whether the session is paused or handed off. Only commands are answered until `Resume`"""
    commands: tuple[Command, ...]
    """unanswered commands in the order of the log"""

    @property
    def has_work(self) -> bool:
        """Whether a worker can do something now."""
        if self.commands:
            return True
        if self.is_halted:
            return False
        if self.is_waiting:
            # A message after the open answer does not wait for the person; earlier messages do.
            return self.answer is not None and any(position > self.answer.position for position in self.prompts)
        return bool(self.prompts) or self.answer is not None or self.is_stopped


@dataclass(frozen=True)
class SessionSnapshot:
    """A session's state for its worker: both lanes, folded up to the same entry."""

    context: Context
    """fold of the LLM lane"""
    status: Status
    """fold of the extension lane"""

    @cached_property
    def loop_state(self) -> LoopState:
        """The state of the session's loop, derived at the first use."""
        return derive_loop_state(self.context, self.status)


def derive_loop_state(context: Context, status: Status) -> LoopState:
    """Return the loop state as of these folds. The context is searched backwards to the last answer that was not
    cut."""
    read = _read(context.path)
    answer = open_answer(context.path)
    loop = _open_loop(context.session, status, answer)
    if answer is not None and loop is not None:
        answer = _in_loop(answer, loop, status.loop)
    is_stopped = loop is None and _is_stopped(context, status, answer, read.newest)
    deferred = _follow_ups(read.unread, status.loop) if loop is not None or is_stopped else ()
    prompts = tuple(envelope.position for envelope in read.unread if envelope.position not in deferred)
    if not prompts and answer is None and not is_stopped:  # the loop has nothing else to do
        prompts, deferred = deferred, ()
    return LoopState(
        read_up_to=read.read_up_to,
        visible_up_to=max(read.visible_up_to, read.read_up_to),
        prompts=prompts,
        deferred=deferred,
        answer=answer,
        loop_id=loop,
        is_stopped=is_stopped,
        is_waiting=loop is not None and answer is not None and _is_waiting(answer, status.loop),
        is_halted=status.halted is not None,
        commands=status.commands,
    )


def unread_prompts(path: Sequence[Envelope], end: int) -> tuple[Envelope, ...]:
    """Return the user messages in `path[:end]` that no answer in `path[:end]` answers."""
    return _read(path[:end]).unread


class _Read(NamedTuple):
    """Up to which user messages the models have read."""

    read_up_to: int
    visible_up_to: int
    newest: int
    """position of the last answer or final note that was not cut; 0 if there is none"""
    unread: tuple[Envelope, ...]


def _read(path: Sequence[Envelope]) -> _Read:
    visible: int | None = None
    unread: list[Envelope] = []
    for envelope in reversed(path):
        if envelope.is_imported:
            continue
        if is_prompt(envelope):
            unread.append(envelope)
            continue
        read_up_to = read_position(envelope)
        if read_up_to is None:
            continue
        visible = read_up_to if visible is None else visible
        if isinstance(envelope.message, AssistantMessage) and is_cut(envelope.message):
            continue
        # Messages that were deferred, or sent while the model answered, precede the answer in the log.
        unread += left_over(path, envelope)
        return _Read(read_up_to, visible, envelope.position, tuple(reversed(unread)))
    return _Read(0, visible or 0, 0, tuple(reversed(unread)))


def _follow_ups(unread: Sequence[Envelope], loop: LoopStatus | None) -> tuple[int, ...]:
    """Return the follow-ups that were sent after the loop began."""
    began = 0 if loop is None else loop.position
    return tuple(
        envelope.position
        for envelope in unread
        if envelope.position > began
        and isinstance(envelope.message, UserMessage)
        and (envelope.message.metadata or {}).get(FOLLOW_UP)
    )


def _open_loop(session: str, status: Status, answer: OpenAnswer | None) -> str | None:
    loop = status.loop
    if loop is not None and loop.loop_id.partition(".")[0] == session:
        return loop.loop_id if loop.ended is None else None
    # In a fork, or after a trim of the extension lane, only the LLM lane names the loop.
    turn_ids = () if answer is None else answer.turn_ids
    return next((turn_id.loop_id for turn_id in turn_ids if turn_id.session == session), None)


def _in_loop(answer: OpenAnswer, loop_id: str, loop: LoopStatus | None) -> OpenAnswer:
    """Return the answer with the turn of the open loop in which its tools run."""
    own = next((turn_id for turn_id in answer.turn_ids if turn_id.loop_id == loop_id), None)
    newest = None if loop is None else loop.turn
    turn_id = own or newest or TurnId(loop_id=loop_id, turn_index=0)
    return answer if turn_id == answer.turn_id else answer.adopted(turn_id)


def _is_stopped(context: Context, status: Status, answer: OpenAnswer | None, newest: int) -> bool:
    """Whether the newest loop has ended and the next loop continues its work."""
    loop = status.loop
    if loop is None or not loop.is_stopped:
        return False
    if answer is not None or loop.ended != "contextCompacted":
        return answer is not None
    # The loop's prompts may be in the summary, so they do not show as unread.
    first = context.path[0] if context.path else None
    return first is not None and isinstance(first.message, Compaction) and newest < first.position


def _is_waiting(answer: OpenAnswer, loop: LoopStatus | None) -> bool:
    if loop is None or not answer.open_calls:
        return False
    waiting = loop.calls_waiting.keys() - loop.calls_answered.keys() - loop.calls_lapsed.keys()  # these are asked anew
    return all(call.id in waiting for call in answer.open_calls)


# The ids of a session's next loop and next turn, derived from the log. Pure.

_MOST_DIGITS = 15
"""Longer numbers are ignored: ids may come from foreign clients."""
_MOST_IMPORTED_DIGITS = 9
"""An import can name any number. The next numbers must stay within `_MOST_DIGITS`."""


def new_loop(snapshot: SessionSnapshot, config: str) -> str:
    """Return the id of the session's next loop, `<session>.<config>.<N>`.

    If a loop left neither an answer nor an event, its number is used again.
    """
    context, loop = snapshot.context, snapshot.status.loop
    prefix = f"{context.session}.{config}."
    number = 0 if loop is None else _number(loop.loop_id, prefix)
    for envelope in reversed(context.entries):
        turn_id = envelope.message.turn_id if isinstance(envelope.message, LlmMessage) else None
        if turn_id is None:
            continue
        if envelope.is_imported:  # the number may be smaller than those of earlier entries
            number = max(number, _number(turn_id.loop_id, prefix, _MOST_IMPORTED_DIGITS))
        elif last := _number(turn_id.loop_id, prefix):
            number = max(number, last)
            break
    return f"{prefix}{number + 1}"


def next_turn(snapshot: SessionSnapshot, loop_id: str) -> TurnId:
    """Return the turn of an open loop's next model call: a turn that has begun and has no answer, else a new turn."""
    for envelope in reversed(snapshot.context.entries):
        message = envelope.message
        if envelope.is_imported:
            continue
        if isinstance(message, AssistantMessage | ToolResultMessage) and message.turn_id is not None:
            if message.turn_id.loop_id != loop_id:
                break
            return TurnId(loop_id=loop_id, turn_index=message.turn_id.turn_index + 1)
    loop = snapshot.status.loop
    begun = loop.turn if loop is not None and loop.loop_id == loop_id else None
    return begun or TurnId(loop_id=loop_id, turn_index=0)


def _number(loop_id: str, prefix: str, digits: int = _MOST_DIGITS) -> int:
    number = loop_id[len(prefix) :] if loop_id.startswith(prefix) else ""
    return number_in(number, digits) or 0


# Keys that the agent sets in the private metadata of messages. The prefix keeps these keys apart from imported
# metadata.


CUT = "lanebus.cut"
"""metadata key that marks an answer that was cut because its worker stopped or the user steered. The loop stays open,
and its next turn answers the same messages"""

AGAIN = "lanebus.again"
"""metadata key that marks an answer whose model failed transiently. The loop stays open, and its next turn calls the
model again"""

BY = "lanebus.by"
"""metadata key of a user message that came over HTTP. Its value is the name of the principal that sent it"""

CWD = "lanebus.cwd"
"""metadata key of a user message that came from an editor. Its value is the absolute path of the project's folder"""

FOLLOW_UP = "lanebus.followUp"
"""metadata key that marks a user message that waits until the running loop has ended"""

HANDOFF = "lanebus.handoff"
"""key in a tool result's metadata. Its value is the reason why the tool hands the session to a person"""

IMPORTED_CALL = "lanebus.importedCall"
"""metadata key that marks a tool result which closes an imported call. Its value is the position of the answer with the
call"""

CHILD_LOOP = "lanebus.childLoop"
"""key in a tool result's metadata. Its value is the id of the sub-agent's loop that produced the result"""

OUTCOME = "lanebus.outcome"
"""key in the metadata of a tool result before it is appended. Its value is the `ToolOutcome` for the call's
`ToolEnded`. The key is removed when the result is appended"""

REDRIVEN = "lanebus.redriven"
"""metadata key that marks the empty answer after a redrive. It makes the messages of the failed run unread again"""

WARNING = "lanebus.warning"
"""key in the metadata of a guard's warning, which is a note to the model. Its value is the positions of the user
messages that the guard checked"""


# The sessions that a worker keeps in memory between turns, so that the next turn reads only new entries.


_WANTED = {Lane.EXTENSION: STATUS_KINDS}


class CachedSession:
    """The folds of a session, kept in memory.

    A read requests all entries of the LLM lane, and only `STATUS_KINDS` of the extension lane.

    Folds in memory know no more than the log. If entries that were folded were trimmed, the session is read again. So
    every worker gets the same context: that of the newest compaction, or the same error.
    """

    def __init__(self, session: Session, *, store_every: int = DEFAULT_WORKER_BOUNDS.store_every) -> None:
        """
        Args:
            store_every: positions between two stored states, see `WorkerBounds`.
        """
        self.session, self._store_every = session, store_every
        self._context, self._status = Context(session.id), Status()
        self._snapshot: SessionSnapshot | None = None
        """snapshot of the folds, made at first use and kept, with the state derived from it, until the next entry"""
        self._cursor = START
        """cursor after the last entry that was read"""
        self._forked = 0
        """position up to which the extension lane belongs to the parent session and is not folded"""
        self._stored = 0
        """position of the stored state; 0 if there is none"""
        self._trimmed = 0
        """position up to which the log was trimmed when it was last read"""
        self._gone = 0
        """the largest result of `unreadable_up_to` so far"""
        self._gap: CursorTrimmed | None = None
        """tells which entries the context lacks; None if it lacks no entry"""
        self._is_loaded = False
        self.is_whole = True
        """no entry of the extension lane was trimmed before it was folded"""
        self.size_bytes = 0
        """bytes of the entries that were read"""
        self.is_stale = False
        """the log no longer matches the entries that were read: discard this object and read from the start"""
        self.loop_id = ""
        """id of the newest loop that this worker has begun or resumed; "" if there is none"""
        # Two concurrent refreshes would fold the same entries twice.
        self._one_at_a_time = anyio.Lock(fast_acquire=True)

    @property
    def snapshot(self) -> SessionSnapshot:
        """The session's state as of the latest refresh; an empty state if there was no refresh yet."""
        if self._snapshot is None:
            status = self._status
            # A request definition that was trimmed has to be appended again.
            if status.request is not None and status.request_position <= self._trimmed:
                status = status.model_copy(update={"request": None})
            self._snapshot = SessionSnapshot(self._context, status)
        return self._snapshot

    @property
    def cursor(self) -> Cursor:
        """The cursor up to which the session was read."""
        return self._cursor

    def first_page(self) -> FirstPage | None:
        """Return a request for the first page of the next refresh; None if there was no refresh yet.

        To save a round trip, another command sends the request. Then pass it to `refresh`.
        """
        return self.session.first_page(after=self._cursor) if self._is_loaded else None

    async def refresh(self, first: FirstPage | None = None) -> SessionSnapshot:
        """Read the new entries, and return the session as of now. A cancelled refresh keeps the entries read so far.

        Args:
            first: the page that `first_page` described and that another command has read. None reads the first page.

        Raises:
            LogRolledBack: the log has lost entries that were read. Discard this object and make another.
            CursorTrimmed: entries that the context needs were trimmed, and no compaction stands in their place.
            StreamError: as for `Session.read`.
            Unavailable: as for `Session.read`.
        """
        async with self._one_at_a_time:
            try:
                if not self._is_loaded or not await self._continue(first):
                    await self._load()
                require_whole(self._context, self._gap)
            except (LogRolledBack, CursorTrimmed, ArchiveDamaged):
                self.is_stale = True
                raise
            return self.snapshot

    async def store(self) -> None:
        """Store the extension lane's fold, if the stored fold is at least `store_every` positions old.

        A cold start then reads fewer entries. Errors are ignored.
        """
        if self._cursor.position - self._stored < self._store_every or not self.is_whole:
            return  # a fold that misses trimmed entries must not be stored
        expected, self._stored = self._stored, self._cursor.position
        state = STATUS.dump(self._status)
        try:
            await self.session.save_projection(
                STATUS.name, STATUS.version, state, cursor=self._cursor, expected=expected
            )
        except BusError:
            self._stored = expected

    async def _continue(self, first: FirstPage | None) -> bool:
        """Read the new entries. Return False if entries that were folded, or that are new, can no longer be read."""
        gone = self._gone
        try:
            await self._read_on(first)
        except EntriesMissing:
            raise
        except CursorTrimmed:
            return False
        return self._gone <= gone

    async def _read_on(self, first: FirstPage | None = None) -> None:
        pages = self.session.pages(kinds=_WANTED, after=self._cursor, first=first)
        async with aclosing(pages):
            async for page in pages:
                for envelope in page.envelopes:
                    self._snapshot = None
                    if envelope.lane is Lane.LLM:
                        self._context = evolve(self._context, envelope)
                    elif envelope.position > self._forked:
                        self._status = STATUS.evolve(self._status, envelope)
                self._cursor = page.cursor
                self.size_bytes += page.size_bytes
                if page.head is not None:
                    self._note(page.head)

    def _note(self, head: SessionHead) -> None:
        """Remember which entries can no longer be read."""
        if head.trimmed > self._trimmed:
            self._trimmed, self._snapshot = head.trimmed, None
        self._gone = max(self._gone, unreadable_up_to(self.session, head))

    async def _load(self) -> None:
        """Read the whole session, and again if entries were trimmed meanwhile."""
        self._is_loaded = False
        while not self._is_loaded:
            self._begin_with(Context(self.session.id), Status(), START)
            self._gap, self.is_whole = None, True
            head = await self.session.head()
            self._note(head)
            gone = self._gone
            await self._load_from(head)
            self._is_loaded = self._gone <= gone

    async def _load_from(self, head: SessionHead) -> None:
        """Read the whole session. The extension lane is read from its stored state, or else after its trimmed part."""
        self._forked = head.own_start.position
        stored = await self.session.load_projection(STATUS.name, STATUS.version)
        self._stored = stored.position if stored is not None else 0
        try:
            if stored is not None and await self._begin(STATUS.state.validate_json(stored.state), stored.cursor, head):
                return
        except ValidationError:
            pass  # written by another version of the package
        except EntriesMissing:
            raise
        except CursorTrimmed:  # entries after the stored state were trimmed
            self._begin_with(Context(self.session.id), Status(), START)
        try:
            await self._read_on()
        except EntriesMissing:
            raise
        except CursorTrimmed:
            # If only the extension lane was trimmed, the context is still complete. So it is after a compaction.
            if self._cursor != START or not await self._begin(Status(), head.cursor_at(head.trimmed), head):
                raise
            self.is_whole = False

    async def _begin(self, status: Status, cursor: Cursor, head: SessionHead) -> bool:
        """Fold the LLM lane up to `cursor`, then both lanes after `cursor`, starting from `status`.

        Return False if `cursor` is from another incarnation of the log.

        Raises:
            CursorTrimmed: entries after `cursor` were trimmed.
        """
        try:
            context, self._gap = await fold_kept(self.session, until=cursor.position)
        except LogRolledBack:
            return False
        self._begin_with(context, status, cursor, head.size_bytes)
        try:
            await self._read_on()
        except LogRolledBack:
            self._begin_with(Context(self.session.id), Status(), START)
            return False
        return True

    def _begin_with(self, context: Context, status: Status, cursor: Cursor, size_bytes: int = 0) -> None:
        self._context, self._status, self._cursor, self._snapshot = context, status, cursor, None
        self.size_bytes = size_bytes


class SessionCache:
    """The most recently used sessions.

    A session with a running task belongs to the task and is not in the cache, so it is never evicted. At the bound the
    least recently used sessions are evicted; they are read again when needed.
    """

    def __init__(self, open_session: OpenSession, bounds: WorkerBounds = DEFAULT_WORKER_BOUNDS) -> None:
        self._open, self._bounds = open_session, bounds
        self._idle = RecentSessions[CachedSession](
            bounds.warm_sessions, bounds.warm_bytes, sweep_seconds=bounds.warm_sweep_seconds
        )

    def __len__(self) -> int:
        return len(self._idle)

    @property
    def sessions(self) -> list[str]:
        """The ids of the cached sessions."""
        return list(self._idle)

    @contextmanager
    def held(self, session: str, agent: str | None = None) -> Generator[CachedSession]:
        """Take a session out of the cache for the length of the block, and put it back afterwards.

        `agent` is used only for a session that is not in the cache: the agent that the session belongs to if it is new.
        None means the default agent.

        If the block ends with an error other than `Unavailable`, the session is discarded and read from its start next
        time. If two blocks hold the same session, each block has its own copy, and the copy of the block that ends last
        is kept.
        """
        idle = self._idle.pop(session)
        warm = idle or CachedSession(self._open(session, agent=agent), store_every=self._bounds.store_every)
        is_good = True
        try:
            yield warm
        except Exception as error:
            is_good = isinstance(error, Unavailable)
            raise
        finally:  # also if cancelled: entries read so far are kept
            if is_good and not warm.is_stale:
                self._keep(session, warm)

    def first_page(self, session: str) -> FirstPage | None:
        """Return `CachedSession.first_page` of a cached session; None if the session is not in the cache."""
        warm = self._idle.get(session)
        return None if warm is None else warm.first_page()

    async def catch_up(self, session: str) -> None:
        """Read the new entries of a cached session. Errors are ignored: the next `held` block reads again and raises
        them."""
        warm = self._idle.get(session)
        if warm is None:
            return
        try:
            await warm.refresh()
        except Exception as error:  # noqa: BLE001  # other sessions continue
            is_good = isinstance(error, Unavailable)
        else:
            is_good = True
        if self._idle.get(session) is warm:  # `held` has not removed it meanwhile
            self._idle.pop(session)
            if is_good:
                self._keep(session, warm)

    async def sweep(self, log: Log) -> None:
        """Drop the sessions that were erased. Raises the errors of `RecentSessions.sweep`."""
        await self._idle.sweep(log)

    def _keep(self, session: str, warm: CachedSession) -> None:
        self._idle.keep(session, warm, warm.size_bytes + ENTRY_BYTES * len(warm.snapshot.context.entries))
