"""The argument of an agent: a session, and the lease under which it may write; and the seam for traces of its work."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from io import StringIO
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import anyio

from lanebus.bus import Lease, OpenMessage, Redaction, Session, Tracing
from lanebus.bus.errors import BusError, Conflict, Fenced, MessageError, RedactionFailed
from lanebus.bus.messages import (
    AgentEnded,
    AgentStarted,
    AssistantMessage,
    Delta,
    ExtensionMessage,
    LlmMessage,
    Publishable,
    ToolCallBlock,
    ToolResultMessage,
    TurnEnded,
    TurnId,
    TurnStarted,
    Usage,
    parse_event,
)
from lanebus.bus.text import split_half, whole_text
from lanebus.bus.wire import START, Cursor, Envelope, Receipt
from lanebus.handlers.agent.bounds import DEFAULT_RUN_BOUNDS, PreviewBounds, RunBounds
from lanebus.handlers.agent.health import (
    LogContext,
    LoopBegun,
    LoopEnded,
    LoopResumed,
    ModelFailed,
    TurnDone,
    WorkerCounts,
    write_event,
)
from lanebus.handlers.agent.models.model import Model, ModelRequest, failure_of
from lanebus.handlers.agent.tasks import SyncCalls
from lanebus.handlers.agent.turn.loop_state import CachedSession, SessionSnapshot, unread_prompts
from lanebus.handlers.providers import Piece


class CallRecord(Protocol):
    """A model call that is being recorded."""

    def began(self) -> None:
        """Record that the first piece of the answer has arrived. Repeated calls do nothing."""
        ...

    def ended(self, message: AssistantMessage) -> None:
        """Record the answer, whole or cut."""
        ...


class ToolRecord(Protocol):
    """A tool call that is being recorded."""

    def ended(self, result: ToolResultMessage) -> None:
        """Record the result."""
        ...


@runtime_checkable
class AgentTracing(Protocol):
    """Records what an agent does. If the `Tracing` of a bus implements this protocol too, `AgentLoop` uses it.

    If the context manager of `calling` or `executing` yields None, the call is not recorded.
    """

    def invoking(self, agent: str, session: str, model: Model) -> AbstractContextManager[None]:
        """Record a run of an agent for the length of the block.

        Args:
            agent: the agent's name.
            session: id of the session.
            model: the model that the agent calls.
        """
        ...

    def calling(self, model: Model, request: ModelRequest) -> AbstractContextManager[CallRecord | None]:
        """Record a model call for the length of the block."""
        ...

    def executing(self, call: ToolCallBlock, description: str) -> AbstractContextManager[ToolRecord | None]:
        """Record a tool call for the length of the block.

        Args:
            call: the model's call.
            description: the tool's description for the model.
        """
        ...


class _NoAgentTracing:
    """Records nothing."""

    def invoking(self, agent: str, session: str, model: Model) -> AbstractContextManager[None]:
        del agent, session, model
        return nullcontext()

    def calling(self, model: Model, request: ModelRequest) -> AbstractContextManager[CallRecord | None]:
        del model, request
        return nullcontext()

    def executing(self, call: ToolCallBlock, description: str) -> AbstractContextManager[ToolRecord | None]:
        del call, description
        return nullcontext()


_NONE: AgentTracing = _NoAgentTracing()


class _RedactedTracing:
    """Passes on answers and results as they are stored. Requests and calls come from the log, so they are redacted."""

    def __init__(self, tracing: AgentTracing, redaction: Redaction) -> None:
        self._tracing, self._redaction = tracing, redaction

    def invoking(self, agent: str, session: str, model: Model) -> AbstractContextManager[None]:
        return self._tracing.invoking(agent, session, model)

    @contextmanager
    def calling(self, model: Model, request: ModelRequest) -> Generator[CallRecord | None, None, None]:
        with self._tracing.calling(model, request) as record:
            yield None if record is None else _RedactedCall(record, self._redaction)

    @contextmanager
    def executing(self, call: ToolCallBlock, description: str) -> Generator[ToolRecord | None, None, None]:
        with self._tracing.executing(call, description) as record:
            yield None if record is None else _RedactedTool(record, self._redaction)


class _RedactedCall:
    def __init__(self, record: CallRecord, redaction: Redaction) -> None:
        self._record, self._redaction = record, redaction
        self.began = record.began

    def ended(self, message: AssistantMessage) -> None:
        self._record.ended(_redacted(message, self._redaction))


class _RedactedTool:
    def __init__(self, record: ToolRecord, redaction: Redaction) -> None:
        self._record, self._redaction = record, redaction

    def ended(self, result: ToolResultMessage) -> None:
        self._record.ended(_redacted(result, self._redaction))


M = TypeVar("M", AssistantMessage, ToolResultMessage)


def _redacted(message: M, redaction: Redaction) -> M:
    """Return a message as it is stored; without content if the `redact` function fails, which fails its publish too."""
    try:
        return redaction.message(message)
    except RedactionFailed:
        if isinstance(message, ToolResultMessage):
            return message.model_copy(update={"content": (), "structured": None})
        return message.model_copy(update={"content": ()})


def agent_tracing(tracing: Tracing, redaction: Redaction) -> AgentTracing:
    """Return `tracing` if it also records agents, otherwise an `AgentTracing` that records nothing."""
    if not isinstance(tracing, AgentTracing):
        return _NONE
    return _RedactedTracing(tracing, redaction) if redaction.is_active else tracing


def loop_messages(snapshot: SessionSnapshot) -> list[Publishable]:
    """Return the messages that the next run answers. The message that began the open loop comes first.

    A worker that takes a loop over gets the same first message as the worker that began the loop. If that message is no
    longer in the context, such as after a compaction, the loop's oldest answer takes its place.
    """
    path, state = snapshot.context.path, snapshot.loop_state
    found: dict[int, Publishable] = {}
    if state.loop_id is not None:
        for envelope in _beginning(path, state.loop_id):
            _add(found, envelope)
    if state.prompts:
        wanted, first = frozenset(state.prompts), min(state.prompts)
        unread: list[Envelope] = []
        for envelope in reversed(path):
            if envelope.position < first:
                break
            if envelope.position in wanted:
                unread.append(envelope)
        for envelope in reversed(unread):
            _add(found, envelope)
    return [*found.values()]


def _beginning(path: Sequence[Envelope], loop_id: str) -> tuple[Envelope, ...]:
    """Return the prompts that the loop's first turn answered, else the loop's oldest message; empty before it."""
    oldest: int | None = None
    for index in range(len(path) - 1, -1, -1):
        message = path[index].message
        if not isinstance(message, LlmMessage) or path[index].is_imported:
            continue
        if message.turn_id is not None and message.turn_id.loop_id == loop_id:
            oldest = index
        elif message.turn_id is not None or isinstance(message, AssistantMessage):
            break  # of an earlier loop
    if oldest is None:
        return ()
    return unread_prompts(path, oldest) or (path[oldest],)


def _add(found: dict[int, Publishable], envelope: Envelope) -> None:
    if isinstance(envelope.message, LlmMessage):
        found.setdefault(envelope.position, envelope.message)


# The argument of an agent: a session, and the lease under which the agent may write. It previews and is observed.


# The live preview of an answer: joins small pieces into deltas and sends the deltas from a separate task.

_log = logging.getLogger(__name__)


class _Previewing(Protocol):
    async def preview(self, *deltas: Delta, epoch: int | None = None, seconds: float = ...) -> None: ...


class _Run(NamedTuple):
    """Consecutive pieces of one block."""

    first: Piece
    text: StringIO

    def is_continued_by(self, piece: Piece) -> bool:
        return (piece.kind, piece.block) == (self.first.kind, self.first.block)


class Preview:
    """The preview of one message. At any time, it shows the beginning of the message without gaps.

    `add` never blocks: pieces that cannot be sent yet are joined with the next pieces, so the buffer is no larger than
    the message. If a piece cannot be sent at all, the preview ends before this piece; the whole message follows.
    """

    def __init__(
        self,
        session: _Previewing,
        message_id: str,
        turn_id: TurnId | None,
        *,
        epoch: int | None = None,
        bounds: PreviewBounds = DEFAULT_RUN_BOUNDS.preview,
        begin: Callable[["Preview"], None] | None = None,
    ) -> None:
        """
        Args:
            epoch: the epoch of the lease. Once the lease is lost, the server refuses deltas.
            begin: called at the first piece to start `run`, so that a message without pieces needs no task.
        """
        self._begin, self._bounds = begin, bounds
        self._session, self._message_id, self._turn_id, self._epoch = session, message_id, turn_id, epoch
        self._runs: list[_Run] = []
        self._halves: dict[int, str] = {}
        """block → the first half of a surrogate pair that ended the block's last piece"""
        self._characters, self._unsent_characters = 0, 0
        self._added, self._shown = 0, 0
        """number of pieces that were added, and of pieces that were sent or dropped"""
        self._is_over = self._is_ended = False
        self._some, self._hurry, self._moved = anyio.Event(), anyio.Event(), anyio.Event()
        self._sending = anyio.CancelScope(shield=True)

    def add(self, piece: Piece) -> None:
        """Show a piece with the next delta. Half a character at its end is shown with the block's next piece."""
        text, half = split_half(self._halves.pop(piece.block, "") + piece.text)
        if half:
            self._halves[piece.block] = half
        self._characters += len(text)
        if self._is_over or self._characters > self._bounds.shown_characters:
            self._is_over = True
            return
        if not (self._runs and self._runs[-1].is_continued_by(piece)):
            self._runs.append(_Run(piece, StringIO()))
        self._runs[-1].text.write(whole_text(text))
        self._added += 1
        if self._begin is not None:
            self._begin(self)
            self._begin = None
        self._unsent_characters += len(text)
        self._some.set()
        if self._unsent_characters >= self._bounds.flush_characters or piece.tool_name is not None:
            self._hurry.set()

    async def flush(self) -> None:
        """Wait up to `PreviewBounds.end_seconds` until all pieces so far are sent or dropped. `run` must be running."""
        goal = self._added
        if self._shown >= goal:
            return
        with anyio.move_on_after(self._bounds.end_seconds):
            while self._shown < goal:
                self._hurry.set()
                await self._moved.wait()

    async def cut(self, reason: str) -> None:
        """End the preview of a message that is not published. Errors are only logged."""
        delta = Delta(kind="cut", message_id=self._message_id, turn_id=self._turn_id, delta=reason)
        try:
            await self._session.preview(delta, epoch=self._epoch, seconds=self._bounds.end_seconds)
        except BusError as error:
            _log.debug("the preview of %s has no end: %s", self._message_id, error)

    async def run(self) -> None:
        """Send pieces until `end` is called.

        While pieces are in flight, `run` is shielded from cancellation. Otherwise pieces could arrive after the end of
        the message, and the message would count as open again.
        """
        with self._sending:
            while not self._is_ended:
                await self._some.wait()
                with anyio.move_on_after(self._bounds.pause_seconds):
                    await self._hurry.wait()
                await self._send()

    def end(self) -> None:
        """Send no more pieces, and make `run` end. Pieces in flight have `PreviewBounds.end_seconds` to arrive."""
        self._is_over = self._is_ended = True
        self._runs.clear()
        self._some.set()
        self._hurry.set()
        self._sending.deadline = anyio.current_time() + self._bounds.end_seconds

    async def _send(self) -> None:
        shown, runs, self._runs, self._unsent_characters = self._added, self._runs, [], 0
        self._some, self._hurry = anyio.Event(), anyio.Event()
        if not runs:
            return
        try:
            await self._session.preview(*self._deltas(runs), epoch=self._epoch, seconds=self._bounds.answer_seconds)
        except BusError as error:
            _log.debug("the preview of %s ends here: %s", self._message_id, error)
            self._is_over = True
            self._runs, shown = [], self._added
        self._shown = shown
        self._moved.set()
        self._moved = anyio.Event()

    def _deltas(self, runs: Sequence[_Run]) -> Iterator[Delta]:
        size = self._bounds.delta_characters
        for first, buffer in runs:
            text = buffer.getvalue()
            for start in range(0, max(len(text), 1), size):
                yield Delta(
                    kind=first.kind,
                    message_id=self._message_id,
                    turn_id=self._turn_id,
                    delta=text[start : start + size],
                    block=first.block,
                    tool_name=whole_text(first.tool_name) if first.tool_name and start == 0 else None,
                )


