"""Reads streams behind a position in each, and blocks until one of them has more."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import anyio

from lanebus.bus.errors import Unavailable
from lanebus.bus.servers.replies import answered

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lanebus.bus.errors import Refused
    from lanebus.bus.servers.connection import Connection, Route
    from lanebus.bus.servers.replies import Argument, Reply
    from lanebus.bus.wire.codec import Entry

__all__ = ("Page", "StreamReader", "last_ids", "read_blocking")

Page = tuple[str, list["Entry"]]
"""A stream's name and its next entries. Redis 7.0 names a stream also if its entry is gone before it is read."""


class StreamReader:
    """Blocks on some streams of one server, on a connection of its own. One task uses it at a time.

    After a new connection `positions` is empty, as the server may have lost the end of a stream: call `enter` before
    `read`. A connection that broke is made anew by `connected` and `enter`; the caller decides when.
    """

    def __init__(self, route: Route, streams: Iterable[str], *, silence: float) -> None:
        """`silence`: seconds that a read may take longer than it blocks, before its connection counts as dead."""
        self._route, self._streams, self._silence = route, tuple(streams), silence
        self._link: Connection | None = None
        self.positions: dict[str, str] = {}
        """the id in each stream behind which the next `read` begins; empty if they are not known"""

    @property
    def is_connected(self) -> bool:
        """There is a connection, and it is not known to be broken."""
        return self._link is not None and not self._link.is_broken

    async def connected(self) -> Connection:
        """Return the connection; a new one if there is none that works.

        Raises:
            Unavailable: the server cannot be reached.
        """
        if self._link is None or self._link.is_broken:
            await self.close()
            self._link = await self._route.connect()
            self.positions = {}
        return self._link

    async def enter(self) -> None:
        """Go on behind the newest entry of each stream. Raises Unavailable."""
        self.positions = await last_ids(await self.connected(), self._streams)

    async def has_rewound(self) -> bool:
        """Enter the streams anew if one of them has lost its end, as it gets no ids as high as before for a long time.

        Returns:
            Whether one has, so entries may have been missed.

        Raises:
            Unavailable: the server cannot be reached.
        """
        ends = await last_ids(self._entered(), self._streams)
        if all(_number(ends[stream]) >= _number(position) for stream, position in self.positions.items()):
            return False
        self.positions = ends
        return True

    async def read(self, count: int, seconds: float) -> list[Page]:
        """Wait for entries behind the positions, and go on behind those that came.

        Args:
            count: most entries of each stream.
            seconds: how long to wait; at least a millisecond.

        Returns:
            A page for each stream that has some; none if nothing came.

        Raises:
            Unavailable: the server cannot be reached, or the connection is dead.
        """
        link, positions = self._entered(), self.positions
        pages, _ = await read_blocking(link, positions, count=count, seconds=seconds, silence=self._silence)
        for stream, entries in pages:
            if entries:
                positions[stream] = entries[-1][0].decode()
        return pages

    async def close(self) -> None:
        """End the connection; closing twice is fine."""
        if self._link is not None:
            await self._link.close()

    def _entered(self) -> Connection:
        if self._link is None:
            raise Unavailable("server: not connected yet")
        return self._link


async def last_ids(link: Connection, streams: Iterable[str]) -> dict[str, str]:
    """Return the id of the newest entry of each stream; `0-0` for an empty one. Raises Unavailable."""
    names = tuple(streams)
    replies = await link.call_many([("XREVRANGE", name, "+", "-", "COUNT", 1) for name in names])
    newest = [cast("list[Entry]", answered(reply)) for reply in replies]
    return {name: page[0][0].decode() if page else "0-0" for name, page in zip(names, newest, strict=True)}


async def read_blocking(
    link: Connection,
    positions: Mapping[str, str],
    *,
    count: int,
    seconds: float,
    silence: float,
    then: Sequence[Sequence[Argument]] = (),
) -> tuple[list[Page], list[Reply | Refused]]:
    """Read streams behind their positions, and wait if none has more. Send `then` in the same write.

    Returns:
        A page for each stream that has more, and the replies to `then`.

    Raises:
        Refused: one of the keys is no stream; the connection is good.
        Unavailable: the connection broke, or the server did not answer for `silence` seconds more.
    """
    block = max(int(max(seconds, 0.0) * 1000), 1)
    command: Sequence[Argument] = ("XREAD", "COUNT", count, "BLOCK", block, "STREAMS", *positions, *positions.values())
    try:
        with anyio.fail_after(block / 1000 + silence):
            reply, *replies = await link.call_many([command, *then])
    except TimeoutError:
        raise Unavailable("server: no answer to a blocked read") from None
    pages = cast("list[tuple[bytes, list[Entry]]]", answered(reply) or [])
    return [(name.decode(), entries) for name, entries in pages], replies


def _number(entry_id: str) -> tuple[int, int]:
    milliseconds, _, count = entry_id.partition("-")
    return int(milliseconds), int(count)
