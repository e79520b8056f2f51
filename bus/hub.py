"""One reader for a whole process: it blocks on what anybody here follows, decodes once and hands out in memory.

While few sessions are followed it blocks on their own streams, which is one round trip less; beyond that on the index
streams of their buckets, and then fetches just the sessions that changed. A subscriber joins at the reader's present
place and reads what is before it from the log, so history and live come from the same cursor and nothing is between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import anyio

from bus.codec import Entry, decode_delta
from bus.envelope import Cursor
from bus.errors import Closed, CursorTrimmed, LogRolledBack, Refused, SessionErased, Unavailable
from bus.feed import Feed, Question, Subscription
from bus.head import SessionHead, answered, head_command, read_head
from bus.keys import Keys
from bus.log import Log
from bus.messages.lanes import Lane
from bus.reader import SAFE_PAGE, find_hole, merge, position_of

if TYPE_CHECKING:
    from bus.connection import Argument, Link, Reply, Route

__all__ = ("Hub",)

DIRECT_LIMIT = 32
"""Up to this many sessions the hub blocks on their own streams."""

BLOCK_MS = 5_000
"""A blocked read comes back at least this often, to see whether the log went backwards."""

SILENCE_SECONDS = 3.0
"""How much longer than it should block a read may take before its link counts as dead."""


class Hub:
    """The reader. `run` must be running while anybody follows."""

    def __init__(self, route: Route, keys: Keys, log: Log) -> None:
        self._route, self._keys, self._log = route, keys, log
        self._feeds: dict[str, Feed] = {}
        self._index: dict[int, str] = {}
        self._changed = asyncio.Event()
        self._turned = asyncio.Event()
        self._client_id: int | None = None
        self._looked = 0.0
        self._is_closed = False

    @property
    def followed(self) -> dict[str, int]:
        """Each session that is followed, with how many do; who has left is not counted."""
        return {session: len(feed.subscriptions) for session, feed in self._feeds.items()}

    async def subscribe(self, session: str, lanes: frozenset[Lane], *, live: bool) -> Subscription:
        """Join the hub at its present place in a session.

        Raises:
            SessionErased: there is nothing to follow any more.
            Unavailable: the server cannot be reached.
            Closed: the bus is closed.
        """
        if self._is_closed:
            raise Closed("bus")
        if session not in self._feeds:
            head = await self._log.head(session)
            if head.is_erased:
                raise SessionErased(session)
            if self._is_closed:
                raise Closed("bus")
            self._feeds.setdefault(session, Feed(head, self._forget))
        subscription = self._feeds[session].join(lanes, live=live)
        self._changed.set()
        return subscription

    def _forget(self, feed: Feed) -> None:
        """Stop reading a session that nobody follows any more."""
        if self._feeds.get(feed.session) is feed:
            del self._feeds[feed.session]

    async def run(self) -> None:
        """Read what is followed, for as long as the bus is open; a lost server is waited for."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._interrupt)
                await self._read_forever()
        finally:
            self._is_closed = True
            for feed in list(self._feeds.values()):
                feed.fail(Closed("bus"))

    async def _read_forever(self) -> None:
        link: Link | None = None
        pause = 0.01
        try:
            while True:
                if not self._feeds:
                    self._changed.clear()
                    await self._changed.wait()
                try:
                    if link is None or link.is_broken:
                        link = await self._reconnected(link)
                    await self._read(link)
                    pause = 0.01
                except Unavailable:
                    await anyio.sleep(pause)
                    pause = min(pause * 2, 0.5)
        finally:
            if link is not None:
                await link.close()

    async def _reconnected(self, old: Link | None) -> Link:
        self._client_id = None
        if old is not None:
            await old.close()
        link = await self._route.connect()
        try:
            self._client_id = cast("int", await link.call("CLIENT", "ID"))
            await self._look_back()  # a server that comes back may have come back with less
        except BaseException:
            await link.close()
            raise
        self._index.clear()
        return link

    async def _interrupt(self) -> None:
        """Wake the blocked reader when somebody joins, as it does not block on the newcomer's session yet.

        The wake-up may reach the server before the blocking read does, so it is repeated until the reader has turned.
        """
        while True:
            await self._changed.wait()
            self._turned.clear()
            if self._client_id is not None and self._feeds:
                # If it fails nothing is blocked either, or this user may not: the read comes back by itself.
                with suppress(Unavailable):
                    await self._log.unblock(self._client_id, next(iter(self._feeds)))
            with anyio.move_on_after(0.02):
                await self._turned.wait()

    async def _read(self, link: Link) -> None:
        """One turn: block until something comes, and hand it out."""
        self._changed.clear()
        self._turned.set()
        if anyio.current_time() - self._looked > BLOCK_MS / 1000:
            await self._look_back()
        if len(self._feeds) <= DIRECT_LIMIT:
            self._index.clear()
            await self._read_directly(link)
        else:
            await self._enter_index(link)
            await self._fetch_dirty(link)
            await self._read_by_index(link)

    async def _read_directly(self, link: Link) -> None:
        asked = [Question(feed, self._keys) for feed in self._feeds.values()]
        streams = {name: place for question in asked for name, place in question.streams}
        if not streams:
            await self._changed.wait()
            return
        # The heads are read on the heels of the streams: an entry that they do not count is nobody's of the bus.
        heads = [head_command(self._keys, question.feed.session) for question in asked]
        try:
            reply, *replies = await self._blocked(link, streams, heads)
            found = {name.decode(): page for name, page in _streams(reply)}
        except Refused as refusal:
            if refusal.is_transient:
                raise
            for question in asked:  # one of them is not what it should be: ask for each by itself
                question.feed.is_dirty = True
            await self._fetch_dirty(link)
            return
        for question, head in zip(asked, replies, strict=True):
            await self._advance(question, found, read_head(question.feed.session, head), is_whole=False)
        await self._fetch_dirty(link)

    async def _read_by_index(self, link: Link) -> None:
        streams = {self._keys.index(bucket): last for bucket, last in self._index.items()}
        followed = [feed for feed in self._feeds.values() if feed.live is not None]
        streams.update({self._keys.live(feed.session): feed.live_id for feed in followed})
        (reply,) = await self._blocked(link, streams, ())
        found = {name.decode(): page for name, page in _streams(reply)}
        for bucket in self._index:
            for entry_id, fields in found.get(self._keys.index(bucket), ()):
                self._index[bucket] = entry_id.decode()
                feed = self._feeds.get(fields[1].decode(errors="replace"))
                if feed is not None:
                    feed.is_dirty = True
        for feed in followed:  # a bell only: what came is read together with the lanes, so that it is in order
            feed.is_dirty = feed.is_dirty or self._keys.live(feed.session) in found
        await self._fetch_dirty(link)

    async def _blocked(
        self, link: Link, streams: dict[str, str], then: Sequence[Sequence[Argument]]
    ) -> list[Reply | Refused]:
        command: Sequence[Argument] = (
            "XREAD",
            "COUNT",
            SAFE_PAGE,
            "BLOCK",
            BLOCK_MS,
            "STREAMS",
            *streams,
            *streams.values(),
        )
        try:
            with anyio.fail_after(BLOCK_MS / 1000 + SILENCE_SECONDS):
                return await link.call_many([command, *then])
        except TimeoutError:
            raise Unavailable("server: no answer to a blocked read") from None

    async def _advance(
        self, asked: Question, found: Mapping[str, list[Entry]], head: SessionHead, *, is_whole: bool
    ) -> None:
        """Hand out what was read for one session, as far as no page could still lack something before it.

        Args:
            is_whole: all streams were read at one moment. A read that has blocked is not: Redis 7.0 answers it with the
                one stream that woke it, though the same script wrote to others too.
        """
        feed, lanes = asked.feed, asked.lanes
        if self._feeds.get(feed.session) is not feed:
            return  # all have left
        if not {*feed.lanes} <= {*lanes}:
            feed.is_dirty = True  # somebody joined for another lane: read again
            return
        if not feed.is_of(head):
            feed.fail(_gone(feed, head))
            return
        if head.trimmed > feed.position:
            if head.lacks(lanes, feed.position):
                feed.fail(CursorTrimmed(feed.session, str(Cursor(feed.position)), head.trimmed + 1))
                return
            feed.cursor = head.cursor_at(head.trimmed)  # nothing of these lanes stood there
        pages: list[list[Entry]] = []
        bounds: list[int] = []
        for lane in lanes:
            page = found.get(self._keys.lane(feed.session, lane), [])
            if page and position_of(page[-1]) > head.position:
                await self._log.set_aside(feed.session, lane)
                page = [entry for entry in page if position_of(entry) <= head.position]
            elif len(page) == SAFE_PAGE:
                bounds.append(position_of(page[-1]))
            pages.append(page)
        live = found.get(self._keys.live(feed.session), []) if feed.live == asked.live else []
        if bounds:  # a delta behind the end of a full page would come before the entries that stand before it
            live = [delta for delta in live if position_of(delta) <= min(bounds)]
        if len(live) == SAFE_PAGE:
            bounds.append(position_of(live[-1]))
        end = max((position_of(page[-1]) for page in pages if page), default=feed.position)
        bound = min([end, *bounds])
        feed.is_dirty = bound < end or bool(bounds)
        envelopes = merge(head, zip(lanes, pages, strict=True), bound)
        deltas = [decode_delta(feed.session, entry, head.incarnation_of(head.position)) for entry in live]
        if deltas:
            envelopes = sorted(envelopes + deltas, key=lambda envelope: envelope.cursor)
        hole = find_hole(envelopes, feed.position) if len(lanes) == len(Lane) else None
        if hole is not None and not is_whole:
            feed.is_dirty = True
            return
        feed.cursor = head.cursor_at(max(bound, feed.position))
        feed.live = deltas[-1].cursor if deltas else feed.live
        if hole is not None:
            feed.offer(envelopes[: hole.until])
            feed.fail(CursorTrimmed(feed.session, str(Cursor(hole.after)), hole.first_kept))
            return
        feed.offer(envelopes)

    # --- many sessions: the index ---------------------------------------------------------------------------------

    async def _enter_index(self, link: Link) -> None:
        """Know the end of each bucket's index before its sessions are fetched, so that nothing falls in between."""
        buckets = {self._keys.bucket(session) for session in self._feeds}
        for gone in self._index.keys() - buckets:
            del self._index[gone]
        if not (new := sorted(buckets - self._index.keys())):
            return
        replies = await link.call_many([("XREVRANGE", self._keys.index(b), "+", "-", "COUNT", 1) for b in new])
        for bucket, reply in zip(new, replies, strict=True):
            newest = cast("list[Entry]", answered(reply))
            self._index[bucket] = newest[0][0].decode() if newest else "0-0"
        for feed in self._feeds.values():
            feed.is_dirty = feed.is_dirty or self._keys.bucket(feed.session) in new

    async def _fetch_dirty(self, link: Link) -> None:
        """Read every session that changed, in one round trip, until none is behind."""
        while dirty := [feed for feed in self._feeds.values() if feed.is_dirty]:
            asked = [Question(feed, self._keys) for feed in dirty]
            # One XREAD sees all of a session at one moment; several XRANGE would not.
            commands: list[Sequence[Argument]] = []
            for question in asked:
                names, places = zip(*question.streams, strict=True) if question.streams else ((), ())
                commands.append(("XREAD", "COUNT", SAFE_PAGE, "STREAMS", *names, *places))
                commands.append(head_command(self._keys, question.feed.session))
            replies = await link.call_many(commands)
            for question, reply, head in zip(asked, replies[::2], replies[1::2], strict=True):
                question.feed.is_dirty = False
                if isinstance(reply, Refused) and not reply.is_transient:
                    question.feed.fail(reply)
                    continue
                found = {name.decode(): page for name, page in _streams(reply)}
                await self._advance(question, found, read_head(question.feed.session, head), is_whole=True)

    async def _look_back(self) -> None:
        """See whether a log lost its end, which no blocked read would ever tell."""
        self._looked = anyio.current_time()
        feeds = list(self._feeds.values())
        heads: list[SessionHead] = await self._log.heads([feed.session for feed in feeds])
        for feed, head in zip(feeds, heads, strict=True):
            if not feed.is_of(head):
                feed.fail(_gone(feed, head))


def _gone(feed: Feed, head: SessionHead) -> LogRolledBack | SessionErased:
    """Why the log is not the one that was read any more."""
    if head.is_erased:
        return SessionErased(feed.session)
    return LogRolledBack(feed.session, feed.position, head.agreed(feed.cursor))


def _streams(reply: Reply | Refused) -> list[tuple[bytes, list[Entry]]]:
    return cast("list[tuple[bytes, list[Entry]]]", answered(reply) or [])
