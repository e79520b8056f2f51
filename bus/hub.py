"""One reader for a whole process: it blocks on what anybody here follows, decodes once and hands out in memory.

While few sessions are followed it blocks on their own streams, which is one round trip less; beyond that on the index
streams of their buckets, and then fetches just the sessions that changed. A subscriber joins at the reader's present
place and reads what is before it from the log, so history and live come from the same cursor and nothing is between.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import anyio

from bus.codec import Entry, decode_delta
from bus.envelope import Cursor, Envelope
from bus.errors import BusError, Closed, CursorTrimmed, LogRolledBack, Refused, Unavailable
from bus.keys import Keys
from bus.log import Log, SessionHead, answered
from bus.messages.lanes import Lane
from bus.reader import SAFE_PAGE, merge, position_of

if TYPE_CHECKING:
    from bus.connection import Argument, Link, Reply, Server

__all__ = ("Hub", "Subscription")

DIRECT_LIMIT = 32
"""Up to this many sessions the hub blocks on their own streams."""

BLOCK_MS = 5_000
"""A blocked read comes back at least this often, to see whether the log went backwards."""

BUFFER_LIMIT = 2_000
"""Envelopes that wait for a slow subscriber; beyond it the subscriber reads them from the log again."""

_SUSPICIOUS_JUMP = 100_000


class Subscription:
    """One follower's place in the hub: what came since it joined, until it is closed."""

    def __init__(self, feed: _Feed, lanes: frozenset[Lane], *, live: bool) -> None:
        self._feed, self.lanes, self.live = feed, lanes, live
        self.start = Cursor(feed.position)
        """everything after it comes here, everything up to it is in the log already"""
        self.live_start = feed.live or self.start
        """live deltas after it come here"""
        self.fell_behind = False
        self._buffer: deque[Envelope] = deque()
        self._error: BusError | None = None
        self._news = asyncio.Event()

    async def take(self) -> list[Envelope]:
        """What has come, in order; waits until there is something. Empty only if `fell_behind`.

        Raises:
            LogRolledBack, CursorTrimmed, Closed: following cannot go on.
        """
        await self._news.wait()
        self._news.clear()
        if self._error is not None:
            raise self._error
        taken = list(self._buffer)
        self._buffer.clear()
        return taken

    def close(self) -> None:
        """Leave the hub."""
        self._feed.leave(self)

    def offer(self, envelopes: Sequence[Envelope]) -> None:
        """Hand over what this follower asked for; too much is dropped at once, as the log has it."""
        wanted = [e for e in envelopes if (self.live if e.delta else e.lane in self.lanes)]
        if not wanted or self.fell_behind:
            return
        self._buffer.extend(wanted)
        if len(self._buffer) > BUFFER_LIMIT:
            self.fell_behind = True
            self._buffer.clear()
        self._news.set()

    def fail(self, error: BusError) -> None:
        """End the following with an error."""
        self._error = error
        self._news.set()


class _Feed:
    """One followed session: how far the hub has read, and for whom."""

    def __init__(self, hub: Hub, session: str, position: int) -> None:
        self._hub, self.session, self.position = hub, session, position
        self.live: Cursor | None = None
        self.subscriptions: set[Subscription] = set()
        self.lanes: tuple[Lane, ...] = ()
        self.is_dirty = True

    def join(self, lanes: frozenset[Lane], *, live: bool) -> Subscription:
        if live and self.live is None:
            self.live = Cursor(self.position)
        subscription = Subscription(self, lanes, live=live)
        self.subscriptions.add(subscription)
        self._count()
        return subscription

    def leave(self, subscription: Subscription) -> None:
        self.subscriptions.discard(subscription)
        self._count()
        if not self.subscriptions:
            self._hub.forget(self)

    def offer(self, envelopes: Sequence[Envelope]) -> None:
        for subscription in tuple(self.subscriptions):
            subscription.offer(envelopes)

    def fail(self, error: BusError) -> None:
        for subscription in tuple(self.subscriptions):
            subscription.fail(error)

    def _count(self) -> None:
        wanted = {lane for subscription in self.subscriptions for lane in subscription.lanes}
        self.lanes = tuple(lane for lane in Lane if lane in wanted)
        if not any(subscription.live for subscription in self.subscriptions):
            self.live = None


