"""The argument of an agent: a session, and the lease under which the agent may write."""

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from typing import Protocol, runtime_checkable

from lanebus.bus.errors import Conflict, Fenced
from lanebus.bus.log.lease import Lease
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.previews.session_deltas import OpenMessage
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import START, Cursor
from lanebus.bus.wire.receipt import Receipt
from lanebus.handlers.agent.bounds import DEFAULT_RUN_BOUNDS, RunBounds
from lanebus.handlers.agent.cached_session import CachedSession
from lanebus.handlers.agent.decide.loop_state import SessionSnapshot
from lanebus.handlers.agent.run_observer import RunObserver
from lanebus.handlers.agent.tools.sync_calls import SyncCalls
from lanebus.handlers.agent.tracing import AgentTracing, agent_tracing
from lanebus.handlers.agent.turn.preview import Preview
from lanebus.handlers.monitoring.log_context import LogContext
from lanebus.handlers.monitoring.worker_counts import WorkerCounts

__all__ = ("Agent", "Run", "SnapshotAgent")


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
