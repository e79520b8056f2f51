"""The hub reads the followed sessions of a shard for all subscriptions, and decodes each entry once.

If few sessions are followed, the hub blocks on the sessions' own streams, which saves a round trip. Otherwise it blocks
on the indexes of the sessions' buckets, and then reads the sessions that changed. A subscription begins at the hub's
cursor. Its follower reads the log up to the same cursor, so no entry is missing in between.

The hub notices that a log lost its end when it reads the session's next entry, and after each reconnect. It also checks
quiet sessions in turn, 2,000 every 5 seconds. So with ten thousand sessions each is checked within half a minute.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import anyio

from lanebus.bus.errors import (
    AnswerLost,
    BusError,
    Closed,
    CursorTrimmed,
    EntriesMissing,
    HeadMissing,
    LogRolledBack,
    Refused,
    SessionDamaged,
    SessionErased,
    Unavailable,
    is_of_session,
)
from lanebus.bus.following.subscription import (
    BUFFER_BYTES,
    FollowedSessions,
    HubBounds,
    Subscription,
    SubscriptionOptions,
)
from lanebus.bus.log.lineage import common_position, cursor_at
from lanebus.bus.log.log import Log, batched, count_in, head_command, read_head
from lanebus.bus.log.reading import Gap, cut, find_gap, has_all, lane_of, last_own, merge, size_of, whole, with_rest
from lanebus.bus.messages.base import Lane
from lanebus.bus.servers.calls import Backoff
from lanebus.bus.servers.shared import last_ids, pages_of, read_blocking
from lanebus.bus.text import logged
from lanebus.bus.wire.codec import MESSAGE_LIMIT_BYTES, Cursor, decode_delta, position_of
from lanebus.bus.wire.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from lanebus.bus.following.subscription import FollowedSession, Sized
    from lanebus.bus.log.log import SessionHead
    from lanebus.bus.servers.calls import Argument, Reply
    from lanebus.bus.servers.connection import Connection, Route
    from lanebus.bus.wire.codec import Entry


class Hub:
    """Reads the followed sessions of one shard. Subscriptions get entries only while `run` runs."""

    def __init__(self, route: Route, keys: Keys, log: Log, bounds: HubBounds | None = None) -> None:
        self.bounds = bounds or HubBounds()
        self._route, self._keys, self._log, self._heads = route, keys, log, Heads(log)
        self._sessions = FollowedSessions(keys, self.bounds)
        self._delivery = Delivery(log, self._sessions)
        self._batches = BatchReader(log, keys, self._sessions, self._delivery, self.bounds)
        self._index_ids: dict[str, str] = {}
        """for each index that is read, the id of the last entry read from it"""
        self._changed = asyncio.Event()
        self._turned = asyncio.Event()
        self._client_id: int | None = None
        self._checked_at = 0.0
        self._is_closed = False
        self.fell_behind = 0
        """how often a follower was too slow, and read the log again"""

    @property
    def followed(self) -> dict[str, int]:
        """The number of subscriptions of each followed session."""
        return {followed.session: len(followed.subscriptions) for followed in self._sessions.all}

    @property
    def lags(self) -> list[tuple[int, int]]:
        """For each follower, the number of buffered entries that the follower has not taken, and the bytes of their
        JSON."""
        return [subscription.lag for followed in self._sessions.all for subscription in followed.subscriptions]

    async def subscribe(
        self, session: str, options: SubscriptionOptions, buffer_bytes: int = BUFFER_BYTES
    ) -> Subscription:
        """Subscribe to a session from the hub's cursor on. A cancelled call leaves no subscription.

        Args:
            session: id of the session.
            options: what the subscription delivers.
            buffer_bytes: bound of the buffer for a slow follower, in bytes of JSON.

        Raises:
            SessionErased: the session was erased.
            Unavailable: the server did not answer.
            Closed: the bus is closed.
        """
        if self._is_closed:
            raise Closed("bus")
        followed, head = self._sessions.get(session), None
        # The head is read because the hub may not have read the last publish of this process yet. If the session had no
        # live subscription so far, only the head tells where its live deltas end. The deltas before that end, which may
        # be too many for a buffer, are read from the log.
        if followed is None or options.state or (options.live and followed.live is None):
            head = await self._heads.of(session)
            if head.is_erased:
                raise SessionErased(session)
            if self._is_closed:
                raise Closed("bus")
            followed = self._sessions.get(session) or self._sessions.add(head)
        subscription = followed.join(options, buffer_bytes, head)
        self._changed.set()
        return subscription

    async def run(self) -> None:
        """Read the followed sessions until cancelled. Reconnect with backoff."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._heads.run)
                tasks.start_soon(self._interrupt)
                await self._read_forever()
        finally:
            self._is_closed = True
            for followed in self._sessions.all:
                followed.fail(Closed("bus"))

    async def _read_forever(self) -> None:
        connection: Connection | None = None
        backoff = Backoff(0.01, 0.5)
        try:
            while True:
                if not self._sessions:
                    self._changed.clear()
                    await self._changed.wait()
                try:
                    if connection is None or connection.is_broken:
                        connection = await self._reconnected(connection)
                    await self._read(connection)
                    backoff.reset()
                except Unavailable:
                    await backoff.wait()
        finally:
            if connection is not None:
                await connection.close()

    async def _reconnected(self, old: Connection | None) -> Connection:
        self._client_id = None
        if old is not None:
            await old.close()
        connection = await self._route.connect()
        try:
            self._client_id = cast("int", await connection.call("CLIENT", "ID"))
            # A server that was restarted may have lost the end of a log.
            await check_logs(self._log, self._sessions, self._sessions.all)
        except BaseException:
            await connection.close()
            raise
        self._index_ids.clear()
        return connection

    async def _interrupt(self) -> None:
        """Interrupt the blocked read when a subscription begins, because this read does not cover the new session.

        The interruption may reach the server before the blocking read does, so it is repeated until the next read has
        begun. Subscriptions that begin at the same time share one interruption.
        """
        while True:
            await self._changed.wait()
            self._turned.clear()
            if self._client_id is not None and self._sessions:
                # An error is harmless: if the server user may not unblock clients, the read returns later.
                with suppress(Unavailable):
                    await self._log.unblock(self._client_id, self._sessions.any)
            with anyio.move_on_after(0.02):
                await self._turned.wait()

    async def _read(self, connection: Connection) -> None:
        """Block until a followed session changes, and deliver its entries."""
        self._changed.clear()
        self._turned.set()
        if anyio.current_time() - self._checked_at > self.bounds.block_seconds:
            self._checked_at = anyio.current_time()
            await check_logs(self._log, self._sessions, self._sessions.take_unseen(self.bounds.checked_sessions))
        if len(self._sessions) <= self.bounds.direct_sessions:
            self._index_ids.clear()
            if self._batches.is_careful:
                await self._batches.read_marked(connection)
            self._sessions.take_dirty()  # the next read covers all sessions, so their marks are removed
            await self._read_directly(connection)
        else:
            await self._enter_indexes(connection)
            await self._batches.read_marked(connection)
            await self._read_by_indexes(connection)

    async def _read_directly(self, connection: Connection) -> None:
        """Block on the streams of all followed sessions."""
        requests = [ReadRequest(followed) for followed in self._sessions.all]
        streams = {name: after for request in requests for name, after in request.streams}
        if not streams:
            await self._changed.wait()
            return
        # Heads are read right after the streams, so an entry above the head position was written by a foreign client.
        heads = [head_command(self._keys, request.followed.session) for request in requests]
        try:
            found, replies = await self._blocked(connection, streams, self.bounds.page_entries, heads)
        except AnswerLost:
            self._batches.is_careful = True
            for request in requests:
                self._sessions.mark(request.followed)
            raise
        except Refused as refusal:
            if refusal.is_transient:
                raise
            for request in requests:  # a key has the wrong type: read the sessions separately to find it
                self._sessions.mark(request.followed)
            await self._batches.read_marked(connection, is_sure=True)
            return
        for request, head_reply in zip(requests, replies, strict=True):
            with contained(request.followed):
                head = read_head(request.followed.session, head_reply)
                await self._delivery.deliver(request, found, head, self.bounds.page_entries, is_whole=False)
        await self._batches.read_marked(connection)

    async def _enter_indexes(self, connection: Connection) -> None:
        """Find the end of each index that is not read yet, and mark its sessions.

        The end is found before the sessions are read, so that no change in between is missed. An index that a foreign
        client has replaced is not read; `check_logs` finds the changes of its sessions.
        """
        indexes = self._sessions.indexes
        for index in self._index_ids.keys() - indexes:
            del self._index_ids[index]
        if not (new := [index for index in indexes if index not in self._index_ids]):
            return
        for index, newest in (await last_ids(connection, new)).items():
            self._index_ids[index] = newest
            self._sessions.mark_indexed(index)

    async def _read_by_indexes(self, connection: Connection) -> None:
        """Block on the indexes of all followed sessions, and read the sessions that they name."""
        if not self._index_ids:  # foreign clients have replaced them all: `check_logs` finds the changes
            with anyio.move_on_after(self.bounds.block_seconds):
                await self._changed.wait()
            return
        try:
            pages, _ = await self._blocked(connection, self._index_ids, self.bounds.index_page)
        except Refused as refusal:
            if not is_of_session(refusal):
                raise
            self._index_ids.clear()  # an index has the wrong type: enter the others again
            return
        for index, page in pages.items():
            if not page:  # Redis 7.0 returns an empty page if the new entry was removed before it was read
                continue
            if (
                len(page) == self.bounds.index_page
            ):  # the page is full, so entries may have been trimmed before they were read: find the index's end again
                del self._index_ids[index]
                continue
            for _, fields in page:
                self._sessions.mark_indexed(index, fields[1].decode(errors="replace"))
            self._index_ids[index] = page[-1][0].decode()
        await self._batches.read_marked(connection)

    async def _blocked(
        self, connection: Connection, streams: Mapping[str, str], count: int, then: Sequence[Sequence[Argument]] = ()
    ) -> tuple[dict[str, list[Entry]], list[Reply | Refused]]:
        seconds, silence = self.bounds.block_seconds, self.bounds.silence_seconds
        return await read_blocking(connection, streams, count=count, seconds=seconds, silence=silence, then=then)