@asynccontextmanager
async def open_preview(
    session: _Previewing,
    message_id: str,
    turn_id: TurnId,
    *,
    epoch: int | None = None,
    bounds: PreviewBounds = DEFAULT_RUN_BOUNDS.preview,
) -> AsyncGenerator[Preview, None]:
    """Open a preview for the length of the block. At the end of the block, all pieces have been sent or dropped.

    The block must not raise: its errors would be wrapped in an exception group.
    """
    async with anyio.create_task_group() as tasks:

        def begin(preview: Preview) -> None:
            tasks.start_soon(preview.run)

        preview = Preview(session, message_id, turn_id, epoch=epoch, bounds=bounds, begin=begin)
        try:
            yield preview
            # No piece may be sent after the whole message.
            await preview.flush()
        finally:
            preview.end()


_KINDS = frozenset({AgentStarted.KIND, AgentEnded.KIND, TurnStarted.KIND, TurnEnded.KIND})


class RunObserver:
    """Logs and counts the loops and turns that one run appends. An event that cannot be read is ignored."""

    def __init__(
        self,
        context: LogContext,
        counts: WorkerCounts,
        note_append: Callable[[], None] | None = None,
        *,
        loop_id: str = "",
    ) -> None:
        """
        Args:
            context: fields of the logged events; gets the turn, and the agent of the first loop if it has none.
            counts: counts loops, turns, tokens and cost.
            note_append: called after each append; None calls nothing.
            loop_id: the session's newest loop that this worker has begun or resumed; "" if there is none.
        """
        self.loop_id = loop_id
        """id of the session's newest loop that this worker has begun or resumed"""
        self._context, self._counts, self._note_append = context, counts, note_append
        self._began: dict[str, float] = {}
        """when the open loop and turn began, by their ids"""
        self._model = ""
        """the model of the last answer"""

    def continues(self, loop_id: str, position: int) -> None:
        """Log that an open loop is resumed, unless this worker has begun or resumed it before.

        Args:
            loop_id: the loop.
            position: the session's last position.
        """
        if loop_id != self.loop_id:
            self.loop_id = loop_id
            write_event(_log, LoopResumed(loop=loop_id, position=position), self._context)

    def appended(self, messages: Sequence[Publishable]) -> None:
        """Log and count messages that were added to the session, in their order."""
        if self._note_append is not None:
            self._note_append()
        for message in messages:
            if isinstance(message, AssistantMessage):
                self._answered(message)
            elif isinstance(message, ExtensionMessage) and message.kind in _KINDS:
                try:
                    event = parse_event(message)
                except MessageError:
                    continue
                match event:
                    case AgentStarted(loop_id=loop_id, agent=agent):
                        self._context.agent, self.loop_id = self._context.agent or agent, loop_id
                        self._begin(loop_id)
                        write_event(_log, LoopBegun(loop=loop_id), self._context)
                    case TurnStarted(turn_id=turn_id):
                        self._context.turn = str(turn_id)
                        self._begin(str(turn_id))
                    case TurnEnded(turn_id=turn_id):
                        self._end_turn(turn_id, event)
                    case AgentEnded():
                        self._end_loop(event)
                    case _:
                        pass

    def _begin(self, what: str) -> None:
        self._began[what] = anyio.current_time()

    def _seconds(self, what: str) -> float | None:
        began = self._began.pop(what, None)
        return None if began is None else anyio.current_time() - began

    def _answered(self, message: AssistantMessage) -> None:
        self._model = model = message.model or ""
        if not model and not message.provider:
            return  # an empty answer that only marks the end of a loop
        if message.usage is not None:
            self._count_usage(model, message.usage)
        if message.stop_reason == "error":
            failure = failure_of(message)
            status = None if failure is None else failure.status
            self._counts.model_failures.add(model, "" if status is None else str(status))
            is_transient = failure is not None and failure.is_transient
            failed = ModelFailed(provider=message.provider or "", model=model, status=status, is_transient=is_transient)
            write_event(_log, failed, self._context)

    def _count_usage(self, model: str, usage: Usage) -> None:
        counts = self._counts
        kinds = {
            "input": usage.input,
            "output": usage.output,
            "cache_read": usage.cache_read,
            "cache_write": usage.cache_write,
        }
        for kind, tokens in kinds.items():
            if tokens > 0:  # counts come from the provider unchecked
                counts.tokens.add(model, kind, amount=tokens)
        if usage.input > 0 or usage.cache_read > 0:
            counts.prompts.add(model, "hit" if usage.cache_read > 0 else "miss")
        if usage.cost is not None and usage.cost.total > 0:
            counts.cost.add(model, amount=float(usage.cost.total))

    def _end_turn(self, turn_id: TurnId, event: TurnEnded) -> None:
        self._context.turn = str(turn_id)
        self._counts.turns.add(self._context.agent, self._model, event.stop_reason)
        if (seconds := self._seconds(str(turn_id))) is not None:
            self._counts.turn_seconds.add(seconds)
        done = TurnDone(reason=event.stop_reason, model=self._model, tokens=event.usage.total_tokens)
        write_event(_log, done, self._context)
        self._context.turn = ""

    def _end_loop(self, event: AgentEnded) -> None:
        self._counts.loops.add(self._context.agent, event.stop_reason)
        seconds = self._seconds(event.loop_id)
        ended = LoopEnded(
            loop=event.loop_id,
            reason=event.stop_reason,
            turns=event.turns,
            tokens=event.usage.total_tokens,
            seconds=None if seconds is None else round(seconds, 3),
        )
        write_event(_log, ended, self._context)


