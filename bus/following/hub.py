"""The hub reads the followed sessions of a shard for all subscriptions, and decodes each entry once.

If few sessions are followed, the hub blocks on the sessions' own streams, which saves a round trip. Otherwise it blocks
on the indexes of the sessions' buckets, and then reads the sessions that changed. A subscription begins at the hub's
cursor. Its follower reads the log up to the same cursor, so no entry is missing in between.

The hub notices that a log lost its end when it reads the session's next entry, and after each reconnect. It also checks
quiet sessions in turn, 2,000 every 5 seconds. So with ten thousand sessions each is checked within half a minute.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import anyio

from lanebus.bus.errors import AnswerLost, Closed, Refused, SessionErased, Unavailable, is_of_session
from lanebus.bus.following.batch_reader import BatchReader
from lanebus.bus.following.delivery import Delivery
from lanebus.bus.following.followed_sessions import FollowedSessions
from lanebus.bus.following.log_checks import check_logs, contained
from lanebus.bus.following.read_request import ReadRequest
from lanebus.bus.following.subscription import BUFFER_BYTES, HubBounds, Subscription, SubscriptionOptions
from lanebus.bus.log.head import head_command, read_head
from lanebus.bus.log.heads import Heads
from lanebus.bus.log.log import Log
from lanebus.bus.servers.backoff import Backoff
from lanebus.bus.servers.stream_reader import last_ids, read_blocking
from lanebus.bus.wire.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lanebus.bus.servers.connection import Connection, Route
    from lanebus.bus.servers.replies import Argument, Reply
    from lanebus.bus.wire.codec import Entry

__all__ = ("Hub",)


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
