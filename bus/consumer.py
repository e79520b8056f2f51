"""Consumer groups on the index streams: which session has work, told to one worker at a time.

A pointer is only a bell. Whoever gets it looks into the session's log for what there is to do, so a bell rung twice
costs a look and does nothing else. Consumer groups are for workers, never for UIs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

import anyio

from bus.group_reader import GroupReader, Work
from bus.keys import Keys

if TYPE_CHECKING:
    from bus.connection import Pool, Topology

__all__ = ("Consumer", "Work")


class Consumer:
    """One worker's place in a group. First its own pending pointers, then those of the dead, then new ones."""

    def __init__(self, topology: Topology, pool: Pool, keys: Keys, *, group: str, name: str, idle: float) -> None:
        """`idle`: seconds after which an unacknowledged pointer of another consumer is taken over."""
        self.group, self.name = group, name
        self._topology, self._pool, self._keys, self._idle_ms = topology, pool, keys, int(idle * 1000)

    async def work(self) -> AsyncGenerator[Work, None]:
        """What there is to do, as it comes; each must be acknowledged. It never ends; a lost server is waited for.

        In a cluster each bucket is read by itself, and a bucket whose server is lost holds up no other.
        """
        buckets = range(self._keys.buckets)
        if self._topology.is_one:
            reader = self._reader(*buckets)
            try:
                while True:
                    for work in await reader.turn():
                        yield work
            finally:
                await reader.close()
        merged = _Merged([self._reader(bucket) for bucket in buckets])
        try:
            while True:
                yield await merged.next()
        finally:
            await merged.close()

    def _reader(self, *buckets: int) -> GroupReader:
        route = self._topology.route(self._keys.index(buckets[0]))
        return GroupReader(route, self._keys, buckets, group=self.group, name=self.name, idle_ms=self._idle_ms)

    async def ack(self, work: Work) -> None:
        """Done with it; nobody gets this pointer again.

        Raises:
            Unavailable: the server cannot be reached; the pointer will come again.
        """
        await self._pool.call("XACK", self._keys.index(work.bucket), self.group, work.pointer)

    async def keep(self, work: Work) -> None:
        """Still at it: nobody takes the pointer over for another while.

        Raises:
            Unavailable: the server cannot be reached.
        """
        await self._pool.call("XCLAIM", self._keys.index(work.bucket), self.group, self.name, 0, work.pointer, "JUSTID")


class _Merged:
    """Several readers as one. None begins another read while nobody waits for work, nor while its last is not taken."""

    def __init__(self, readers: list[GroupReader]) -> None:
        self._readers, self._behind = readers, set(readers)
        self._found = asyncio.Queue[Work | Exception](maxsize=1)
        self._is_wanted, self._all_caught_up = asyncio.Event(), asyncio.Event()
        # Not a task group: it could not be open while the generator that uses this waits for its next turn.
        self._tasks = [asyncio.create_task(self._pump(reader)) for reader in readers]

    async def next(self) -> Work:
        """The next work, once there is some; raises what a reader ended with."""
        self._is_wanted.set()
        try:
            found = await self._found.get()
        finally:
            self._is_wanted.clear()
        if isinstance(found, Exception):
            raise found
        return found

    async def close(self) -> None:
        """End all readers."""
        with anyio.CancelScope(shield=True):
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)

    async def _pump(self, reader: GroupReader) -> None:
        try:
            while True:
                await self._is_wanted.wait()
                for work in await reader.turn():
                    await self._found.put(work)
                if not reader.is_behind:  # what was pending with us comes before what is new, of all buckets
                    self._behind.discard(reader)
                    if not self._behind:
                        self._all_caught_up.set()
                    await self._all_caught_up.wait()
        except Exception as error:  # noqa: BLE001  raised again by `next`, as this task has nobody who waits for it
            await self._found.put(error)
        finally:
            await reader.close()