class Run:
    """One run of an agent in a session. Each publish carries the lease's epoch and wakes no worker."""

    def __init__(
        self,
        session: Session,
        lease: Lease,
        cache: CachedSession | None = None,
        *,
        is_read: bool = False,
        waiting: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
        bounds: RunBounds = DEFAULT_RUN_BOUNDS,
        observer: RunObserver | None = None,
        sync_calls: SyncCalls | None = None,
    ) -> None:
        """
        Args:
            session: the session to work on.
            lease: the session's lease.
            cache: the session's folds; None reads them at the first refresh.
            is_read: whether `cache` was refreshed under this lease.
            waiting: makes the context manager of `idle`; within its block, a worker uses the run's slot for another
                session.
            bounds: limits and periods.
            observer: sees what the run appends. None logs its loops and turns, and counts them for no one.
            sync_calls: runs sync tools, and is shared by all runs of a worker; None makes one for this run.
        """
        self._observer = observer or RunObserver(LogContext(session=session.id, agent=lease.agent), WorkerCounts())
        self.session, self.lease, self.bounds = session, lease, bounds
        self._cache, self._waiting = cache or CachedSession(session), waiting
        self.sync_calls = sync_calls or SyncCalls(bounds)
        """runs sync tools"""
        self._end = START
        """position of the last known entry"""
        self._read_up_to = 0
        """entries up to here were read, or appended by this run"""
        self._others = 0
        """position up to which entries of other clients are known; this run appended every known entry after it"""
        self._preview: Preview | None = None
        self.tracing: AgentTracing = agent_tracing(session.resources.tracing, session.resources.redaction)
        """records what the agent does"""
        self.is_lease_lost = False
        """an append was refused because the lease was lost"""
        if is_read:
            self._note_read()

    @property
    def snapshot(self) -> SessionSnapshot:
        """The session's state as of the latest refresh; an empty state if there was no refresh yet."""
        return self._cache.snapshot

    @property
    def position(self) -> int:
        """Entries up to this position were read, or appended by this run."""
        return self._read_up_to

    async def refresh(self) -> SessionSnapshot:
        """Read the new entries of both lanes in one step, and return the session as of now.

        Raises:
            LogRolledBack: the log has lost entries that this run has read.
            StreamError: as for `Session.read`.
            Unavailable: as for `Session.read`.
        """
        snapshot = await self._cache.refresh()
        self._note_read()
        return snapshot

    def is_unchanged_since(self, position: int) -> bool:
        """Whether this run appended all those entries after `position` that it has read or appended.

        True means that no other client changed the session in between. Entries that the run has not read yet do not
        matter, because the appends of such entries wake a worker.

        Args:
            position: a value that `Run.position` had before.
        """
        return self._others <= position and self._read_up_to == self._end.position

    async def open_messages(self) -> list[OpenMessage]:
        """Return the messages that are being streamed in the session.

        The list contains all messages that runs under earlier leases had left open at the last refresh. If no loop
        has begun, or the newest loop has ended, the list is empty and no request is made: only loops stream messages.

        Raises:
            Unavailable: the server cannot be reached.
        """
        loop = self.snapshot.status.loop
        is_quiet = self._cache.is_whole if loop is None else loop.ended is not None
        return [] if self._read_up_to and is_quiet else await self.session.open_messages()

    async def wait_for_wake_up(self) -> None:
        """Wait until a user or a command writes to the session after the last refresh. Spurious wake-ups are possible.

        Raises:
            Closed: the bus was closed.
            Unavailable: the server cannot be reached at the start. If the server fails later, the wait continues until
                it is back.
        """
        await self.session.wait_for_wake_up(Cursor(self._read_up_to))

    def idle(self) -> AbstractAsyncContextManager[None]:
        """Return a context manager for code that only waits.

        Within its block, the worker uses this run's slot for another session. The end of the block waits for a free
        slot.
        """
        return self._waiting()

    @contextmanager
    def showing(self, preview: Preview) -> Generator[None, None, None]:
        """Within the block, send the waiting pieces of `preview` before each message that this run publishes."""
        self._preview = preview
        try:
            yield
        finally:
            self._preview = None

    async def cut_preview(self, message_id: str, turn_id: TurnId, reason: str) -> None:
        """End the preview of a message without publishing the message. Errors are only logged."""
        preview = Preview(self.session, message_id, turn_id, epoch=self.lease.epoch, bounds=self.bounds.preview)
        await preview.cut(reason)

    async def publish(self, *messages: Publishable, key: str | None = None) -> Receipt:
        """Append messages in one step.

        Args:
            messages: one batch.
            key: idempotency key, unique in the session: a repeat after a crash adds nothing.

        Raises:
            Fenced: the lease was lost.
            BusError: as for `Session.publish`.
        """
        return await self._append(messages, key, None)

    async def publish_at(self, build: Callable[[int], Sequence[Publishable]], *, key: str) -> Receipt:
        """Append messages that contain their own positions, in one step.

        Args:
            build: returns the messages, given the position of the first. `build` is called again after each conflict,
                so repeated calls must be safe.
            key: idempotency key, as for `publish`.

        Raises:
            Fenced: the lease was lost.
            Conflict: other clients appended first, `RunBounds.publish_attempts` times.
            BusError: as for `Session.publish`.
        """
        for attempt in range(self.bounds.publish_attempts):
            try:
                return await self._append(build(self._end.position + 1), key, self._end)
            except Conflict as conflict:
                self._end = Cursor(conflict.found)
                if attempt == self.bounds.publish_attempts - 1:
                    raise
        raise AssertionError

    async def _append(self, messages: Sequence[Publishable], key: str | None, expected: Cursor | None) -> Receipt:
        if self._preview is not None:
            await self._preview.flush()
        try:
            receipt = await self.session.publish(
                *messages,
                key=key,
                expected=expected,
                epoch=self.lease.epoch,
                wake=False,
                seconds=self.bounds.publish_seconds,
            )
        except Fenced:
            self.is_lease_lost = True
            raise
        if not receipt.is_duplicate:
            self._observer.appended(messages)
        self._note_end(receipt.cursor)
        if receipt.positions[0] == self._read_up_to + 1:  # no other client appended in between
            self._read_up_to = receipt.position
        return receipt

    def _note_read(self) -> None:
        if self._cache.cursor.position > self._read_up_to:
            self._others = self._read_up_to = self._cache.cursor.position
        self._note_end(self._cache.cursor)

    def _note_end(self, cursor: Cursor) -> None:
        if cursor.position >= self._end.position:
            self._end = cursor


Agent = Callable[[Run], Awaitable[None]]
"""An async function that works on a session until nothing is left to do. It may be cancelled at any await. An earlier
run may have died at any await: the log shows how far that run got."""


@runtime_checkable
class SnapshotAgent(Protocol):
    """An agent that starts from its worker's snapshot and returns the position at which nothing was left to do."""

    async def work_from(self, run: Run, snapshot: SessionSnapshot) -> int | None:
        """Work on the session, starting from `snapshot`, the run's newest snapshot.

        Returns:
            The position at which nothing was left to do, for `Run.is_unchanged_since`. None makes the worker read the
            session again.
        """
        ...