class Hub:
    """The reader. `run` must be running while anybody follows."""

    def __init__(self, server: Server, keys: Keys, log: Log) -> None:
        self._server, self._keys, self._log = server, keys, log
        self._feeds: dict[str, _Feed] = {}
        self._index: dict[int, str] = {}
        self._changed = asyncio.Event()
        self._turned = asyncio.Event()
        self._client_id: int | None = None
        self._is_closed = False

    async def subscribe(self, session: str, lanes: frozenset[Lane], *, live: bool) -> Subscription:
        """Join the hub at its present place in a session.

        Raises:
            Unavailable: the server cannot be reached.
            Closed: the bus is closed.
        """
        if self._is_closed:
            raise Closed("bus")
        if session not in self._feeds:
            position = (await self._log.head(session)).position
            self._feeds.setdefault(session, _Feed(self, session, position))
        subscription = self._feeds[session].join(lanes, live=live)
        self._changed.set()
        return subscription

    def forget(self, feed: _Feed) -> None:
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
        link = await self._server.connect()
        self._client_id = cast("int", await link.call("CLIENT", "ID"))
        self._index.clear()
        return link

    async def _interrupt(self) -> None:
        """Wake the blocked reader when somebody joins, as it does not block on the newcomer's session yet.

        The wake-up may reach the server before the blocking read does, so it is repeated until the reader has turned.
        """
        while True:
            await self._changed.wait()
            self._turned.clear()
            if self._client_id is not None:
                # If it fails nothing is blocked either, or this user may not: the read comes back by itself.
                with suppress(Unavailable):
                    await self._log.unblock(self._client_id)
            with anyio.move_on_after(0.02):
                await self._turned.wait()

    async def _read(self, link: Link) -> None:
        """One turn: block until something comes, and hand it out."""
        self._changed.clear()
        self._turned.set()
        if len(self._feeds) <= DIRECT_LIMIT:
            self._index.clear()
            streams = {name: place for feed in self._feeds.values() for name, place in self._own_streams(feed)}
        else:
            await self._enter_index(link)
            await self._fetch_dirty(link)
            streams = {self._keys.index(bucket): last for bucket, last in self._index.items()}
            streams.update({self._keys.live(f.session): str(f.live) for f in self._feeds.values() if f.live})
        asked = anyio.current_time()
        command: tuple[Argument, ...] = ("XREAD", "COUNT", SAFE_PAGE, "BLOCK", BLOCK_MS, "STREAMS")
        reply = await link.call(*command, *streams, *streams.values())
        if reply is None:
            if anyio.current_time() - asked > BLOCK_MS / 2000:
                await self._look_back(link)
            return
        found = {name.decode(): entries for name, entries in cast("list[tuple[bytes, list[Entry]]]", reply)}
        await self._hand_out(link, found)

    def _own_streams(self, feed: _Feed) -> Iterator[tuple[str, str]]:
        for lane in feed.lanes:
            yield self._keys.lane(feed.session, lane), f"{feed.position}-0"
        if feed.live is not None:
            yield self._keys.live(feed.session), str(feed.live)

    async def _hand_out(self, link: Link, found: dict[str, list[Entry]]) -> None:
        for bucket in list(self._index):
            name = self._keys.index(bucket)
            for entry_id, fields in found.get(name, ()):
                self._index[bucket] = entry_id.decode()
                feed = self._feeds.get(fields[1].decode())
                if feed is not None:
                    feed.is_dirty = True
        for feed in list(self._feeds.values()):
            live = found.get(self._keys.live(feed.session), [])
            pages = [found.get(self._keys.lane(feed.session, lane), []) for lane in feed.lanes]
            if live or any(pages):
                await self._advance(feed, pages, live)
        if self._index:
            await self._fetch_dirty(link)

    async def _advance(self, feed: _Feed, pages: Sequence[Sequence[Entry]], live: Sequence[Entry]) -> None:
        """Hand out what was read for one session, as far as no page could still lack something before it."""
        ends = [position_of(page[-1]) for page in pages if page]
        bound = min(
            [*(position_of(page[-1]) for page in pages if len(page) == SAFE_PAGE), max(ends, default=feed.position)]
        )
        feed.is_dirty = bool(ends) and bound < max(ends)
        if ends and not self._is_plausible(feed, pages, bound):
            head = await self._log.head(feed.session)
            for lane, page in zip(feed.lanes, pages, strict=True):
                if page and position_of(page[-1]) > head.position:
                    await self._log.set_aside(feed.session, lane)
            if head.trimmed > feed.position:
                feed.fail(CursorTrimmed(feed.session, str(Cursor(feed.position)), head.trimmed + 1))
                return
            bound = min(bound, head.position)
            feed.is_dirty = bound > feed.position
            if len(feed.lanes) == len(Lane) and sum(map(len, pages)) < bound - feed.position:
                return  # something is still missing in between; it is read again from where we are
        envelopes = merge(feed.session, zip(feed.lanes, pages, strict=True), bound)
        if live:
            deltas = [decode_delta(feed.session, entry) for entry in live]
            feed.live = deltas[-1].cursor
            envelopes = sorted(envelopes + deltas, key=lambda envelope: envelope.cursor)
        feed.position = max(bound, feed.position)
        feed.offer(envelopes)

    def _is_plausible(self, feed: _Feed, pages: Sequence[Sequence[Entry]], bound: int) -> bool:
        """Whether positions are those that the bus gives: without gaps over both lanes, without leaps in one."""
        if len(feed.lanes) < len(Lane):
            return bound - feed.position < _SUSPICIOUS_JUMP
        if len(pages[0]) < SAFE_PAGE and len(pages[1]) < SAFE_PAGE:
            return bound - feed.position == len(pages[0]) + len(pages[1])
        return bound - feed.position == sum(position_of(entry) <= bound for page in pages for entry in page)

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
            # One XREAD sees both lanes of a session at one moment; two XRANGE would not.
            wanted: list[tuple[_Feed, tuple[Lane, ...]]] = [(feed, feed.lanes) for feed in dirty]
            commands: list[Sequence[Argument]] = []
            for feed, lanes in wanted:
                names = [self._keys.lane(feed.session, lane) for lane in lanes]
                places = [f"{feed.position}-0" for _ in lanes]
                commands.append(("XREAD", "COUNT", SAFE_PAGE, "STREAMS", *names, *places))
                feed.is_dirty = False
            replies = await link.call_many(commands)
            for (feed, lanes), reply in zip(wanted, replies, strict=True):
                found = {name.decode(): page for name, page in _streams(answered(reply))}
                if found and lanes == feed.lanes:
                    pages = [found.get(self._keys.lane(feed.session, lane), []) for lane in lanes]
                    await self._advance(feed, pages, ())

    async def _look_back(self, link: Link) -> None:
        """Nothing came for a while: see whether a log lost its end, which no blocked read would ever tell."""
        feeds = list(self._feeds.values())
        heads: list[SessionHead] = await self._log.heads([feed.session for feed in feeds])
        for feed, head in zip(feeds, heads, strict=True):
            if head.position < feed.position:
                feed.fail(LogRolledBack(feed.session, feed.position, head.position))


def _streams(reply: Reply | Refused) -> list[tuple[bytes, list[Entry]]]:
    return cast("list[tuple[bytes, list[Entry]]]", answered(reply) or [])
