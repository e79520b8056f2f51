"""The live streams of sessions as this process has read them: those who join after one another share what was decoded.

A stream only grows, but for what is trimmed out of it. As long as nothing was, only what is new is read: the server
counts what it took out, and the last entry that was read is still what it was.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast
from weakref import WeakValueDictionary

from lanebus.bus.errors import AnswerLost, Refused
from lanebus.bus.previews.session_deltas import SessionDeltas
from lanebus.bus.reading.pages import stream_pages
from lanebus.bus.wire.codec import decode_delta

if TYPE_CHECKING:
    from lanebus.bus.log.log import Log
    from lanebus.bus.wire.codec import Entry

__all__ = ("LiveStreams",)


@dataclass(slots=True)
class _Kept:
    """A live stream up to the last entry that was read."""

    spoken: SessionDeltas
    last: Entry | None = None
    removed: int | None = None
    """entries that the server had taken out of it; None if there was no stream"""
    forget: asyncio.TimerHandle | None = None


class LiveStreams:
    """Reads live streams, and keeps what was decoded while others are likely to ask for it."""

    def __init__(self, log: Log, *, pieces: int, seconds: float) -> None:
        """Keep a stream for `seconds` after it was last asked for, and `pieces` of all together, or one stream."""
        self._log, self._pieces, self._seconds = log, pieces, seconds
        self._kept: dict[str, _Kept] = {}
        """the one that was asked for last is the last"""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def read(self, session: str, log: Log | None = None) -> SessionDeltas:
        """All live deltas of a session that are kept on the server; they may grow, but are not to be changed.

        Args:
            log: where to read; None is this one's own.

        Raises:
            Unavailable: the server cannot be reached.
        """
        log = log or self._log
        async with self._turns.setdefault(session, asyncio.Lock()):
            kept = self._kept.get(session)
            if kept is None or not await _read_on(log, session, kept):
                kept = await _read_all(log, session)
            self._keep(session, kept)
            return kept.spoken

    def _keep(self, session: str, kept: _Kept) -> None:
        self._forget(session)
        self._kept[session] = kept
        kept.forget = asyncio.get_running_loop().call_later(self._seconds, self._forget, session)
        count = sum(len(each.spoken.deltas) for each in self._kept.values())
        for oldest, each in list(self._kept.items())[:-1]:
            if count <= self._pieces:
                break
            count -= len(each.spoken.deltas)
            self._forget(oldest)

    def _forget(self, session: str) -> None:
        kept = self._kept.pop(session, None)
        if kept is not None and kept.forget is not None:
            kept.forget.cancel()


async def _read_all(log: Log, session: str) -> _Kept:
    reply = (await log.call_many([("XINFO", "STREAM", log.keys.live(session))]))[0]
    kept = _Kept(SessionDeltas(), removed=None if isinstance(reply, Refused) else _removed(reply))
    async for page in stream_pages(log, log.keys.live(session)):
        _take(session, kept, page)
    return kept


async def _read_on(log: Log, session: str, kept: _Kept) -> bool:
    """Take what is new; False if the stream is not the one that was read, or something was taken out of it."""
    if kept.last is None or kept.removed is None:
        return False
    name, most, last = log.keys.live(session), log.bounds.page_entries, kept.last
    # The last entry again, to see that it is the same: a server that was emptied begins with the same numbers.
    commands = (("XINFO", "STREAM", name), ("XRANGE", name, last[0], "+", "COUNT", most + 1))
    try:
        info, reply = await log.call_many(commands)
    except AnswerLost:  # too large, perhaps
        return False
    if isinstance(info, Refused) or isinstance(reply, Refused) or _removed(info) != kept.removed:
        return False
    page = cast("list[Entry]", reply)
    if not page or page[0] != last:
        return False
    del page[0]
    _take(session, kept, page)
    if len(page) == most:
        async for more in stream_pages(log, name, f"({page[-1][0].decode()}"):
            _take(session, kept, more)
    return True


def _take(session: str, kept: _Kept, page: list[Entry]) -> None:
    for entry in page:
        kept.spoken.add(decode_delta(session, entry))
    if page:
        kept.last = page[-1]


def _removed(info: object) -> int:
    """How many entries were taken out of a stream."""
    words = cast("list[bytes | int]", info)
    fields = dict(zip(words[::2], words[1::2], strict=True))
    return cast("int", fields[b"entries-added"]) - cast("int", fields[b"length"])
