"""What an agent is called with: a session to work on, and the lease under which it may write."""

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from typing import Protocol, runtime_checkable

from lanebus.bus.errors import Conflict, Fenced
from lanebus.bus.log.lease import Lease
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.previews.session_deltas import OpenMessage
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import Cursor
from lanebus.bus.wire.receipt import Receipt
from lanebus.handlers.agent.bounds import DEFAULT_RUN_BOUNDS, RunBounds
from lanebus.handlers.agent.cached_session import CachedSession
from lanebus.handlers.agent.decide.loop_state import SessionSnapshot
from lanebus.handlers.agent.turn.preview import Preview

__all__ = ("Agent", "Run", "SnapshotAgent")


class Run:
    """One run of an agent in a session. Every publish carries the lease's epoch and wakes no worker."""

    def __init__(
        self,
        session: Session,
        lease: Lease,
        cache: CachedSession | None = None,
        *,
        is_read: bool = False,
        waiting: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
        bounds: RunBounds = DEFAULT_RUN_BOUNDS,
    ) -> None:
        """
        Args:
            cache: the session's folds, if they are kept; else they are read at the first refresh.
            is_read: `cache` was refreshed under this lease.
            waiting: opened while the run only waits: its worker may use its slot for another session.
        """
        self.session, self.lease, self.bounds = session, lease, bounds
        self._cache, self._waiting = cache or CachedSession(session), waiting
        self._position = 0
        """of the last entry we know of"""
        self._read_up_to = 0
        """everything up to here was read, or is our own"""
        self._others = 0
        """entries of others lie at or below this position"""
        self._preview: Preview | None = None
        self.is_lease_lost = False
        """an append was refused because the lease is lost"""
        if is_read:
            self._note_read()

    @property
    def snapshot(self) -> SessionSnapshot:
        """The session as of the last refresh; empty before the first."""
        return self._cache.snapshot

    @property
    def position(self) -> int:
        """Everything up to here was read, or is this run's own."""
        return self._read_up_to

    async def refresh(self) -> SessionSnapshot:
        """Read what is new in both lanes, in one step, and return the session as of now.

        Raises:
            LogRolledBack: the log has lost entries that this run has read.
            StreamError, Unavailable: as reading the session does.
        """
        snapshot = await self._cache.refresh()
        self._note_read()
        return snapshot

    def is_unchanged_since(self, position: int) -> bool:
        """Whether only this run has appended after `position`, as far as it knows. Later appends wake a worker.

        Args:
            position: an earlier value of `position`.
        """
        return self._others <= position and self._read_up_to == self._position

    async def open_messages(self) -> list[OpenMessage]:
        """Return the messages that are being streamed in the session; as of the last refresh, those of earlier leases.
        The server is not asked if no loop began or the last one is over: messages are streamed in loops alone.

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
            Unavailable: the server cannot be reached at the start; later it is waited for.
        """
        await self.session.wait_for_wake_up(Cursor(self._read_up_to))

    def idle(self) -> AbstractAsyncContextManager[None]:
        """Open this while the run only waits: its worker may work on another session in its slot. At the end of the
        block it waits until a slot is free."""
        return self._waiting()

    @contextmanager
    def showing(self, preview: Preview) -> Generator[None, None, None]:
        """For the length of the block, send the pieces of a preview before what this run publishes after them."""
        self._preview = preview
        try:
            yield
        finally:
            self._preview = None

    async def cut_preview(self, message_id: str, turn_id: TurnId, reason: str) -> None:
        """End a message's preview without the message. A failure is logged only."""
        preview = Preview(self.session, message_id, turn_id, epoch=self.lease.epoch, bounds=self.bounds.preview)
        await preview.cut(reason)

    async def publish(self, *messages: Publishable, key: str | None = None) -> Receipt:
        """Append messages in one step.

        Args:
            key: names this step of this session for good: run again after a crash, it adds nothing.

        Raises:
            Fenced: the lease is lost.
            BusError: as for `Session.publish`.
        """
        return await self._append(messages, key, None)

    async def publish_at(self, build: Callable[[int], Sequence[Publishable]], *, key: str) -> Receipt:
        """Append messages that name their own positions, in one step.

        Args:
            build: returns the messages for the position of the first. It is called again after each conflict, so it
                must have no other effect.

        Raises:
            Fenced: the lease is lost.
            Conflict: another client appended first at every try.
            BusError: as for `Session.publish`.
        """
        for attempt in range(self.bounds.tries):
            try:
                return await self._append(build(self._position + 1), key, self._position)
            except Conflict as conflict:
                self._position = conflict.found
                if attempt == self.bounds.tries - 1:
                    raise
        raise AssertionError

    async def _append(self, messages: Sequence[Publishable], key: str | None, expected: int | None) -> Receipt:
        if self._preview is not None:
            await self._preview.flush()
        try:
            receipt = await self.session.publish(
                *messages, key=key, expected=expected, epoch=self.lease.epoch, wake=False, seconds=self.bounds.publish
            )
        except Fenced:
            self.is_lease_lost = True
            raise
        self._position = max(self._position, receipt.position)
        if receipt.positions[0] == self._read_up_to + 1:  # no entry of others lies in between
            self._read_up_to = receipt.position
        return receipt

    def _note_read(self) -> None:
        if self._cache.cursor.position > self._read_up_to:
            self._others = self._read_up_to = self._cache.cursor.position
        self._position = max(self._position, self._read_up_to)


Agent = Callable[[Run], Awaitable[None]]
"""Works on a session until nothing is left to do in it. It may be cancelled at any await, and may find that an earlier
run of it died at any await: the log says how far that one got."""


@runtime_checkable
class SnapshotAgent(Protocol):
    """An agent that starts from a snapshot which its worker has read already, and says how far it looked."""

    async def work_from(self, run: Run, snapshot: SessionSnapshot) -> int | None:
        """Work on the session as of `snapshot`, the run's newest.

        Returns:
            The position at which nothing was left to do, for `Run.is_unchanged_since`. None: look again.
        """
        ...
