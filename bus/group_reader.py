"""One consumer's reading of the index streams that are on one server, on a link of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import anyio

from bus.codec import Entry
from bus.errors import InvalidSessionId, Refused, Unavailable
from bus.head import answered
from bus.keys import Keys, check_session_id

if TYPE_CHECKING:
    from bus.connection import Argument, Link, Route

__all__ = ("GroupReader", "Work")

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


class GroupReader:
    """Gives a consumer's own pending pointers, then those of the dead, then new ones."""

    def __init__(
        self, route: Route, keys: Keys, buckets: Iterable[int], *, group: str, name: str, idle_ms: int
    ) -> None:
        self.group, self.name = group, name
        self._route, self._keys, self._idle_ms = route, keys, idle_ms
        self._streams = {keys.index(bucket): bucket for bucket in buckets}
        self._link: Link | None = None
        self._pause, self._claimed = 0.01, 0.0
        # Where we are in what was pending with us already, by stream; empty once that is done.
        self._own: dict[str, str] = {}
        # Where we are in what consumers left that have been quiet for too long; empty between two looks at it.
        self._left: dict[str, str] = {}
        self.is_behind = True
        """it may still have pointers that were pending with this consumer before it began"""

    async def turn(self) -> list[Work]:
        """One read; empty if there is nothing to do yet, or no server, which is waited for."""
        try:
            link = await self._connected()
            found = await self._read(link)
            if not found or self._left or anyio.current_time() - self._claimed > BLOCK_MS / 1000:
                # Also while there is always something new, or what the dead left would wait for ever.
                try:
                    found += await self._claim(link)
                except Unavailable:
                    if not found:
                        raise
        except Unavailable:
            self.is_behind = False  # the others need not wait for it
            await self.close()
            await anyio.sleep(self._pause)
            self._pause = min(self._pause * 2, 0.5)
            return []
        self._pause, self.is_behind = 0.01, bool(self._own)
        return found

    async def close(self) -> None:
        """Close the link; what was read and not acknowledged stays pending with the consumer."""
        if self._link is not None:
            await self._link.close()

    async def _connected(self) -> Link:
        if self._link is None or self._link.is_broken:
            await self.close()
            self._link = await self._route.connect()
            # A lost answer may have left a batch pending with us.
            self._own, self._left = dict.fromkeys(self._streams, "0"), {}
        return self._link

    async def _read(self, link: Link) -> list[Work]:
        """The next of what is pending with us, by the places in `own`; once there is no more, what is new."""
        own = self._own
        command: tuple[Argument, ...] = ("XREADGROUP", "GROUP", self.group, self.name, "COUNT", _COUNT)
        if own:
            command = (*command, "STREAMS", *own, *own.values())
        else:
            block = () if self._left else ("BLOCK", BLOCK_MS)
            command = (*command, *block, "STREAMS", *self._streams, *[">"] * len(self._streams))
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
        """Take over a part of what consumers left that have been quiet for too long.

        Another part is looked at in the next turn, without waiting for what is new before, until there is no more: a
        look may find nothing, as those whom the first entries belong to are at work.
        """
        asked = list((self._left or dict.fromkeys(self._streams, "0")).items())
        replies = await link.call_many(
            [
                ("XAUTOCLAIM", name, self.group, self.name, self._idle_ms, place, "COUNT", _COUNT)
                for name, place in asked
            ]
        )
        found: list[Work] = []
        left: dict[str, str] = {}
        for (name, _), reply in zip(asked, replies, strict=True):
            place, entries, *_ = cast("tuple[bytes, list[Entry]]", answered(reply))
            found += await self._wanted(link, self._streams[name], entries)
            if place != b"0-0":
                left[name] = place.decode()
        self._left, self._claimed = left, anyio.current_time()
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
