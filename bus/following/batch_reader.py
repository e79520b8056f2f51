"""Read many changed sessions in one round trip, with replies that are small enough for the server to send.

A server closes a connection whose replies exceed its `client-output-buffer-limit`. After a lost reply, or if many
sessions have changed, the reader first asks for the sizes of the new entries, and then keeps each reply within a
budget. Each further loss halves the budget. If the reply is lost even for a single entry, the session's followers read
the log instead, which raises the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lanebus.bus.errors import AnswerLost, Refused
from lanebus.bus.following.log_checks import changed_sessions, contained
from lanebus.bus.following.read_request import ReadBatch, ReadRequest, divided
from lanebus.bus.log.batches import batched
from lanebus.bus.log.head import head_command, read_head
from lanebus.bus.servers.stream_reader import pages_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanebus.bus.following.delivery import Delivery
    from lanebus.bus.following.followed_sessions import FollowedSessions
    from lanebus.bus.following.subscription import HubBounds
    from lanebus.bus.log.log import Log
    from lanebus.bus.servers.connection import Connection
    from lanebus.bus.servers.replies import Argument
    from lanebus.bus.wire.keys import Keys

__all__ = ("BatchReader",)


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
