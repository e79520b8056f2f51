"""Consumer groups: which session has work, given to one worker at a time.

That a session has work follows from what is stored: it was woken behind the place up to which the group is done with
it. Wake-ups only say so at once. Whoever is given a session looks into its log for what there is to do; a look too
many costs a little and does nothing else. Consumer groups are for workers, never for UIs.

    async with bus.consumer("agents", "worker-1", heartbeat=15) as consumer:
        works = await consumer.fetch(free)      no more than the worker has room for
        await consumer.heartbeat()              now and then
        await consumer.ack(*works)              done
"""

from __future__ import annotations

from contextlib import contextmanager
from math import isfinite
from typing import TYPE_CHECKING, Self

import anyio

from lanebus.bus.errors import SetupError
from lanebus.bus.groups.fetcher import Fetcher
from lanebus.bus.groups.group_log import GroupLog, Start
from lanebus.bus.groups.work import InFlight, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from types import TracebackType

    from lanebus.bus.log.first_page import FirstPage
    from lanebus.bus.log.work_bounds import WorkBounds
    from lanebus.bus.servers.topology import Pool, Topology
    from lanebus.bus.wire.keys import Keys

__all__ = ("Consumer", "Start", "Work")


class Consumer:
    """One worker's place in a group. First its own unfinished work, then what others left, what is due and what is new.

    `fetch` is for one task at a time, all else for any. A session that is given is this consumer's until it is
    acknowledged, put off or set aside, or until this consumer was silent for a heartbeat: then others are given it.
    What wakes it meanwhile is given once that is over, unless the acknowledgement says that it was seen.
    """

    def __init__(
        self,
        topology: Topology,
        pool: Pool,
        keys: Keys,
        *,
        group: str,
        name: str,
        heartbeat: float,
        bounds: WorkBounds,
        start: Start = "beginning",
        owner: str = "",
        first_page: Callable[[str], FirstPage | None] | None = None,
    ) -> None:
        """See `Bus.consumer`."""
        if not isfinite(heartbeat) or heartbeat <= 0:
            raise SetupError(f"consumer: heartbeat is {heartbeat}, want more than 0 seconds")
        self.group, self.name, self.heartbeat_seconds = group, name, heartbeat
        self._log = GroupLog(
            *(pool, keys, group, name),
            heartbeat=heartbeat,
            bounds=bounds,
            start=start,
            owner=owner,
            first_page=first_page,
        )
        self._hand = InFlight()
        self._fetcher = Fetcher(topology, keys, self._log, self._hand, name=name, heartbeat=heartbeat)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def fetch(self, free: int) -> list[Work]:
        """What there is to do, as soon as there is some; a lost server is waited for.

        Nothing is fetched ahead: this consumer never has more than `fetch` gave. Cancelled, it may leave it some,
        which the next call begins with.

        Args:
            free: the most to give; 1 or more.

        Returns:
            1 to `free` works, each of another session. A session that is in hand is only given again once the server
            is done with its earlier work: another one had it meanwhile, or the call that lets go of it is about to end.

        Raises:
            SetupError: `free` is less than 1.
            Closed: the bus is closed.
        """
        if free < 1:
            raise SetupError(f"fetch: free is {free}, want 1 or more")
        while not (works := await self._fetcher.turn(free)):
            pass
        return works

    async def ack(self, *works: Work, seen: Mapping[str, int] | None = None) -> None:
        """Done with them: nobody gets these sessions again until they are woken anew.

        Args:
            seen: the positions up to which sessions were looked at, if that is further than `Work.position`. What
                woke a session behind that is given at once, to any consumer.

        Raises:
            Unavailable: the server cannot be reached; they may come again.
        """
        if works:
            with self._letting_go(works):
                await self._log.ack(works, seen or {})

    async def heartbeat(self, *works: Work) -> list[Work]:
        """Still at work: nobody takes over what this consumer has for another heartbeat. A third of one is a good time
        between two calls; while `fetch` waits, it does the same.

        Args:
            works: to ask about; none is all that was given and not done with.

        Returns:
            Those that are no longer this consumer's: it was silent for too long, and another one has them now.

        Raises:
            Unavailable: the server cannot be reached.
        """
        asked = works or tuple(self._hand.works())
        lost = await self._log.lost(asked) if asked else []
        self._hand.drop(lost)
        await self._fetcher.beat()
        return lost

    async def nack(
        self, *works: Work, delay: float | None = None, error: str = "", attempts: int | None = None
    ) -> None:
        """Give works back. A session that is woken earlier is delivered at once. Works of others are left alone.

        Args:
            delay: seconds after which a consumer of the group gets them. None delivers them at once, as if they had not
                been fetched: they do not count as tried, and keep their error.
            error: what went wrong, for `Work.error` of the next attempt; its beginning is kept. Only with a delay.
            attempts: how often they were tried. None is `Work.attempt`. Only with a delay.

        Raises:
            SetupError: `delay` is not a number of seconds.
            Unavailable: the server cannot be reached. They are delivered again after a heartbeat of silence, or when a
                consumer with this name comes back.
        """
        if delay is None:
            for work in works:
                await self._retry((work,), 0.0, work.error, work.attempt - 1)
            return
        if not isfinite(delay) or delay < 0:
            raise SetupError(f"nack: delay is {delay}, want 0 seconds or more")
        await self._retry(works, delay, error, attempts)

    async def _retry(self, works: Sequence[Work], delay: float, error: str, attempts: int | None) -> None:
        tried = [(work, work.attempt if attempts is None else attempts) for work in works]
        if tried:
            with self._letting_go(works):
                await self._log.put_off(tried, delay, error)
        self._fetcher.look_by(anyio.current_time() + delay, {work.bucket for work in works})

    async def dead_letter(
        self, work: Work, *, reason: str, attempts: int | None = None, raw: bytes = b"", seen: int = 0
    ) -> str:
        """Make a dead letter of a work: nobody is given it again, unless somebody sends it on its way again.

        Args:
            reason: why, for people; its beginning is kept.
            attempts: how often it was tried; None is `Work.attempt`.
            raw: what was at fault, such as an entry; its beginning is kept.
            seen: the position up to which the session was looked at, if that is further than `Work.position`.

        Returns:
            The letter's id for `Bus.dead_letters`; "" if the work is no longer this consumer's, or its session was
            erased.

        Raises:
            Unavailable: as for `nack`.
        """
        with self._letting_go((work,)):
            return await self._log.dead_letter(work, reason, work.attempt if attempts is None else attempts, raw, seen)

    async def deregister(self) -> int:
        """Hand back all that this consumer's name has, and forget the name; gives how much it was.

        For who ends for good: who comes back by the same name may leave it, and begins with its own.

        Raises:
            Unavailable: the server cannot be reached; its work comes to others after a heartbeat.
        """
        await self.close()
        self._hand.drop(self._hand.works())
        return await self._log.deregister()

    async def close(self) -> None:
        """Close its links. What was given and not done with stays with this consumer."""
        await self._fetcher.close()

    @contextmanager
    def _letting_go(self, works: Sequence[Work]) -> Generator[None, None, None]:
        """Works are in hand until the block ends, or a look at what this consumer has would give them again; then not,
        however it ends: whoever does not know whether it is done is given it again."""
        try:
            yield
        except BaseException:
            self._fetcher.begin_again()
            raise
        finally:
            self._hand.drop(works)
