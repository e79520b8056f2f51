"""What an agent is handed: a session to work on, and the lease under which it may write."""

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager

from bus.errors import Conflict
from bus.log import Lease
from bus.messages.reading import Publishable
from bus.receipt import Receipt
from bus.session import Session
from handlers.agent.preview import Preview
from handlers.context.build import WarmContext

__all__ = ("Agent", "Run")

PUBLISH_SECONDS = 60.0
"""An answer has cost money: it waits longer for a server than other messages do."""

_TRIES = 1_000


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
