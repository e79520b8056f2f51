"""One consumer's reading of the index streams that are on one server, on a link of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, cast

import anyio

from bus.codec import Entry
from bus.errors import Refused, Unavailable
from bus.head import answered
from bus.leftovers import Leftovers
from bus.work import Work, read_pointer

if TYPE_CHECKING:
    from bus.connection import Argument, Link, Reply, Route
    from bus.group_log import GroupLog
    from bus.keys import Keys
    from bus.work import Hand

__all__ = ("GroupReader",)

SILENCE_SECONDS = 3.0
"""How much longer than it should block a read may take before its link counts as dead."""

BELL_COUNT = 100
"""New entries that are passed over at once to wait for the next."""


class GroupReader:
    """Gives a consumer's own pending pointers first, then new ones and, in turn with them, what others left."""

    def __init__(self, route: Route, keys: Keys, log: GroupLog, hand: Hand, buckets: Sequence[int]) -> None:
        """Takes what is in hand, which is not given again."""
        self._route, self._keys, self._log, self._hand = route, keys, log, hand
        self._streams = {keys.index(bucket): bucket for bucket in buckets}
        self._link: Link | None = None
        self.left = Leftovers(log, hand, buckets)
        self._is_turn_of_left = False
        # Streams that may have more new entries. They are read without waiting, as many at a time as there is room for.
        self._rich: dict[str, None] = {}
        # Pointers that ring nobody: acknowledged with the next command, in the same write.
        self._dull: dict[str, list[str]] = {}
        self._heard: dict[str, str] = {}

    @property
    def has_some(self) -> bool:
        """There is, or may be, something to fetch."""
        return bool(self._rich or self.left)

    def look_again(self) -> None:
        """Time has passed: what had nothing may have some. Those that had more come first."""
        self._rich.update(dict.fromkeys(self._streams))

    async def sweep(self) -> None:
        """Look for what is not new, if it is time to. Raises Unavailable."""
        await self.left.sweep(await self._connected())

    async def fetch(self, most: int) -> list[Work]:
        """What there is, `most` at most; empty if there is nothing. Raises Unavailable."""
        link = await self._connected()
        await self.left.sweep(link)
        found: list[Work] = []
        if self.left and (self.left.is_behind or self._is_turn_of_left or not self._rich):
            self._is_turn_of_left = False
            found = await self.left.claim(link, most)
        while self._rich and not self.left.is_behind and not found:
            self._is_turn_of_left = True
            found = await self._read_rich(link, most)
        return found

    async def wait(self, seconds: float, most: int) -> list[Work]:
        """Wait for what is new, until there is some or so long, and give it. Raises Unavailable.

        Only after `fetch` gave nothing. A blocked read gives entries of the first stream that gets some; only where
        several got some since `fetch` looked it gives of each, and may give more than `most`. So it asks for few.
        """
        count, block = max(most // len(self._streams), 1), _milliseconds(seconds)
        command = ("XREADGROUP", *self._log.reader, "COUNT", count, "BLOCK", block, "STREAMS")
        return await self._new(await self._connected(), command, tuple(self._streams), count, block / 1000)

    async def wait_rung(self, seconds: float) -> None:
        """Wait until something was added to a stream, or so long, and take nothing. Raises Unavailable."""
        link = await self._connected()
        if not self._heard:  # and read once more what came before we listen
            await self._listen(link)
        if self.has_some:
            return
        block = _milliseconds(seconds)
        command: tuple[Argument, ...] = (
            "XREAD",
            "COUNT",
            BELL_COUNT,
            "BLOCK",
            block,
            "STREAMS",
            *self._heard,
            *self._heard.values(),
        )
        reply = await self._call(link, command, block / 1000)
        for stream, entries in cast("list[tuple[bytes, list[Entry]]]", reply or []):
            self._heard[stream.decode()] = entries[-1][0].decode()
            self._rich[stream.decode()] = None
        if not reply:  # a stream that is another one now may never get ids as high as those that we heard
            self._heard.clear()

    async def flush(self) -> None:
        """Acknowledge what rings nobody, where the next read may be long to come. Raises Unavailable.

        Not on our link: another task may read on it at this moment, and each would take the other's answers.
        """
        dull, self._dull = self._dull, {}
        if dull:
            await self._log.ack_dull(dull)

    async def close(self) -> None:
        """Close the link; what was read and not acknowledged stays pending with the consumer."""
        if self._link is not None:
            await self._link.close()

    # --- one command ----------------------------------------------------------------------------------------------

    async def _connected(self) -> Link:
        if self._link is None or self._link.is_broken:
            await self.close()
            self._link = await self._route.connect()
            self.left.begin_again()
            self._rich = dict.fromkeys(self._streams)
            self._heard.clear()
            self._dull.clear()  # they are pending with us, and are found again
        return self._link

    async def _call(self, link: Link, command: Sequence[Argument], seconds: float) -> Reply:
        """Send a command, behind what acknowledges the pointers that ring nobody."""
        dull, self._dull = self._dull, {}
        acks = [("XACK", stream, self._log.group, *pointers) for stream, pointers in dull.items()]
        try:
            with anyio.fail_after(seconds + SILENCE_SECONDS):
                replies = await link.call_many((*acks, command))
        except TimeoutError:
            raise Unavailable("server: no answer to a blocked read") from None
        return answered(replies[-1])

    async def _new(
        self, link: Link, command: Sequence[Argument], streams: Sequence[str], count: int, seconds: float
    ) -> list[Work]:
        """Read what is new in some streams, up to `count` of each."""
        try:
            reply = await self._call(link, (*command, *streams, *[">"] * len(streams)), seconds)
        except Refused as error:
            if error.code != "NOGROUP":
                raise
            self.left.begin_again()  # that look makes the group
            self._rich = dict.fromkeys(self._streams)
            return []
        pages = {name.decode(): page for name, page in cast("list[tuple[bytes, list[Entry]]]", reply or [])}
        found: list[Work] = []
        for stream, page in pages.items():
            found += self._wanted(stream, page)
            if len(page) >= count:
                self._rich[stream] = None
        return self._hand.add(found)

    async def _read_rich(self, link: Link, most: int) -> list[Work]:
        streams = tuple(islice(self._rich, most))
        count = max(most // len(streams), 1)
        for stream in streams:  # who has more comes to the end of the line
            del self._rich[stream]
        return await self._new(link, ("XREADGROUP", *self._log.reader, "COUNT", count, "STREAMS"), streams, count, 0.0)

    def _wanted(self, stream: str, entries: Iterable[Entry]) -> list[Work]:
        """The pointers that ring a worker; the others are acknowledged soon."""
        found: list[Work] = []
        for entry_id, fields in entries:
            pointer = entry_id.decode()
            work = read_pointer(fields, self._streams[stream], pointer)
            if work is None:
                self._dull.setdefault(stream, []).append(pointer)
            else:
                found.append(work)
        return found

    async def _listen(self, link: Link) -> None:
        for stream in self._streams:
            last = cast("list[Entry]", await self._call(link, ("XREVRANGE", stream, "+", "-", "COUNT", 1), 0.0))
            self._heard[stream] = last[0][0].decode() if last else "0-0"
        self._rich = dict.fromkeys(self._streams)


def _milliseconds(seconds: float) -> int:
    return max(int(max(seconds, 0.0) * 1000), 1)
