"""What an agent is handed: a session to work on, and the lease under which it may write."""

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext

from bus.envelope import Cursor
from bus.errors import Conflict, Fenced
from bus.log import Lease
from bus.messages.reading import Publishable
from bus.messages.turn import TurnId
from bus.receipt import Receipt
from bus.session import Session
from bus.spoken import OpenMessage
from handlers.agent.bounds import DEFAULT_RUN_BOUNDS, RunBounds
from handlers.agent.preview import Preview
from handlers.agent.slots import Place
from handlers.agent.warm import View, WarmSession

__all__ = ("Agent", "Run", "View")


class Run:
    """One run of an agent in a session. Whatever it publishes carries the lease's epoch and rings no worker."""

    def __init__(
        self,
        session: Session,
        lease: Lease,
        warm: WarmSession | None = None,
        *,
        place: Place | None = None,
        bounds: RunBounds = DEFAULT_RUN_BOUNDS,
    ) -> None:
        """
        Args:
            warm: what is known of the session, if it is kept warm; else it is read when it is asked for.
            place: the one this run has among those of its worker.
        """
        self.session, self.lease, self.bounds = session, lease, bounds
        self._warm, self._place = warm or WarmSession(session), place
        self._position = 0
        """of the last entry we know of"""
        self._seen = 0
        """up to here everything was read, or is our own"""
        self._others = 0
        """up to here there may be entries of others"""
        self._preview: Preview | None = None
        self._is_primed = self._is_finished = False
        self.is_deposed = False
        """something was refused because the lease is lost"""

    @property
    def view(self) -> View:
        """The session as of the last refresh; empty before the first."""
        return self._warm.view

    @property
    def position(self) -> int:
        """Up to where the session was read, or is known to be this run's own."""
        return self._seen

    async def refresh(self) -> View:
        """The session as of now, both lanes read in one step.

        Raises:
            LogRolledBack: the log has lost what this run has seen.
            StreamError, Unavailable: as reading the session does.
        """
        self._is_finished = False
        view = self._warm.view if self._is_primed else await self._warm.refresh()
        self._is_primed = False
        if self._warm.cursor.position > self._seen:
            self._others = self._seen = self._warm.cursor.position
        self._position = max(self._position, self._seen)
        return view

    @property
    def is_finished(self) -> bool:
        """Its agent has left nothing to do, and nobody else has appended since it looked: there is no need to look
        again. What comes from now on rings."""
        return self._is_finished and self._seen == self._position

    def finish(self, decided_at: int) -> None:
        """Say that nothing is left to do, unless others have appended since.

        Args:
            decided_at: the position of the view that this follows from. What was read behind it, such as a word for
                later that came while the model spoke, has not been considered.
        """
        self._is_finished = self._others <= decided_at

    def prime(self) -> None:
        """The next refresh, if nothing is published before it, gives what the last one gave: whoever calls the agent
        has just looked, and looks again when it is over."""
        self._is_primed = True

    async def open_messages(self) -> list[OpenMessage]:
        """The messages that are being spoken in the session; as of the last refresh, those of earlier leases. Nobody is
        asked where the loop is over, or none began: whoever spoke before us did so in a loop.

        Raises:
            Unavailable: the server cannot be reached.
        """
        loop = self._warm.view.status.loop
        is_quiet = self._warm.is_whole if loop is None else loop.ended is not None
        return [] if self._seen and is_quiet else await self.session.open_messages()

    async def wait_rung(self) -> None:
        """Wait until somebody speaks to the session, or commands it, after the last refresh. It may return without:
        then nothing is new after a refresh.

        Raises:
            Closed: the bus was closed.
            Unavailable: the server cannot be reached at the start; later it is waited for.
        """
        self._is_primed = False
        await self.session.wait_rung(Cursor(self._seen))

    def idle(self) -> AbstractAsyncContextManager[None]:
        """For the length of the block this run only waits: its worker may work on another session in its place. At its
        end there may be none free, and one is waited for."""
        return nullcontext() if self._place is None else self._place.lent()

    @contextmanager
    def showing(self, preview: Preview) -> Generator[None, None, None]:
        """For the length of the block, what this run publishes stands behind the pieces that were added before it."""
        self._preview = preview
        try:
            yield
        finally:
            self._preview = None

    async def cut_preview(self, message_id: str, turn_id: TurnId, reason: str) -> None:
        """End what is shown of a message, without one. A failure goes no further."""
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
        if self._preview is not None:
            await self._preview.flush()
        try:
            receipt = await self.session.publish(
                *messages, key=key, epoch=self.lease.epoch, wake=False, seconds=self.bounds.publish
            )
        except Fenced:
            self.is_deposed = True
            raise
        self._note(receipt)
        return receipt

    async def publish_at(self, build: Callable[[int], Sequence[Publishable]], *, key: str) -> Receipt:
        """Append messages that name their own positions, in one step.

        Args:
            build: gives the messages, told the position of the first. It is called again whenever somebody else was
                faster, so it must not do anything else.

        Raises:
            Fenced: the lease is lost.
            Conflict: somebody else was faster each time.
            BusError: as for `Session.publish`.
        """
        if self._preview is not None:
            await self._preview.flush()
        for attempt in range(self.bounds.tries):
            try:
                receipt = await self.session.publish(
                    *build(self._position + 1),
                    key=key,
                    expected=self._position,
                    epoch=self.lease.epoch,
                    wake=False,
                    seconds=self.bounds.publish,
                )
            except Conflict as conflict:
                self._position = conflict.found
                if attempt == self.bounds.tries - 1:
                    raise
            except Fenced:
                self.is_deposed = True
                raise
            else:
                self._note(receipt)
                return receipt
        raise AssertionError

    def _note(self, receipt: Receipt) -> None:
        self._is_primed = self._is_finished = False
        self._position = max(self._position, receipt.position)
        if receipt.positions[0] == self._seen + 1:  # nobody spoke in between
            self._seen = receipt.position


Agent = Callable[[Run], Awaitable[None]]
"""Works on a session until there is nothing more to do for it. It may be cancelled at any await, and may find that an
earlier run of it died at any await: the log says how far it got."""
