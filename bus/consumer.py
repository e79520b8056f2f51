"""Consumer groups on the index streams: which session has work, told to one worker at a time.

A pointer is only a bell. Whoever gets it looks into the session's log for what there is to do, so a bell rung twice
costs a look and does nothing else. Consumer groups are for workers, never for UIs.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import anyio

from bus.codec import Entry
from bus.errors import GroupMissing, Refused, Unavailable
from bus.keys import Keys
from bus.log import answered

if TYPE_CHECKING:
    from bus.connection import Argument, Link, LinkPool, Server

__all__ = ("Consumer", "Work")

BLOCK_MS = 2_000
"""A blocked read comes back at least this often, to look for what a dead consumer left."""

_COUNT = 64


class Work(NamedTuple):
    """A session has something to do, up to `position` at least."""

    session: str
    position: int
    bucket: int
    pointer: str
    """the pointer's id in its index stream"""


class Consumer:
    """One worker's place in a group. First its own pending pointers, then those of the dead, then new ones."""

    def __init__(self, server: Server, pool: LinkPool, keys: Keys, *, group: str, name: str, idle: float) -> None:
        """`idle`: seconds after which an unacknowledged pointer of another consumer is taken over."""
        self.group, self.name = group, name
        self._server, self._pool, self._keys, self._idle_ms = server, pool, keys, int(idle * 1000)
        self._streams = {keys.index(bucket): bucket for bucket in range(keys.buckets)}

    async def work(self) -> AsyncGenerator[Work, None]:
        """What there is to do, as it comes; each must be acknowledged. It never ends; a lost server is waited for."""
        link: Link | None = None
        pause = 0.01
        own = True
        try:
            while True:
                try:
                    if link is None or link.is_broken:
                        link = await self._server.connect()
                        own = True  # a lost answer may have left a batch pending with us
                    found = await self._read(link, "0" if own else ">")
                    if own and not found:
                        own = False
                    found += await self._claim(link) if not found else []
                    pause = 0.01
                except GroupMissing:
                    await self._create(link)
                    continue
                except Unavailable:
                    await anyio.sleep(pause)
                    pause = min(pause * 2, 0.5)
                    continue
                for work in found:
                    yield work
        finally:
            if link is not None:
                await link.close()

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

    async def _read(self, link: Link, place: str) -> list[Work]:
        command: tuple[Argument, ...] = ("XREADGROUP", "GROUP", self.group, self.name, "COUNT", _COUNT)
        block: tuple[Argument, ...] = ("BLOCK", BLOCK_MS) if place == ">" else ()
        places = [place] * len(self._streams)
        try:
            reply = await link.call(*command, *block, "STREAMS", *self._streams, *places)
        except Refused as error:
            if error.code != "NOGROUP":
                raise
            raise GroupMissing(self.group) from None
        found: list[Work] = []
        for name, entries in cast("list[tuple[bytes, list[Entry]]]", reply or []):
            found += await self._wanted(link, self._streams[name.decode()], entries)
        return found

    async def _claim(self, link: Link) -> list[Work]:
        """Take over what consumers left that have been quiet for too long."""
        streams = list(self._streams.items())
        replies = await link.call_many(
            [("XAUTOCLAIM", name, self.group, self.name, self._idle_ms, "0", "COUNT", _COUNT) for name, _ in streams]
        )
        found: list[Work] = []
        for (_, bucket), reply in zip(streams, replies, strict=True):
            _, entries, *_ = cast("tuple[bytes, list[Entry]]", answered(reply))
            found += await self._wanted(link, bucket, entries)
        return found

    async def _wanted(self, link: Link, bucket: int, entries: Sequence[Entry]) -> list[Work]:
        """The pointers that ring a worker; the others, and those that were trimmed, are acknowledged at once."""
        found: list[Work] = []
        idle: list[str] = []
        for entry_id, fields in entries:
            values = dict(zip(fields[::2], fields[1::2], strict=True)) if fields else {}
            if values.get(b"w"):
                found.append(Work(values[b"s"].decode(), int(values[b"z"]), bucket, entry_id.decode()))
            else:
                idle.append(entry_id.decode())
        if idle:
            await link.call("XACK", self._keys.index(bucket), self.group, *idle)
        return found

    async def _create(self, link: Link | None) -> None:
        """Make the group on every index stream, from its beginning: a look too many is cheap, a missed bell is not."""
        if link is None:
            return
        replies = await link.call_many(
            [("XGROUP", "CREATE", name, self.group, "0", "MKSTREAM") for name in self._streams]
        )
        for reply in replies:
            if isinstance(reply, Refused) and reply.code != "BUSYGROUP":
                raise reply
