"""One reader for a whole process: it blocks on what anybody here follows, decodes once and hands out in memory.

While few sessions are followed it blocks on their own streams, which is one round trip less; beyond that on the bells
of their buckets, and then fetches just the sessions that changed. A subscriber joins at the reader's present place and
reads what is before it from the log, so history and live come from the same cursor and nothing is between.

That a log lost its end is told with the next entry of its session, and on a link that comes back before anything else.
A quiet session under a link that stayed whole is looked at in a round over all that are followed, 2,000 of them each 5
seconds: within 5 seconds where there are up to two thousand, within half a minute where there are ten thousand.

A server closes a connection whose replies outgrow its `client-output-buffer-limit`. After a lost answer, and where many
sessions have changed, the hub first asks for the sizes of what is new, and then reads no more at once than a budget
allows; each further loss halves the budget. A single entry that does not come through is left to its followers, who
read it from the log and are told why it cannot be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import anyio

from bus.codec import MESSAGE_LIMIT_BYTES, Entry, decode_delta, position_of
from bus.envelope import Cursor
from bus.errors import AnswerLost, Closed, CursorTrimmed, LogRolledBack, Refused, SessionErased, Unavailable
from bus.feed import Feed, Question
from bus.feeds import Feeds
from bus.head import SessionHead, answered, head_command, read_head
from bus.heads import Heads
from bus.incarnations import agreed
from bus.keys import Keys
from bus.log import Log, batched, whole
from bus.messages.lanes import Lane
from bus.reader import cursor_at, cut, find_hole, has_all, merge
from bus.subscription import BUFFER_BYTES, HubBounds, Interest, Sized, Subscription

if TYPE_CHECKING:
    from bus.connection import Argument, Link, Reply, Route

__all__ = ("Hub",)


@dataclass(frozen=True, slots=True)
class Portion:
    """What is read in one round trip."""

    questions: list[Question]
    count: int
    """entries of each stream"""


class Hub:
    """The reader. `run` must be running while anybody follows."""

    def __init__(self, route: Route, keys: Keys, log: Log, bounds: HubBounds | None = None) -> None:
        self.bounds = bounds or HubBounds()
        self._route, self._keys, self._log = route, keys, log
        self._budget = log.bounds.page_bytes
        self._is_careful = False
        self._feeds, self._heads = Feeds(keys, self.bounds), Heads(log)
        self._bells: dict[str, str] = {}
        self._changed = asyncio.Event()
        self._turned = asyncio.Event()
        self._client_id: int | None = None
        self._looked = 0.0
        self._is_closed = False

    @property
    def followed(self) -> dict[str, int]:
        """Each session that is followed, with how many do; who has left is not counted."""
        return {feed.session: len(feed.subscriptions) for feed in self._feeds.all}

    async def subscribe(self, session: str, interest: Interest, buffer_bytes: int = BUFFER_BYTES) -> Subscription:
        """Join the hub at its present place in a session. Cancelled, it leaves nothing.

        Raises:
            SessionErased: there is nothing to follow any more.
            Unavailable: the server cannot be reached.
            Closed: the bus is closed.
        """
        if self._is_closed:
            raise Closed("bus")
        feed, goal, live_id = self._feeds.get(session), 0, ""
        # The reader may be behind what this very process has published; and it does not know where live deltas end that
        # nobody here has followed yet: they may be more than a follower's buffer takes, who reads them from the log.
        if feed is None or interest.state or (interest.live and feed.live is None):
            head = await self._heads.of(session)
            if head.is_erased:
                raise SessionErased(session)
            if self._is_closed:
                raise Closed("bus")
            feed, goal, live_id = self._feeds.get(session) or self._feeds.add(head), head.position, head.live_id
        subscription = feed.join(interest, buffer_bytes, goal, live_id)
        self._changed.set()
        return subscription

    async def run(self) -> None:
        """Read what is followed, for as long as the bus is open; a lost server is waited for."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._heads.run)
                tasks.start_soon(self._interrupt)
                await self._read_forever()
        finally:
            self._is_closed = True
            for feed in self._feeds.all:
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
            await self._look_at(self._feeds.all)  # a server that comes back may have come back with less
        except BaseException:
            await link.close()
            raise
        self._bells.clear()
        return link

    async def _interrupt(self) -> None:
        """Wake the blocked reader when somebody joins, as it does not block on the newcomer's session yet.

        The wake-up may reach the server before the blocking read does, so it is repeated until the reader has turned.
        Who join at the same time share it.
        """
        while True:
            await self._changed.wait()
            self._turned.clear()
            if self._client_id is not None and self._feeds:
                # If it fails nothing is blocked either, or this user may not: the read comes back by itself.
                with suppress(Unavailable):
                    await self._log.unblock(self._client_id, self._feeds.any)
            with anyio.move_on_after(0.02):
                await self._turned.wait()

    async def _read(self, link: Link) -> None:
        """One turn: block until something comes, and hand it out."""
        self._changed.clear()
        self._turned.set()
        if anyio.current_time() - self._looked > self.bounds.block_seconds:
            self._looked = anyio.current_time()
            await self._look_at(self._feeds.take_unseen(self.bounds.looks))
        if len(self._feeds) <= self.bounds.direct_sessions:
            self._bells.clear()
            if self._is_careful:
                await self._fetch_dirty(link)
            self._feeds.take_dirty()  # all are read now
            await self._read_directly(link)
        else:
            await self._enter_bells(link)
            await self._fetch_dirty(link)
            await self._read_by_bells(link)

    async def _read_directly(self, link: Link) -> None:
        asked = [Question(feed) for feed in self._feeds.all]
        streams = {name: place for question in asked for name, place in question.streams}
        if not streams:
            await self._changed.wait()
            return
        # The heads are read on the heels of the streams: an entry that they do not count is nobody's of the bus.
        heads = [head_command(self._keys, question.feed.session) for question in asked]
        try:
            reply, *replies = await self._blocked(link, streams, self.bounds.page_entries, heads)
            found = {name.decode(): page for name, page in _streams(reply)}
        except AnswerLost:
            self._is_careful = True
            for question in asked:
                self._feeds.mark(question.feed)
            raise
        except Refused as refusal:
            if refusal.is_transient:
                raise
            for question in asked:  # one of them is not what it should be: ask for each by itself
                self._feeds.mark(question.feed)
            await self._fetch_dirty(link, is_sure=True)
            return
        for question, head in zip(asked, replies, strict=True):
            count = self.bounds.page_entries
            await self._advance(question, found, read_head(question.feed.session, head), count, is_whole=False)
        await self._fetch_dirty(link)

    async def _blocked(
        self, link: Link, streams: Mapping[str, str], count: int, then: Sequence[Sequence[Argument]] = ()
    ) -> list[Reply | Refused]:
        bounds = self.bounds
        command: Sequence[Argument] = (
            "XREAD",
            "COUNT",
            count,
            "BLOCK",
            int(bounds.block_seconds * 1000),
            "STREAMS",
            *streams,
            *streams.values(),
        )
        try:
            with anyio.fail_after(bounds.block_seconds + bounds.silence_seconds):
                return await link.call_many([command, *then])
        except TimeoutError:
            raise Unavailable("server: no answer to a blocked read") from None

    async def _advance(
        self, asked: Question, found: Mapping[str, list[Entry]], head: SessionHead, count: int, *, is_whole: bool
    ) -> None:
        """Hand out what was read for one session, as far as no page could still lack something before it.

        Args:
            count: entries of each stream that were asked for.
            is_whole: all streams were read at one moment. A read that has blocked is not: Redis 7.0 answers it with the
                one stream that woke it, though the same script wrote to others too.
        """
        feed, lanes = asked.feed, asked.lanes
        if feed not in self._feeds:
            return  # all have left
        if not {*feed.lanes} <= {*lanes} or (feed.live is not None and feed.live != asked.live):
            self._feeds.mark(feed)  # somebody joined for another lane, or for live deltas: read again
            return
        if (gone := await self._gone(feed, head)) is not None:
            feed.fail(gone)
            return
        if head.trimmed > feed.position:
            if head.lacks(lanes, feed.position):
                feed.fail(CursorTrimmed(feed.session, str(Cursor(feed.position)), head.trimmed + 1))
                return
            feed.cursor = head.cursor_at(head.trimmed)  # nothing of these lanes stood there
        pages: list[Sequence[Entry]] = []
        bounds: list[int] = []
        for lane in lanes:
            page = found.get(feed.names[lane], [])
            if page and position_of(page[-1]) > head.position:
                await self._log.set_aside(feed.session, lane)
                page = [entry for entry in page if position_of(entry) <= head.position]
            elif len(page) == count:
                page = await self._log.with_rest(feed.session, lane, page, count)
                bounds.append(whole(page))
            pages.append(page)
        live = found.get(feed.live_name, []) if feed.live is not None else []
        if bounds:  # a delta behind the end of a full page would come before the entries that stand before it
            live = [delta for delta in live if position_of(delta) <= min(bounds)]
        if len(live) == count:
            bounds.append(position_of(live[-1]))
        end = max((position_of(page[-1]) for page in pages if page), default=feed.position)
        if len(lanes) < len(Lane):  # of two lanes the end is their last entry, as what were missing behind it is a loss
            end = max(end, asked.counted)
        bound = min([end, *bounds])
        if bound < end:
            pages = cut(pages, bound)
        is_behind = bound < end or bool(bounds)
        is_dense = len(lanes) < len(Lane) or has_all(pages, feed.position, bound)
        sized = _sized(feed, lanes, pages, is_dense=is_dense)
        deltas = [decode_delta(feed.session, entry) for entry in live]
        hole = None if is_dense else find_hole([envelope for envelope, *_ in sized], feed.position)
        if hole is not None and not is_whole:
            self._feeds.mark(feed)
            return
        if hole is not None:
            sized = [each for each in sized if each[0].position <= hole.after]
            feed.advance(sized, head, sized[-1][0].cursor if sized else feed.cursor, None)
            feed.fail(CursorTrimmed(feed.session, str(Cursor(hole.after)), hole.first_kept))
            return
        if deltas:
            sized += [(delta, _size(entry), True) for delta, entry in zip(deltas, live, strict=True)]
            sized.sort(key=lambda each: each[0].cursor)
        place = await cursor_at(self._log, head, bound, pages) if bound > feed.position else feed.cursor
        feed.advance(sized, head, place, deltas[-1].cursor if deltas else None)
        if is_behind:
            self._feeds.mark(feed)

    # --- many sessions: the bells ---------------------------------------------------------------------------------

    async def _enter_bells(self, link: Link) -> None:
        """Know the end of each bell before its sessions are fetched, so that nothing falls in between."""
        bells = self._feeds.bells
        for gone in self._bells.keys() - bells:
            del self._bells[gone]
        if not (new := [bell for bell in bells if bell not in self._bells]):
            return
        replies = await link.call_many([("XREVRANGE", bell, "+", "-", "COUNT", 1) for bell in new])
        for bell, reply in zip(new, replies, strict=True):
            newest = cast("list[Entry]", answered(reply))
            self._bells[bell] = newest[0][0].decode() if newest else "0-0"
            self._feeds.ring(bell)

    async def _read_by_bells(self, link: Link) -> None:
        (reply,) = await self._blocked(link, self._bells, self.bounds.bell_page)
        for name, page in _streams(reply):
            bell = name.decode()
            if not page:  # Redis 7.0, where an entry is gone again before it is read
                continue
            if len(page) == self.bounds.bell_page:  # so far behind that pointers may have been trimmed: entered anew
                del self._bells[bell]
                continue
            for _, fields in page:
                self._feeds.ring(bell, fields[1].decode(errors="replace"))
            self._bells[bell] = page[-1][0].decode()
        await self._fetch_dirty(link)

    async def _fetch_dirty(self, link: Link, *, is_sure: bool = False) -> None:
        """Read every session that changed, many in one round trip, until none is behind.

        Args:
            is_sure: read them also where their heads tell of nothing new.
        """
        while dirty := self._feeds.take_dirty():
            try:
                # Who begins to follow thousands marks them all, and hardly any has changed.
                is_many = len(dirty) > self.bounds.unsized_sessions and not is_sure
                changed = await self._moved(dirty) if is_many else dirty
                for some in batched(changed, self.bounds.sessions_at_once):
                    await self._fetch(link, [Question(feed) for feed in some])
            except BaseException:
                for feed in dirty:
                    self._feeds.mark(feed)
                raise
        self._is_careful, self._budget = False, self._log.bounds.page_bytes

    async def _fetch(self, link: Link, asked: list[Question]) -> None:
        if self._is_careful or len(asked) > self.bounds.unsized_sessions:
            portions = await self._portions(link, asked)
        else:
            portions = [Portion(asked, self.bounds.page_entries)]
        for portion in portions:
            try:
                await self._read_portion(link, portion)
            except AnswerLost:
                if not self._is_careful:
                    self._is_careful = True
                elif len(portion.questions) > 1 or portion.count > 1:
                    self._budget = max(self._budget // 2, 1)
                else:
                    portion.questions[0].feed.let_go()
                raise

    async def _portions(self, link: Link, asked: list[Question]) -> list[Portion]:
        """Divide what is asked, by its size, so that no reply is larger than the budget."""
        names = [self._keys.head(question.feed.session) for question in asked]
        replies = await link.call_many([("HMGET", name, "position", "bytes", "trimmed", "live") for name in names])
        portions: list[Portion] = []
        room = -1  # in the last portion
        for question, reply in zip(asked, replies, strict=True):
            size, count = self._budget + 1, self.bounds.page_entries
            if not isinstance(reply, Refused):
                size = question.unread_bytes(cast("list[bytes | None]", reply))
            if size > self._budget:
                count = max(1, self._budget // (max(len(question.streams), 1) * MESSAGE_LIMIT_BYTES))
                portions.append(Portion([question], min(count, self.bounds.page_entries)))
                room = -1  # in the last portion
            elif size <= room:
                portions[-1].questions.append(question)
                room -= size
            else:
                portions.append(Portion([question], count))
                room = self._budget - size
        return portions

    async def _read_portion(self, link: Link, portion: Portion) -> None:
        asked, count = portion.questions, portion.count
        # One XREAD sees all of a session at one moment; several XRANGE would not.
        commands: list[Sequence[Argument]] = []
        for question in asked:
            names, places = zip(*question.streams, strict=True) if question.streams else ((), ())
            commands.append(("XREAD", "COUNT", count, "STREAMS", *names, *places))
            commands.append(head_command(self._keys, question.feed.session))
        replies = await link.call_many(commands)
        for question, reply, head in zip(asked, replies[::2], replies[1::2], strict=True):
            if isinstance(reply, Refused) and not reply.is_transient:
                question.feed.fail(reply)
                continue
            found = {name.decode(): page for name, page in _streams(reply)}
            await self._advance(question, found, read_head(question.feed.session, head), count, is_whole=True)

    async def _moved(self, feeds: Sequence[Feed]) -> list[Feed]:
        """Those that are not, or not surely, where they were when they were read."""
        found = await self._log.glances([feed.session for feed in feeds])
        return [feed for feed in feeds if not feed.is_at(found[feed.session])]

    async def _look_at(self, feeds: Sequence[Feed]) -> None:
        """See whether a log lost its end or began as a fork, which no blocked read would ever tell."""
        for some in batched(await self._moved(feeds), self._log.bounds.heads):
            heads = await self._log.heads([feed.session for feed in some])
            for feed, head in zip(some, heads, strict=True):
                if (gone := await self._gone(feed, head)) is not None:
                    feed.fail(gone)
                elif feed.falls_short_of(head):
                    self._feeds.mark(feed)

    async def _gone(self, feed: Feed, head: SessionHead) -> SessionErased | LogRolledBack | CursorTrimmed | None:
        """Why the log is not the one that was read any more; None if it is."""
        if head.is_erased:
            return SessionErased(feed.session)
        try:
            found = await agreed(self._log, head, feed.proof)
        except CursorTrimmed as unproven:
            return unproven
        if found < feed.position:
            return LogRolledBack(feed.session, feed.position, found)
        if feed.precedes_fork(head):  # followers read the shared entries from the log, which knows the parent
            return CursorTrimmed(feed.session, str(Cursor(feed.position)), head.own_start.position + 1)
        return None


def _sized(feed: Feed, lanes: Sequence[Lane], pages: Sequence[Sequence[Entry]], *, is_dense: bool) -> list[Sized]:
    """The envelopes that somebody may want, in the order of their ids; all of them where a hole is to be looked for."""
    sized: list[Sized] = []
    filled = 0
    for lane, page in zip(lanes, pages, strict=True):
        if page and is_dense and feed.selection.names is not None:
            page = [entry for entry in page if feed.selection.may_take(lane, entry)]  # noqa: PLW2901  # shorter
        if page:
            filled += 1
            envelopes = merge(feed.session, ((lane, page),), position_of(page[-1]))
            sized += [(envelope, _size(entry), False) for envelope, entry in zip(envelopes, page, strict=True)]
    if filled > 1:
        sized.sort(key=lambda each: (each[0].position, each[0].delta))
    return sized


def _size(entry: Entry) -> int:
    return len(entry[1][-1])


def _streams(reply: Reply | Refused) -> list[tuple[bytes, list[Entry]]]:
    return cast("list[tuple[bytes, list[Entry]]]", answered(reply) or [])
