"""One consumer's reading of the wake-ups that are on one server, and its fetching, on a link of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import anyio

from bus.errors import InvalidSessionId, Unavailable
from bus.head import answered
from bus.keys import check_session_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bus.backlog import Backlog
    from bus.codec import Entry
    from bus.connection import Argument, Link, Reply, Route
    from bus.keys import Keys
    from bus.work import Work
    from bus.work_bounds import WorkBounds

__all__ = ("GroupReader",)


class GroupReader:
    """Gives a consumer's own unfinished work first, then what the silent left, what is due and what is new."""

    def __init__(self, route: Route, keys: Keys, left: Backlog, buckets: Sequence[int], bounds: WorkBounds) -> None:
        """`left`: of these buckets."""
        self._route, self.left, self._bounds = route, left, bounds
        self._streams = {keys.wake_ups(bucket): bucket for bucket in buckets}
        self._link: Link | None = None
        self._heard: dict[str, str] = {}

    @property
    def has_some(self) -> bool:
        """There is, or may be, something to fetch."""
        return bool(self.left)

    async def sweep(self) -> None:
        """Look for what no wake-up told of, if it is time to. Raises Unavailable."""
        link = await self._connected()
        if self.left.is_due or not self._heard:
            # Where a stream ends is asked before: what comes from then on wakes us. A stream that was deleted, or
            # lost its end, may get no ids as high as those that were heard for long, so this is asked each time.
            await self._listen(link)
            await self.left.sweep(link)

    async def fetch(self, most: int) -> list[Work]:
        """What there is, `most` at most; empty if there is nothing. Raises Unavailable."""
        await self.sweep()
        found: list[Work] = []
        while self.left and not found:
            was_behind = self.left.is_behind
            found = await self.left.claim(await self._connected(), most)
            if was_behind and not self.left.is_behind:
                await self.sweep()
        return found

    async def wait_rung(self, seconds: float) -> None:
        """Wait until a wake-up comes, or so long, and take nothing. Raises Unavailable."""
        if self.has_some:
            return
        link = await self._connected()
        if not self._heard:
            return  # a sweep is to come first
        block = max(int(max(seconds, 0.0) * 1000), 1)
        streams: tuple[Argument, ...] = (*self._heard, *self._heard.values())
        command: tuple[Argument, ...] = ("XREAD", "COUNT", self._bounds.read, "BLOCK", block, "STREAMS", *streams)
        try:
            with anyio.fail_after(block / 1000 + self._bounds.silence):
                reply: Reply = await link.call(*command)
        except TimeoutError:
            raise Unavailable("server: no answer to a blocked read") from None
        for name, entries in cast("list[tuple[bytes, list[Entry]]]", reply or []):
            stream = name.decode()
            if entries:  # Redis 7.0 names a stream also where its entry is gone again
                self._heard[stream] = entries[-1][0].decode()
            for _, fields in entries:  # as scripts/wake.lua writes them: s, session, z, position, n, order
                if len(fields) > 1 and (session := _session(fields[1])) is not None:
                    self.left.note(self._streams[stream], session)

    async def close(self) -> None:
        """Close the link; what was fetched and is not done with stays with the consumer."""
        if self._link is not None:
            await self._link.close()

    async def _connected(self) -> Link:
        if self._link is None or self._link.is_broken:
            await self.close()
            self._link = await self._route.connect()
            self.left.begin_again()
            self._heard.clear()
        return self._link

    async def _listen(self, link: Link) -> None:
        replies = await link.call_many([("XREVRANGE", stream, "+", "-", "COUNT", 1) for stream in self._streams])
        for stream, reply in zip(self._streams, replies, strict=True):
            newest = cast("list[Entry]", answered(reply))
            self._heard[stream] = newest[0][0].decode() if newest else "0-0"


def _session(name: bytes) -> str | None:
    try:
        return check_session_id(name.decode())
    except (UnicodeDecodeError, InvalidSessionId):
        return None  # somebody else's
