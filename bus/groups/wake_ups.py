"""Wake-ups, told at once to those who are at work in a session: one reader for all sessions of a shard.

Whoever waits for a word while it works listens to the stream of wake-ups itself. As one may be lost, where the sessions
were woken last is looked at now and then. Nothing is read while nobody waits.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import anyio

from lanebus.bus.errors import Closed, Unavailable
from lanebus.bus.servers.backoff import Backoff
from lanebus.bus.servers.replies import answered
from lanebus.bus.servers.stream_reader import StreamReader

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from lanebus.bus.log.work_bounds import WorkBounds
    from lanebus.bus.servers.connection import Connection, Route
    from lanebus.bus.wire.codec import Entry
    from lanebus.bus.wire.keys import Keys

__all__ = ("WakeUps", "Watch")


class Watch:
    """One session, watched by one who waits."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self._position = 0
        self._is_closed = False

    def wake(self, position: int | None) -> None:
        """A wake-up came for a position; None: one may have been missed."""
        self._position = sys.maxsize if position is None else max(self._position, position)
        self._rung.set()

    async def wait(self, after: int) -> None:
        """Wait for a wake-up after a position.

        Raises:
            Closed: the bus was closed.
        """
        while self._position <= after and not self._is_closed:
            self._rung.clear()
            await self._rung.wait()
        if self._is_closed:
            raise Closed("bus")

    def forget(self) -> None:
        """Forget the wake-ups until now."""
        self._position = 0

    def close(self) -> None:
        """There is nothing to wait for any more."""
        self._is_closed = True
        self._rung.set()


class WakeUps:
    """Listens to the wake-ups of one shard. `run` must be running while anybody waits."""

    def __init__(self, route: Route, keys: Keys, buckets: Sequence[int], bounds: WorkBounds) -> None:
        self._reader = StreamReader(route, map(keys.wake_ups, buckets), silence=bounds.silence)
        self._keys, self._bounds = keys, bounds
        self._look_at = 0.0
        self._watches: dict[str, list[Watch]] = defaultdict(list)
        self._wanted, self._listening = asyncio.Event(), asyncio.Event()
        self._left_at = 0.0
        self._is_closed = False

    @contextmanager
    def watch(self, session: str) -> Generator[Watch, None, None]:
        """Watch a session for the length of the block; from when `entered` has returned, nothing is missed."""
        if self._is_closed:
            raise Closed("bus")
        watch, watches = Watch(), self._watches[session]
        watches.append(watch)
        self._wanted.set()
        try:
            yield watch
        finally:
            watches.remove(watch)
            if not watches:
                self._watches.pop(session, None)
            self._left_at = anyio.current_time()

    async def entered(self) -> None:
        """Wait until wake-ups are listened to.

        Raises:
            Closed: the bus was closed.
        """
        await self._listening.wait()
        if self._is_closed:
            raise Closed("bus")

    async def run(self) -> None:
        """Listen while anybody waits, for as long as the bus is open; a lost server is waited for."""
        backoff = Backoff(self._bounds.shortest, self._bounds.longest_pause)
        try:
            while True:
                await self._wanted.wait()
                try:
                    try:
                        await self._listen()
                        backoff.reset()
                    finally:
                        self._listening.clear()
                        await self._reader.close()
                except Unavailable:
                    await backoff.wait()
        finally:
            self._is_closed = True
            self._listening.set()
            for watch in self._all():
                watch.close()

    async def _listen(self) -> None:
        """Wake the watches of the sessions that wake-ups name, until none is left for a while. Raises Unavailable."""
        reader, bounds = self._reader, self._bounds
        link = await reader.connected()
        await reader.enter()
        self._miss()  # who waited while there was no link may have missed some
        self._listening.set()
        while self._watches or anyio.current_time() - self._left_at < bounds.linger:
            await self._sweep(link)
            pages = await reader.read(bounds.heard, min(bounds.block, bounds.sweep))
            for _, page in pages:
                self._hear(page)
                if not page or len(page) == bounds.heard:  # it is gone again, or so far behind that some were trimmed
                    self._miss()
            if pages:
                await asyncio.sleep(bounds.heard_pause)
            elif await reader.has_rewound():
                self._miss()
        self._wanted.clear()

    async def _sweep(self, link: Connection) -> None:
        """Tell those who wait where their sessions were woken last, if it is time to. Raises Unavailable."""
        now = anyio.current_time()
        if now < self._look_at:
            return
        self._look_at = now + self._bounds.sweep
        buckets = defaultdict[str, list[str]](list)
        for session in self._watches:
            buckets[self._keys.woken(self._keys.bucket(session))].append(session)
        if not buckets:
            return
        replies = await link.call_many([("HMGET", name, *sessions) for name, sessions in buckets.items()])
        for sessions, reply in zip(buckets.values(), replies, strict=True):
            positions = cast("list[bytes | None]", answered(reply))
            for session, position in zip(sessions, positions, strict=True):
                number = (position or b"").split(b" ")[0]
                for watch in self._watches.get(session, ()) if number.isdigit() else ():
                    watch.wake(int(number))

    def _hear(self, page: Sequence[Entry]) -> None:
        for _, fields in page:  # as scripts/wake.lua writes them: s, session, z, position, n, order
            if len(fields) >= 4 and (watches := self._watches.get(fields[1].decode(errors="replace"))):
                position = int(fields[3]) if fields[3].isdigit() else None
                for watch in watches:
                    watch.wake(position)

    def _miss(self) -> None:
        for watch in self._all():
            watch.wake(None)

    def _all(self) -> Iterable[Watch]:
        return [watch for watches in self._watches.values() for watch in watches]
