"""What an agent is handed: a session to work on, and the lease under which it may write."""

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager, nullcontext
from typing import NamedTuple

from bus.envelope import START, Cursor
from bus.errors import Conflict
from bus.log import Lease
from bus.messages.message import UserMessage
from bus.messages.reading import Publishable
from bus.receipt import Receipt
from bus.session import Session
from handlers.agent.preview import Preview
from handlers.agent.status import STATUS, STATUS_KINDS, Status
from handlers.context.build import WarmContext
from handlers.context.fold import Context
from handlers.projections.projection import Projected, project

__all__ = ("Agent", "Run", "View")

PUBLISH_SECONDS = 60.0
"""An answer has cost money: it waits longer for a server than other messages do."""

_TRIES = 1_000


_RINGS = frozenset({"user", "control.*"})


class View(NamedTuple):
    """A session as its worker sees it: the LLM lane's fold and the extension lane's, up to the same place."""

    context: Context
    status: Status


class Run:
    """One run of an agent in a session. Whatever it publishes carries the lease's epoch and rings no worker."""

    def __init__(self, session: Session, lease: Lease, context: WarmContext | None = None) -> None:
        """
        Args:
            context: the session's, if it is kept warm; else one is read when it is asked for.
        """
        self.session, self.lease = session, lease
        self.context = context or WarmContext(session)
        self._position = 0
        """of the last entry we know of"""
        self._preview: Preview | None = None
        self._status: Projected[Status] | None = None
        self._seen: Cursor = START

    async def refresh(self) -> View:
        """The session as of now.

        Raises:
            LogRolledBack: the log has lost what this run has seen.
            StreamError, Unavailable: as reading the session does.
        """
        if self._status is None:
            self._status = await project(self.session, STATUS)
        else:
            state, cursor = self._status.state, self._status.cursor
            async with aclosing(self.session.read(kinds=STATUS_KINDS, after=cursor)) as entries:
                async for envelope in entries:
                    state, cursor = STATUS.evolve(state, envelope), envelope.cursor
            self._status = Projected(state, cursor)
        context = await self.context.refresh()
        self._seen = Cursor(max(context.position, self._status.position, self._position))
        return View(context, self._status.state)

    async def wait_rung(self) -> None:
        """Wait until somebody speaks to the session, or commands it, after the last refresh.

        Raises:
            StreamError, Unavailable: as following the session does.
        """
        async with aclosing(self.session.follow(kinds=_RINGS, after=self._seen)) as entries:
            async for envelope in entries:
                message = envelope.message
                if not (isinstance(message, UserMessage) and message.turn_id):  # which are our own notes to the model
                    return

    def idle(self) -> AbstractAsyncContextManager[None]:
        """For the length of the block this run only waits: its worker may work on another session in its place."""
        return nullcontext()

    @contextmanager
    def showing(self, preview: Preview) -> Generator[None, None, None]:
        """For the length of the block, what this run publishes stands behind the pieces that were added before it."""
        self._preview = preview
        try:
            yield
        finally:
            self._preview = None

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
        receipt = await self.session.publish(
            *messages, key=key, epoch=self.lease.epoch, wake=False, seconds=PUBLISH_SECONDS
        )
        self._position = max(self._position, receipt.position)
        return receipt

    async def publish_at(self, build: Callable[[int], Sequence[Publishable]], *, key: str) -> Receipt:
        """Append messages that name their own positions, in one step.

        Args:
            build: gives the messages, told the position of the first. It is called again whenever somebody else was
                faster, so it must not do anything else.

        Raises:
            Fenced: the lease is lost.
            Conflict: somebody else was faster a thousand times.
            BusError: as for `Session.publish`.
        """
        if self._preview is not None:
            await self._preview.flush()
        for attempt in range(_TRIES):
            try:
                receipt = await self.session.publish(
                    *build(self._position + 1),
                    key=key,
                    expected=self._position,
                    epoch=self.lease.epoch,
                    wake=False,
                    seconds=PUBLISH_SECONDS,
                )
            except Conflict as conflict:
                self._position = conflict.found
                if attempt == _TRIES - 1:
                    raise
            else:
                self._position = max(self._position, receipt.position)
                return receipt
        raise AssertionError


Agent = Callable[[Run], Awaitable[None]]
"""Works on a session until there is nothing more to do for it. It may be cancelled at any await, and may find that an
earlier run of it died at any await: the log says how far it got."""
