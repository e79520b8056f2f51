"""Cache the decoded live streams of sessions, for followers that join shortly after one another.

A stream only grows, unless entries are trimmed. If no entry was trimmed, a read fetches only the new entries. To find
out, a read compares the server's count of removed entries and the last entry with those of the previous read.
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
class _CachedStream:
    """The live stream of one session in the cache."""

    deltas: SessionDeltas
    last: Entry | None = None
    """the last entry that was read"""
    removed: int | None = None
    """number of entries that the server had removed from the stream; None if the stream did not exist"""
    forget: asyncio.TimerHandle | None = None
    """timer that removes the stream from the cache"""


class LiveStreams:
    """Reads the live deltas of sessions, and caches them for the next follower."""

    def __init__(self, log: Log, *, pieces: int, seconds: float) -> None:
        """
        Args:
            log: the log to read.
            pieces: maximum number of deltas to cache over all streams. A single stream may have more.
            seconds: how long a stream is cached after its last read.
        """
        self._log, self._pieces, self._seconds = log, pieces, seconds
        self._cached: dict[str, _CachedStream] = {}
        """the cached streams by session, in the order in which they were last read"""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def read(self, session: str, log: Log | None = None) -> SessionDeltas:
        """Return all live deltas of a session that the server keeps.

        The result is shared: later calls add deltas to the same object, and callers must not change it.

        Args:
            session: id of the session.
            log: the log to read; None means the log given at construction.

        Raises:
            Unavailable: the server did not answer.
        """
        log = log or self._log
        async with self._turns.setdefault(session, asyncio.Lock()):
            stream = self._cached.get(session)
            if stream is None or not await _read_on(log, session, stream):
                stream = await _read_all(log, session)
            self._cache(session, stream)
            return stream.deltas

    def _cache(self, session: str, stream: _CachedStream) -> None:
        self._forget(session)
        self._cached[session] = stream
        stream.forget = asyncio.get_running_loop().call_later(self._seconds, self._forget, session)
        count = sum(len(each.deltas.deltas) for each in self._cached.values())
        for oldest, each in list(self._cached.items())[:-1]:
            if count <= self._pieces:
                break
            count -= len(each.deltas.deltas)
            self._forget(oldest)

    def _forget(self, session: str) -> None:
        stream = self._cached.pop(session, None)
        if stream is not None and stream.forget is not None:
            stream.forget.cancel()


async def _read_all(log: Log, session: str) -> _CachedStream:
    reply = (await log.call_many([("XINFO", "STREAM", log.keys.live(session))]))[0]
    stream = _CachedStream(SessionDeltas(), removed=None if isinstance(reply, Refused) else _removed(reply))
    async for page in stream_pages(log, log.keys.live(session)):
        _take(session, stream, page)
    return stream


async def _read_on(log: Log, session: str, stream: _CachedStream) -> bool:
    """Add the new entries to a cached stream.

    Return False if entries were removed from the stream, or if it was deleted and created again.
    """
    if stream.last is None or stream.removed is None:
        return False
    name, most, last = log.keys.live(session), log.bounds.page_entries, stream.last
    # Read the last entry again to compare it, because a server that was emptied starts with the same ids.
    commands = (("XINFO", "STREAM", name), ("XRANGE", name, last[0], "+", "COUNT", most + 1))
    try:
        info, reply = await log.call_many(commands)
    except AnswerLost:  # perhaps the reply was too large
        return False
    if isinstance(info, Refused) or isinstance(reply, Refused) or _removed(info) != stream.removed:
        return False
    page = cast("list[Entry]", reply)
    if not page or page[0] != last:
        return False
    del page[0]
    _take(session, stream, page)
    if len(page) == most:
        async for more in stream_pages(log, name, f"({page[-1][0].decode()}"):
            _take(session, stream, more)
    return True


def _take(session: str, stream: _CachedStream, page: list[Entry]) -> None:
    for entry in page:
        stream.deltas.add(decode_delta(session, entry))
    if page:
        stream.last = page[-1]


def _removed(info: object) -> int:
    """Return how many entries were removed from a stream, according to the stream's XINFO reply."""
    words = cast("list[bytes | int]", info)
    fields = dict(zip(words[::2], words[1::2], strict=True))
    return cast("int", fields[b"entries-added"]) - cast("int", fields[b"length"])
