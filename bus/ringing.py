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

from bus.errors import Closed, Unavailable
from bus.head import answered

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from bus.codec import Entry
    from bus.keys import Keys
    from bus.links import Argument, Link, Reply, Route
    from bus.work_bounds import WorkBounds

__all__ = ("Ringing", "Watch")


class Watch:
    """One session, watched by one who waits."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self._position = 0
        self._is_closed = False

    def ring(self, position: int | None) -> None:
        """A wake-up came for a position; None: one may have been missed."""
        self._position = sys.maxsize if position is None else max(self._position, position)
        self._rung.set()

    async def wait(self, after: int) -> None:
        """Wait until it was rung behind a position.

        Raises:
            Closed: the bus was closed.
        """
        while self._position <= after and not self._is_closed:
            self._rung.clear()
            await self._rung.wait()
        if self._is_closed:
            raise Closed("bus")

    def forget(self) -> None:
        """What was rung until now does not count."""
        self._position = 0

    def close(self) -> None:
        """There is nothing to wait for any more."""
        self._is_closed = True
        self._rung.set()


class Ringing:
    """Listens to the wake-ups of one shard. `run` must be running while anybody waits."""

    def __init__(self, route: Route, keys: Keys, buckets: Sequence[int], bounds: WorkBounds) -> None:
        self._route, self._streams = route, tuple(keys.wake_ups(bucket) for bucket in buckets)
        self._keys, self._bounds = keys, bounds
        self._block_ms = max(int(min(bounds.block, bounds.sweep) * 1000), 1)
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
        pause = self._bounds.shortest
        try:
            while True:
                await self._wanted.wait()
                try:
                    link = await self._route.connect()
                    try:
                        await self._listen(link)
                        pause = self._bounds.shortest
                    finally:
                        self._listening.clear()
                        await link.close()
                except Unavailable:
                    await anyio.sleep(pause)
                    pause = min(pause * 2, self._bounds.longest_pause)
        finally:
            self._is_closed = True
            self._listening.set()
            for watch in self._all():
                watch.close()

    async def _listen(self, link: Link) -> None:
        """Ring those whose sessions are rung for, until nobody has waited for a while. Raises Unavailable."""
        places = await self._ends(link)
        self._miss()  # who waited while there was no link may have missed some
        self._listening.set()
        while self._watches or anyio.current_time() - self._left_at < self._bounds.linger:
            await self._sweep(link)
            pages = await self._read(link, places)
            for name, page in pages:
                if not page:  # Redis 7.0, where an entry is gone again before it is read
                    self._miss()
                    continue
                stream = name.decode()
                places[stream] = page[-1][0].decode()
                self._hear(page)
                if len(page) == self._bounds.heard:  # so far behind that some may have been trimmed
                    self._miss()
            if pages:
                await asyncio.sleep(self._bounds.heard_pause)
            elif places != (ends := await self._ends(link)) and any(
                _number(ends[stream]) < _number(place) for stream, place in places.items()
            ):
                # A stream that lost its end gets no ids as high as those we wait behind, for a long time.
                places = ends
                self._miss()
        self._wanted.clear()

    async def _read(self, link: Link, places: dict[str, str]) -> list[tuple[bytes, list[Entry]]]:
        streams: tuple[Argument, ...] = (*places, *places.values())
        try:
            with anyio.fail_after(self._block_ms / 1000 + self._bounds.silence):
                count, block = self._bounds.heard, self._block_ms
                reply: Reply = await link.call("XREAD", "COUNT", count, "BLOCK", block, "STREAMS", *streams)
        except TimeoutError:
            raise Unavailable("server: no answer to a blocked read") from None
        return cast("list[tuple[bytes, list[Entry]]]", reply or [])

    async def _ends(self, link: Link) -> dict[str, str]:
        replies = await link.call_many([("XREVRANGE", stream, "+", "-", "COUNT", 1) for stream in self._streams])
        ends: dict[str, str] = {}
        for stream, reply in zip(self._streams, replies, strict=True):
            newest = cast("list[Entry]", answered(reply))
            ends[stream] = newest[0][0].decode() if newest else "0-0"
        return ends

    async def _sweep(self, link: Link) -> None:
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
                    watch.ring(int(number))

    def _hear(self, page: Sequence[Entry]) -> None:
        for _, fields in page:  # as scripts/wake.lua writes them: s, session, z, position, n, order
            if len(fields) >= 4 and (watches := self._watches.get(fields[1].decode(errors="replace"))):
                position = int(fields[3]) if fields[3].isdigit() else None
                for watch in watches:
                    watch.ring(position)

    def _miss(self) -> None:
        for watch in self._all():
            watch.ring(None)

    def _all(self) -> Iterable[Watch]:
        return [watch for watches in self._watches.values() for watch in watches]


def _number(entry_id: str) -> tuple[int, int]:
    milliseconds, _, count = entry_id.partition("-")
    return int(milliseconds), int(count)
