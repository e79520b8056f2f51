"""Consumer groups on the index streams: which session has work, told to one worker at a time.

A pointer is only a bell. Whoever gets it looks into the session's log for what there is to do, so a bell rung twice
costs a look and does nothing else. Consumer groups are for workers, never for UIs.

    async with bus.consumer("agents", "worker-1", heartbeat=15) as consumer:
        works = await consumer.take(free)       no more than the worker has room for
        await consumer.keep()                   now and then: still at it
        await consumer.ack(*works)              done
"""

from __future__ import annotations

from contextlib import contextmanager
from math import isfinite
from typing import TYPE_CHECKING, Self

import anyio

from bus.errors import SetupError
from bus.group_log import GroupLog
from bus.taking import Taking
from bus.work import Hand, Work

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from types import TracebackType

    from bus.connection import Pool, Topology
    from bus.keys import Keys

__all__ = ("Consumer", "Work")


class Consumer:
    """One worker's place in a group. First its own pending work, then what is new, due again, or left by the dead.

    `take` is for one task at a time, all else for any. What is given is this consumer's until it is acknowledged, put
    off or set aside, or until it was silent for a heartbeat: then others are given it.
    """

    def __init__(self, topology: Topology, pool: Pool, keys: Keys, *, group: str, name: str, heartbeat: float) -> None:
        """See `Bus.consumer`."""
        if not isfinite(heartbeat) or heartbeat <= 0:
            raise SetupError(f"consumer: heartbeat is {heartbeat}, want more than 0 seconds")
        self.group, self.name, self.heartbeat = group, name, heartbeat
        self._log = GroupLog(pool, keys, group, name, heartbeat)
        self._hand = Hand()
        self._taking = Taking(topology, keys, self._log, self._hand, heartbeat)
        self._ready: list[Work] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def take(self, free: int) -> list[Work]:
        """What there is to do, as soon as there is some; a lost server is waited for.

        Nothing is read ahead: no more becomes pending with this consumer than it gives. Cancelled, it may leave some
        pending, which the next call begins with.

        Args:
            free: the most to give; 1 or more.

        Returns:
            1 to `free` works, those of a session in their order. One that is in hand already is not given again.

        Raises:
            SetupError: `free` is less than 1.
            Closed: the bus is closed.
        """
        if free < 1:
            raise SetupError(f"take: free is {free}, want 1 or more")
        self._taking.begin(free)
        while not self._ready:
            self._ready += await self._taking.turn(free)
        if len(self._ready) > free:  # see `Taking.turn`; others may have room for it
            await self._give_back(self._ready[free:])
            del self._ready[free:]
        works, self._ready = self._ready, []
        return works

    async def ack(self, *works: Work) -> None:
        """Done with them; nobody gets them again.

        Raises:
            Unavailable: the server cannot be reached; they may come again.
        """
        if works:
            with self._letting_go(works):
                await self._log.ack(works)

    async def keep(self, *works: Work) -> list[Work]:
        """Still at them: nobody takes them over for another heartbeat. A third of one is a good time between two calls.

        Args:
            works: none is all that was given and not done with.

        Returns:
            Those that are no longer this consumer's: it was silent for too long, and another one has them now.

        Raises:
            Unavailable: the server cannot be reached.
        """
        kept = works or tuple(self._hand.works())
        lost = await self._log.keep(kept) if kept else []
        self._hand.drop(lost)
        await self._taking.flush()
        await self._taking.beat()
        return lost

    async def retry(self, *works: Work, delay: float, error: str = "", attempts: int | None = None) -> None:
        """Put works off: after `delay` seconds any consumer of the group is given them. Nothing happens to what is no
        longer this consumer's.

        Args:
            error: what went wrong, for `Work.error` of the next attempt; its beginning is kept.
            attempts: how often it was tried; the next one is told one more. None is `Work.attempt`.

        Raises:
            SetupError: `delay` is no number of seconds.
            Unavailable: the server cannot be reached; they come again after a heartbeat.
        """
        if not isfinite(delay) or delay < 0:
            raise SetupError(f"retry: delay is {delay}, want 0 seconds or more")
        tried = [(work, work.attempt if attempts is None else attempts) for work in works]
        if tried:
            with self._letting_go(works):
                await self._log.put_off(tried, delay, error)
        self._taking.look_by(anyio.current_time() + delay, {work.bucket for work in works})

    async def hand_back(self, *works: Work) -> None:
        """Give works to the others at once, as if they had not been given: they do not count as tried.

        Raises:
            Unavailable: the server cannot be reached; they come again after a heartbeat.
        """
        if works:
            await self._give_back(works)

    async def set_aside(self, work: Work, *, reason: str, attempts: int | None = None, raw: bytes = b"") -> str:
        """Make a dead letter of a work: nobody is given it again, unless somebody sends it on its way again.

        Args:
            reason: why, for people; its beginning is kept.
            attempts: how often it was tried; None is `Work.attempt`.
            raw: what was at fault, such as an entry; its beginning is kept.

        Returns:
            The letter's id for `Bus.dead_letters`; "" if the work is no longer this consumer's, or its session was
            erased.

        Raises:
            Unavailable: the server cannot be reached; it comes again after a heartbeat.
        """
        with self._letting_go((work,)):
            return await self._log.set_aside(work, reason, work.attempt if attempts is None else attempts, raw)

    async def leave(self) -> int:
        """Hand back all that is pending with this consumer's name, and forget the name; gives how much it was.

        For who ends for good: who comes back by the same name may leave it, and begins with its own.

        Raises:
            Unavailable: the server cannot be reached; its work comes to others after a heartbeat.
        """
        await self.close()
        self._hand.drop(self._hand.works())
        self._ready = []
        return await self._log.leave()

    async def close(self) -> None:
        """Close its links. What was given and not done with stays pending with this consumer."""
        await self._taking.close()

    async def _give_back(self, works: Sequence[Work]) -> None:
        with self._letting_go(works):
            await self._log.put_off([(work, work.attempt - 1) for work in works], 0.0, "")
        self._taking.look_by(anyio.current_time(), {work.bucket for work in works})

    @contextmanager
    def _letting_go(self, works: Sequence[Work]) -> Generator[None, None, None]:
        """Works are in hand until the block ends, or a look at what is pending would give them again; then not, however
        it ends: whoever does not know whether it is done is given it again."""
        try:
            yield
        finally:
            self._hand.drop(works)
