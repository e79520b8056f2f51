"""Wake the tasks that wait for wake-ups of a session. One reader serves all sessions of a shard.

A worker that waits for a message during its work must not wait for the consumer's next fetch. Wake-ups may be lost, so
the stored position of each session's last wake-up is also read at intervals. Nothing is read while no task waits.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import anyio

from lanebus.bus.errors import Closed, Refused, Unavailable, is_of_session
from lanebus.bus.log.log import count_in
from lanebus.bus.servers.calls import Backoff, answered
from lanebus.bus.servers.shared import StreamReader

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from lanebus.bus.log.log import WorkBounds
    from lanebus.bus.servers.connection import Connection, Route
    from lanebus.bus.wire.codec import Entry
    from lanebus.bus.wire.keys import Keys


class Watch:
    """One task's watch on the wake-ups of one session."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._position = 0
        self._is_closed = False

    def wake(self, position: int | None) -> None:
        """Wake the task for a wake-up at `position`. None means that wake-ups may have been missed."""
        self._position = sys.maxsize if position is None else max(self._position, position)
        self._event.set()

    async def wait(self, after: int) -> None:
        """Wait for a wake-up after position `after`. Spurious wake-ups are possible.

        Raises:
            Closed: the bus was closed.
        """
        while self._position <= after and not self._is_closed:
            self._event.clear()
            await self._event.wait()
        if self._is_closed:
            raise Closed("bus")

    def forget(self) -> None:
        """Forget all wake-ups received so far."""
        self._position = 0

    def close(self) -> None:
        """Make `wait` raise `Closed`."""
        self._is_closed = True
        self._event.set()


class WakeUps:
    """Reads the wake-ups of one shard and passes them to watches. Watches work only while `run` runs."""

    def __init__(self, route: Route, keys: Keys, buckets: Sequence[int], bounds: WorkBounds) -> None:
        self._reader = StreamReader(route, map(keys.wake_ups, buckets), silence=bounds.silence_seconds)
        self._keys, self._bounds = keys, bounds
        self._sweep_at = 0.0
        self._watches: dict[str, list[Watch]] = defaultdict(list)
        self._wanted, self._listening = asyncio.Event(), asyncio.Event()
        self._last_watch_at = 0.0
        self._is_closed = False

    @contextmanager
    def watch(self, session: str) -> Generator[Watch, None, None]:
        """Watch a session for the length of the block. No wake-up is missed once `entered` has returned.

        Raises:
            Closed: the bus was closed.
        """
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
            self._last_watch_at = anyio.current_time()

    async def entered(self) -> None:
        """Wait until the reader receives wake-ups.

        Raises:
            Closed: the bus was closed.
        """
        await self._listening.wait()
        if self._is_closed:
            raise Closed("bus")

    async def run(self) -> None:
        """Read wake-ups while there are watches, until cancelled. Reconnect with backoff."""
        backoff = Backoff(self._bounds.first_pause_seconds, self._bounds.longest_pause_seconds)
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
        """Read wake-ups and wake watches. Return when there was no watch for `WorkBounds.linger_seconds`.

        Raises:
            Unavailable: the server cannot be reached.
        """
        reader, bounds = self._reader, self._bounds
        connection = await reader.connected()
        await reader.enter()
        self._wake_all()  # wake-ups may have been missed before the connection was made
        self._listening.set()
        while self._watches or anyio.current_time() - self._last_watch_at < bounds.linger_seconds:
            await self._sweep(connection)
            pages = await reader.read(bounds.watched_wake_ups, min(bounds.block_seconds, bounds.sweep_seconds))
            for page in pages.values():
                self._wake_named(page)
                if (
                    not page or len(page) == bounds.watched_wake_ups
                ):  # an entry was removed, or the page is full: wake-ups may have been trimmed before they were read
                    self._wake_all()
            if pages:
                await asyncio.sleep(bounds.watch_pause_seconds)
            elif await reader.restart_if_rolled_back():
                self._wake_all()
        self._wanted.clear()

    async def _sweep(self, connection: Connection) -> None:
        """If the next sweep is due, read the position of each watched session's last wake-up. Raises Unavailable."""
        now = anyio.current_time()
        if now < self._sweep_at:
            return
        self._sweep_at = now + self._bounds.sweep_seconds
        buckets = defaultdict[str, list[str]](list)
        for session in self._watches:
            buckets[self._keys.woken(self._keys.bucket(session))].append(session)
        if not buckets:
            return
        replies = await connection.call_many([("HMGET", name, *sessions) for name, sessions in buckets.items()])
        for sessions, reply in zip(buckets.values(), replies, strict=True):
            if isinstance(reply, Refused) and is_of_session(
                reply
            ):  # the bucket's key is damaged: wake the tasks to look
                for watch in (each for session in sessions for each in self._watches.get(session, ())):
                    watch.wake(None)
                continue
            positions = cast("list[bytes | None]", answered(reply))
            for session, position in zip(sessions, positions, strict=True):
                number = (position or b"").split(b" ")[0]
                for watch in self._watches.get(session, ()):
                    watch.wake(count_in(number))

    def _wake_named(self, page: Sequence[Entry]) -> None:
        for _, fields in page:  # as scripts/wake.lua writes them: s, session, z, position, n, order
            if len(fields) >= 4 and (watches := self._watches.get(fields[1].decode(errors="replace"))):
                position = count_in(fields[3]) or None
                for watch in watches:
                    watch.wake(position)

    def _wake_all(self) -> None:
        for watch in self._all():
            watch.wake(None)

    def _all(self) -> Iterable[Watch]:
        return [watch for watches in self._watches.values() for watch in watches]