# Concurrent callers share one round trip. The grouped pool sends one command for each caller, even if several ask for
# the same session. Starting to follow 2,000 sessions at once took 1.1 seconds with the grouped pool, and 0.7 with
# batches.


class Heads:
    """Reads heads in batches. Callers get answers only while `run` runs."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._waiting: list[tuple[str, asyncio.Future[SessionHead]]] = []
        self._asked = asyncio.Event()
        self._is_closed = False

    async def of(self, session: str) -> SessionHead:
        """Return the head of a session. The read starts after this call, so the result is never from an earlier read.

        Raises:
            SessionDamaged: the head is damaged.
            HeadMissing: the session has no head, but entries of the bus.
            Unavailable: the server cannot be reached.
            Closed: the bus is closed.
        """
        if self._is_closed:
            raise Closed("bus")
        answer: asyncio.Future[SessionHead] = asyncio.get_running_loop().create_future()
        self._waiting.append((session, answer))
        self._asked.set()
        return await answer

    async def run(self) -> None:
        """Answer callers until cancelled. After that, waiting callers and new callers get `Closed`."""
        batch: list[tuple[str, asyncio.Future[SessionHead]]] = []
        most = self._log.bounds.heads
        try:
            while True:
                if not self._waiting:
                    self._asked.clear()
                    await self._asked.wait()
                batch, self._waiting = self._waiting[:most], self._waiting[most:]
                await self._answer([(session, answer) for session, answer in batch if not answer.done()])
        finally:
            self._is_closed = True
            for _, answer in (*batch, *self._waiting):
                if not answer.done():
                    answer.set_exception(Closed("bus"))

    async def _answer(self, batch: list[tuple[str, asyncio.Future[SessionHead]]]) -> None:
        sessions = list(dict.fromkeys(session for session, _ in batch))
        try:
            found = dict(zip(sessions, await self._log.each_head(sessions), strict=True))
        except BusError as error:
            if is_of_session(error) and len(sessions) > 1:
                for one in batch:  # a key is damaged: answer each caller separately
                    await self._answer([one])
                return
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            return
        for session, answer in batch:
            head = found[session]
            if answer.done():
                continue
            if isinstance(head, BusError):
                answer.set_exception(head)
            else:
                answer.set_result(head)


# A server closes a connection whose replies exceed its `client-output-buffer-limit`. After a lost reply, or if many
# sessions have changed, the reader first asks for the sizes of the new entries, and then keeps each reply within a
# budget. Each further loss halves the budget. If the reply is lost even for a single entry, the session's followers
# read the log instead, which raises the reason.


class BatchReader:
    """Reads the followed sessions that a hub has marked, because they may have new entries."""

    def __init__(self, log: Log, keys: Keys, sessions: FollowedSessions, delivery: Delivery, bounds: HubBounds) -> None:
        self._log, self._keys, self._sessions, self._delivery, self._bounds = log, keys, sessions, delivery, bounds
        self._budget = log.bounds.page_bytes
        self.is_careful = False
        """whether to ask for sizes first. Set when a reply is lost, until every marked session was read"""

    async def read_marked(self, connection: Connection, *, is_sure: bool = False) -> None:
        """Read the marked sessions until no session is marked.

        Args:
            is_sure: read a session even if its head shows nothing new.

        Raises:
            Unavailable: the connection is lost. The sessions stay marked.
        """
        while marked := self._sessions.take_dirty():
            try:
                # A process that begins to follow thousands of sessions marks all of them, but few have changed.
                is_many = len(marked) > self._bounds.unsized_sessions and not is_sure
                changed = await changed_sessions(self._log, marked) if is_many else marked
                for group in batched(changed, self._bounds.sessions_at_once):
                    await self._read(connection, [ReadRequest(followed) for followed in group])
            except BaseException:
                for followed in marked:
                    self._sessions.mark(followed)
                raise
        self.is_careful, self._budget = False, self._log.bounds.page_bytes

    async def _read(self, connection: Connection, requests: list[ReadRequest]) -> None:
        if self.is_careful or len(requests) > self._bounds.unsized_sessions:
            batches = await self._divided(connection, requests)
        else:
            batches = [ReadBatch(requests, self._bounds.page_entries)]
        for batch in batches:
            try:
                await self._read_batch(connection, batch)
            except AnswerLost:
                if not self.is_careful:
                    self.is_careful = True
                elif len(batch.requests) > 1 or batch.count > 1:
                    self._budget = max(self._budget // 2, 1)
                else:
                    batch.requests[0].followed.drop()
                raise

    async def _divided(self, connection: Connection, requests: list[ReadRequest]) -> list[ReadBatch]:
        """Ask for the size of each request's reply, and divide the requests into batches.

        If the server refuses to tell a size, the request is read alone.
        """
        names = [self._keys.head(request.followed.session) for request in requests]
        replies = await connection.call_many(
            [("HMGET", name, "position", "bytes", "trimmed", "live") for name in names]
        )
        sized = [
            (
                request,
                self._budget + 1
                if isinstance(reply, Refused)
                else request.unread_bytes(cast("list[bytes | None]", reply)),
            )
            for request, reply in zip(requests, replies, strict=True)
        ]
        return divided(sized, self._budget, self._bounds.page_entries)

    async def _read_batch(self, connection: Connection, batch: ReadBatch) -> None:
        # One XREAD reads all streams of a session at one moment; several XRANGE would not.
        commands: list[Sequence[Argument]] = []
        for request in batch.requests:
            names, places = zip(*request.streams, strict=True) if request.streams else ((), ())
            commands.append(("XREAD", "COUNT", batch.count, "STREAMS", *names, *places))
            commands.append(head_command(self._keys, request.followed.session))
        replies = await connection.call_many(commands)
        for request, reply, head_reply in zip(batch.requests, replies[::2], replies[1::2], strict=True):
            with contained(request.followed):
                found = pages_of(reply)
                head = read_head(request.followed.session, head_reply)
                await self._delivery.deliver(request, found, head, batch.count, is_whole=True)


# Requests of a hub to read sessions, and their division into batches.

_LAST = 2**64 - 1


class ReadRequest:
    """The streams of one session to read, each with the id to read after.

    The values are copied from the followed session, because subscriptions may join during the read.
    """

    def __init__(self, followed: FollowedSession) -> None:
        self.followed, self.lanes = followed, followed.lanes
        self.live, self.newest = followed.live, followed.newest
        # Begin after the highest possible id of the position. Otherwise an entry `<position>-7` of a foreign client
        # would be read again and again.
        after = f"{followed.position}-{_LAST}"
        self.streams = [(followed.names[lane], followed.foreign.get(lane, after)) for lane in followed.lanes]
        if followed.live is not None:
            self.streams.append((followed.live_name, followed.live_id))

    def unread_bytes(self, stored: Sequence[bytes | None]) -> int:
        """Return the most bytes of JSON that the reply can have, if nothing more is appended.

        Args:
            stored: the current values of the head's fields position, bytes, trimmed and live. A damaged value counts as
                0: the head is read and checked with the entries.
        """
        position, held, trimmed = map(count_in, stored[:3])
        previous, live = self.followed.caught_up, 0
        if previous.trimmed == trimmed:  # after a trim it is unknown how many of the trimmed bytes were read before
            held -= previous.size_bytes
        words = (stored[3] or b"").split(b" ")
        if self.live is not None and len(words) > 1:
            live = count_in(words[1])
        return max(0, min(held, (position - self.followed.position) * MESSAGE_LIMIT_BYTES)) + live


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """Requests sent in one round trip."""

    requests: list[ReadRequest]
    count: int
    """maximum number of entries to read of each stream"""


def divided(sized: Iterable[tuple[ReadRequest, int]], budget: int, count: int) -> list[ReadBatch]:
    """Divide requests into batches whose replies stay within a budget.

    Args:
        sized: each request with the most bytes that its reply can have.
        budget: maximum number of bytes of one reply. A request with a larger reply gets a batch of its own, with fewer
            entries.
        count: maximum number of entries to read of each stream.
    """
    batches: list[ReadBatch] = []
    room = -1  # bytes left in the last batch
    for request, size in sized:
        if size > budget:
            few = max(1, budget // (max(len(request.streams), 1) * MESSAGE_LIMIT_BYTES))
            batches.append(ReadBatch([request], min(few, count)))
            room = -1
        elif size <= room:
            batches[-1].requests.append(request)
            room -= size
        else:
            batches.append(ReadBatch([request], count))
            room = budget - size
    return batches


_log = logging.getLogger(__name__)


class Delivery:
    """Checks and orders the entries that a hub has read, and offers the entries to the subscriptions."""

    def __init__(self, log: Log, sessions: FollowedSessions) -> None:
        self._log, self._sessions = log, sessions
        self._has_warned = False

    async def deliver(
        self, request: ReadRequest, found: Mapping[str, list[Entry]], head: SessionHead, count: int, *, is_whole: bool
    ) -> None:
        """Offer the entries of one session, up to the last position that the read covers in all lanes.

        If entries remain, the session is marked to be read again. If the log lost or trimmed entries that subscriptions
        need, all subscriptions of the session fail.

        Args:
            request: the request that was answered.
            found: the entries of each stream.
            head: the session's head, read after the entries.
            count: maximum number of entries of each stream that the read asked for.
            is_whole: whether all streams were read at one moment. False for a blocking read: Redis 7.0 returns only
                the stream that ended the wait, even if one script wrote to several streams.
        """
        followed, lanes = request.followed, request.lanes
        if followed not in self._sessions:
            return  # no subscription is left
        if not {*followed.lanes} <= {*lanes} or (followed.live is not None and followed.live != request.live):
            self._sessions.mark(followed)  # a new subscription needs another lane or live deltas: read again
            return
        if followed.foreign and head.position > followed.position:  # its entries may be below the foreign ones
            followed.foreign.clear()
            self._sessions.mark(followed)
            return
        if (lost := await why_lost(self._log, followed, head)) is not None:
            followed.fail(lost)
            return
        if head.trimmed > followed.position:
            if head.lacks(lanes, followed.position):
                followed.fail(CursorTrimmed(followed.session, str(Cursor(followed.position)), head.trimmed + 1))
                return
            followed.cursor = head.cursor_at(head.trimmed)  # the trimmed positions held no entries of these lanes
        try:
            pages, ends = await self._complete(followed, lanes, found, head, count)
        except HeadMissing as missing:
            followed.fail(missing)
            return
        live = found.get(followed.live_name, []) if followed.live is not None else []
        if ends:  # a delta after the end of a full page must wait for the entries that were not read yet
            live = [delta for delta in live if position_of(delta) <= min(ends)]
        if len(live) == count:
            ends.append(position_of(live[-1]))
        end = max((position_of(page[-1]) for page in pages if page), default=followed.position)
        if len(lanes) < len(Lane):  # positions without an entry are in the other lane. With both lanes they are a loss
            end = max(end, request.newest.position)
        bound = min([end, *ends])
        if bound < end:
            pages = cut(pages, bound)
        is_incomplete = bound < end or bool(ends)
        is_dense = len(lanes) < len(Lane) or has_all(pages, followed.position, bound)
        sized = _sized(followed, lanes, pages, is_dense=is_dense)
        deltas = [decode_delta(followed.session, entry) for entry in live]
        hole = None if is_dense else find_gap([envelope for envelope, *_ in sized], followed.position, bound)
        if hole is None and not is_incomplete:
            hole = _missing_end(request, head, pages, sized)
        if hole is not None and not is_whole:
            self._sessions.mark(followed)
            return
        if hole is not None:
            sized = [each for each in sized if each[0].position <= hole.after]
            followed.advance(sized, head, sized[-1][0].cursor if sized else followed.cursor, None)
            lane = lane_of(hole, head, lanes, pages, count)
            followed.fail(EntriesMissing(followed.session, str(Cursor(hole.after)), hole.first_kept, lane))
            return
        if deltas:
            sized += [(delta, size_of(entry), True) for delta, entry in zip(deltas, live, strict=True)]
            sized.sort(key=lambda each: each[0].cursor)
        cursor = await cursor_at(self._log, head, bound, pages) if bound > followed.position else followed.cursor
        followed.advance(sized, head, cursor, deltas[-1].cursor if deltas else None)
        if is_incomplete:
            self._sessions.mark(followed)

    async def _complete(
        self,
        followed: FollowedSession,
        lanes: Sequence[Lane],
        found: Mapping[str, list[Entry]],
        head: SessionHead,
        count: int,
    ) -> tuple[list[Sequence[Entry]], list[int]]:
        """Return the page of each lane, and for each full page the last position at which it is complete.

        Entries above the head position were written by a foreign client. They are left out of the page and quarantined.
        """
        pages: list[Sequence[Entry]] = []
        ends: list[int] = []
        for lane in lanes:
            page = found.get(followed.names[lane], [])
            if page and position_of(page[-1]) > head.position:
                await self._quarantine(followed, lane, page[-1][0])
                page = [entry for entry in page if position_of(entry) <= head.position]
            elif len(page) == count:
                page = await with_rest(self._log, followed.session, lane, page, count)
                ends.append(whole(page))
            pages.append(page)
        return pages, ends

    async def _quarantine(self, followed: FollowedSession, lane: Lane, last: bytes) -> None:
        """Quarantine foreign entries up to the id `last`.

        A process that may not write logs this once, leaves them in the stream, and reads this lane after them until the
        session has new entries of its own.
        """
        try:
            await self._log.quarantine(followed.session, lane)
        except Refused as refusal:
            if refusal.code != "NOPERM":
                raise
            followed.foreign[lane] = last.decode()
            if not self._has_warned:
                self._has_warned = True
                _log.warning(
                    "session %s has entries of a foreign client, and this process may not quarantine them: it leaves"
                    " them out, and the next process that publishes to the session quarantines them",
                    followed.session,
                )


def _missing_end(
    request: ReadRequest, head: SessionHead, pages: Sequence[Sequence[Entry]], sized: Sequence[Sized]
) -> Gap | None:
    """Return the gap if the streams end before the last entry that they had when they were read; None if they do not.

    The heads before and after the read both know that entry. An append during the read is known to the second only.
    """
    last = min(request.newest.last_in(request.lanes), head.last_in(request.lanes))
    position = request.followed.position
    found = max([position, *(last_own(page, last) for page in pages)])
    return Gap(len(sized), found, last + 1) if found < last else None


def _sized(
    followed: FollowedSession, lanes: Sequence[Lane], pages: Sequence[Sequence[Entry]], *, is_dense: bool
) -> list[Sized]:
    """Return the envelopes that a subscription may select, in the order of their ids.

    If `is_dense` is False, return all envelopes, because a gap is possible.
    """
    sized: list[Sized] = []
    filled = 0
    for lane, page in zip(lanes, pages, strict=True):
        if page and is_dense and followed.selection.names is not None:
            page = [entry for entry in page if followed.selection.may_take(lane, entry)]  # noqa: PLW2901  # shorter
        if page:
            filled += 1
            envelopes = merge(followed.session, ((lane, page),), position_of(page[-1]))
            sized += [(envelope, size_of(entry), False) for envelope, entry in zip(envelopes, page, strict=True)]
    if filled > 1:
        sized.sort(key=lambda each: (each[0].position, each[0].delta))
    return sized


# Check whether the log of a followed session still holds what the hub has read.


async def why_lost(
    log: Log, followed: FollowedSession, head: SessionHead
) -> SessionErased | LogRolledBack | CursorTrimmed | None:
    """Return why the log no longer holds what the hub has read; None if it still holds everything."""
    if head.is_erased:
        return SessionErased(followed.session)
    try:
        found = await common_position(log, head, followed.proof)
    except CursorTrimmed as unproven:
        return unproven
    if found < followed.position:
        return LogRolledBack(followed.session, followed.position, found)
    if followed.precedes_fork(head):  # this error makes followers read the shared entries from the log
        return CursorTrimmed(followed.session, str(Cursor(followed.position)), head.own_start.position + 1)
    return None


async def changed_sessions(log: Log, sessions: Sequence[FollowedSession]) -> list[FollowedSession]:
    """Return the sessions that have changed, or may have changed, since the hub read them."""
    found = await log.fingerprints([followed.session for followed in sessions])
    return [followed for followed in sessions if not followed.is_at(found[followed.session])]


async def check_logs(log: Log, all_followed: FollowedSessions, some: Sequence[FollowedSession]) -> None:
    """Check sessions for changes that a blocking read does not show.

    If a log lost its end or became a fork, the session's subscriptions fail. Sessions with unread entries are marked.

    Args:
        log: the log.
        all_followed: the hub's sessions, in which sessions are marked.
        some: the sessions to check.
    """
    for batch in batched(await changed_sessions(log, some), log.bounds.heads):
        heads = await log.each_head([followed.session for followed in batch])
        for followed, head in zip(batch, heads, strict=True):
            with contained(followed):
                if isinstance(head, BusError):
                    raise head
                if (lost := await why_lost(log, followed, head)) is not None:
                    raise lost
                if followed.note_new_entries(head):
                    all_followed.mark(followed)


@contextmanager
def contained(followed: FollowedSession) -> Generator[None, None, None]:
    """Pass an error of the block to the followers of one session, if it concerns this session alone.

    So the hub goes on with the other sessions.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, BusError):
            if isinstance(error, Closed) or (isinstance(error, Unavailable) and not is_of_session(error)):
                raise
            followed.fail(error)
            return
        _log.error("session %s cannot be followed", followed.session, exc_info=logged(error))
        followed.fail(SessionDamaged(followed.session, "its entries"))
