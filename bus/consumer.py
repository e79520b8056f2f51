"""Consumer groups on the index streams: which session has work, told to one worker at a time.

A pointer is only a bell. Whoever gets it looks into the session's log for what there is to do, so a bell rung twice
costs a look and does nothing else. Consumer groups are for workers, never for UIs.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import anyio

from bus.codec import Entry
from bus.errors import InvalidSessionId, Refused, Unavailable
from bus.head import answered
from bus.keys import Keys, check_session_id

if TYPE_CHECKING:
    from bus.connection import Argument, Link, LinkPool, Server

__all__ = ("Consumer", "Work")

BLOCK_MS = 2_000
"""A blocked read comes back at least this often, to look for what a dead consumer left."""

SILENCE_SECONDS = 3.0
"""How much longer than it should block a read may take before its link counts as dead."""

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
        pause, claimed = 0.01, 0.0
        # Where we are in what was pending with us already, by stream; empty once that is done.
        own: dict[str, str] = {}
        try:
            while True:
                try:
                    if link is None or link.is_broken:
                        link = await self._reconnected(link)
                        own = dict.fromkeys(self._streams, "0")  # a lost answer may have left a batch pending with us
                    found = await self._read(link, own)
                    if not found or anyio.current_time() - claimed > BLOCK_MS / 1000:
                        # Also while there is always something new, or what the dead left would wait for ever.
                        found += await self._claim(link)
                        claimed = anyio.current_time()
                    pause = 0.01
                except Unavailable:
                    await anyio.sleep(pause)
                    pause = min(pause * 2, 0.5)
                    continue
                for work in found:
                    yield work
        finally:
            if link is not None:
                await link.close()

    async def _reconnected(self, old: Link | None) -> Link:
        if old is not None:
            await old.close()
        return await self._server.connect()

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

    async def _read(self, link: Link, own: dict[str, str]) -> list[Work]:
        """The next of what is pending with us, by the places in `own`; once there is no more, what is new."""
        command: tuple[Argument, ...] = ("XREADGROUP", "GROUP", self.group, self.name, "COUNT", _COUNT)
        if own:
            command = (*command, "STREAMS", *own, *own.values())
        else:
            command = (*command, "BLOCK", BLOCK_MS, "STREAMS", *self._streams, *[">"] * len(self._streams))
        try:
            with anyio.fail_after(BLOCK_MS / 1000 + SILENCE_SECONDS):
                reply = await link.call(*command)
        except TimeoutError:
            raise Unavailable("server: no answer to a blocked read") from None
        except Refused as error:
            if error.code != "NOGROUP":
                raise
            await self._create(link)
            return []
        found: list[Work] = []
        pages = {name.decode(): page for name, page in cast("list[tuple[bytes, list[Entry]]]", reply or [])}
        for name, entries in pages.items():
            found += await self._wanted(link, self._streams[name], entries)
        for name in list(own):
            if page := pages.get(name):
                own[name] = page[-1][0].decode()
            else:
                del own[name]
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
            pointer = entry_id.decode()
            work = _work(fields, bucket, pointer)
            if work is None:
                idle.append(pointer)
            else:
                found.append(work)
        if idle:
            await link.call("XACK", self._keys.index(bucket), self.group, *idle)
        return found

    async def _create(self, link: Link) -> None:
        """Make the group on every index stream, from its beginning: a look too many is cheap, a missed bell is not."""
        replies = await link.call_many(
            [("XGROUP", "CREATE", name, self.group, "0", "MKSTREAM") for name in self._streams]
        )
        for reply in replies:
            if isinstance(reply, Refused) and reply.code != "BUSYGROUP":
                raise reply


def _work(fields: Sequence[bytes] | None, bucket: int, pointer: str) -> Work | None:
    """The work that a pointer tells of; None if it rings no worker, was trimmed, or is none that the bus wrote."""
    values = dict(zip(fields[::2], fields[1::2], strict=False)) if fields else {}
    if not values.get(b"w"):
        return None
    try:
        return Work(check_session_id(values[b"s"].decode()), int(values[b"z"]), bucket, pointer)
    except (KeyError, ValueError, InvalidSessionId):
        return None
