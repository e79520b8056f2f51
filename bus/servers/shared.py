"""One connection for many sessions: short calls that are sent in one write, and blocking reads of many streams."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, cast

import anyio

from lanebus.bus.concurrency import BusOrigin
from lanebus.bus.errors import Closed, Refused, Unavailable
from lanebus.bus.servers.calls import ConnectionBounds, answered

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence

    from lanebus.bus.servers.calls import Argument, Reply
    from lanebus.bus.servers.connection import Connection, Pool, Route
    from lanebus.bus.wire.codec import Entry


class _Call(NamedTuple):
    commands: Sequence[Sequence[Argument]]
    future: asyncio.Future[list[Reply | Refused]]


class GroupedPool:
    """A `Pool` that sends calls in groups through another pool.

    Calls that may take long, or that must not run twice, are not grouped. A cancelled caller does not affect the other
    calls of its group; the commands of the cancelled call may be executed.

    If a group fails, its calls are sent again separately and at the same time. So one failing call does not fail the
    other calls. A call that has no answer after another `answer_seconds` fails with the error of the group.
    """

    def __init__(self, pool: Pool, bounds: ConnectionBounds | None = None) -> None:
        self._pool, self._bounds, self._origin = pool, bounds or ConnectionBounds(), BusOrigin()
        self._waiting: deque[_Call] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        # This is not `len(self._tasks)`, because a task that found no more calls may not have ended yet.
        self._active = 0
        self._is_closed = False

    @property
    def has_connected(self) -> bool:
        """See `Pool`."""
        return self._pool.has_connected

    async def call(
        self, *command: Argument, at: str | None = None, more_seconds: float = 0.0, again: bool = True
    ) -> Reply:
        """See `Pool`."""
        if at is not None or more_seconds or not again:
            return await self._pool.call(*command, at=at, more_seconds=more_seconds, again=again)
        (reply,) = await self.call_many((command,))
        return answered(reply)

    async def call_many(
        self, commands: Sequence[Sequence[Argument]], *, more_seconds: float = 0.0
    ) -> list[Reply | Refused]:
        """See `Pool`."""
        if more_seconds:
            return await self._pool.call_many(commands, more_seconds=more_seconds)
        self._origin.check_running()
        if self._is_closed:
            raise Closed("bus")
        call = _Call(commands, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        if self._active < self._bounds.groups_in_flight:
            self._active += 1
            # The task starts in the next turn of the event loop, so all calls of this turn share a group.
            task = asyncio.create_task(self._run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await call.future

    async def call_each(self, *command: Argument) -> dict[str, Reply]:
        """See `Pool`."""
        return await self._pool.call_each(*command)

    def scan(self, match: str) -> AsyncGenerator[list[bytes], None]:
        """See `Pool`."""
        return self._pool.scan(match)

    async def close(self) -> None:
        """Fail all calls in flight. The other pool stays open; its owner closes it."""
        self._is_closed = True
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._fail(self._take(None), Closed("bus"))

    async def _run(self) -> None:
        group: list[_Call] = []
        try:
            while group := self._take(self._bounds.group_commands):
                await self._send(group)
        except BaseException as error:
            self._fail(group, error if isinstance(error, Exception) else Closed("bus"))
            raise
        finally:
            self._active -= 1

    async def _send(self, group: Sequence[_Call]) -> None:
        commands = [command for call in group for command in call.commands]
        try:
            replies = await self._pool.call_many(commands)
        except Exception as error:  # noqa: BLE001  # passed on to the callers
            if len(group) > 1:
                await self._send_each(group)
            self._fail(group, error)
            return
        at = 0
        for call in group:
            end = at + len(call.commands)
            if not call.future.done():
                call.future.set_result(replies[at:end])
            at = end

    async def _send_each(self, group: Sequence[_Call]) -> None:
        tasks = [asyncio.create_task(self._send((call,))) for call in group]
        try:
            await asyncio.wait(tasks, timeout=self._bounds.answer_seconds)
        finally:
            for task in tasks:
                task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.gather(*tasks, return_exceptions=True)

    def _take(self, limit: int | None) -> list[_Call]:
        """Remove and return calls whose callers still wait, with about `limit` commands (None: all)."""
        group: list[_Call] = []
        count = 0
        while self._waiting and (limit is None or count < limit):
            call = self._waiting.popleft()
            if not call.future.done():
                group.append(call)
                count += len(call.commands)
        return group

    def _fail(self, group: Sequence[_Call], error: Exception) -> None:
        for call in group:
            if not call.future.done():
                call.future.set_exception(error)


# Read streams, each after a position, and block until a stream has new entries.


class StreamReader:
    """Blocks on some streams of one server, on its own connection. Only one task at a time may use a reader.

    A new connection clears `positions`, because the server may have lost the end of a stream. So call `enter`
    before `read`.
    `connected` and `enter` replace a broken connection; the caller decides when.
    """

    def __init__(self, route: Route, streams: Iterable[str], *, silence: float) -> None:
        """
        Args:
            route: route to the server.
            streams: names of the streams.
            silence: seconds beyond its block time after which a read without a reply means that the connection is dead.
        """
        self._route, self._streams, self._silence = route, tuple(streams), silence
        self._connection: Connection | None = None
        self.positions: dict[str, str] = {}
        """the id in each stream after which the next `read` begins. A key that is not a stream is left out"""
        self.is_entered = False
        """whether `positions` are known"""

    @property
    def is_connected(self) -> bool:
        """Whether the reader has a connection that is not known to be broken."""
        return self._connection is not None and not self._connection.is_broken

    async def connected(self) -> Connection:
        """Return the connection. If there is none or it is broken, open a new connection.

        Raises:
            Unavailable: the server did not answer.
        """
        if self._connection is None or self._connection.is_broken:
            await self.close()
            self._connection = await self._route.connect()
            self.positions, self.is_entered = {}, False
        return self._connection

    async def enter(self) -> None:
        """Set the positions to the newest entry of each stream. Raises Unavailable."""
        self.positions = await last_ids(await self.connected(), self._streams)
        self.is_entered = True

    async def restart_if_rolled_back(self) -> bool:
        """If a stream has lost its last entries, begin to read all streams anew.

        The new entries of such a stream may have ids below the old position for a long time.

        Returns:
            Whether a stream has lost its end. If so, entries may have been missed.

        Raises:
            Unavailable: the server did not answer.
        """
        ends = await last_ids(self._entered(), self._streams)
        known = self.positions.items()
        if ends.keys() == self.positions.keys() and all(_number(ends[name]) >= _number(at) for name, at in known):
            return False
        self.positions = ends
        return True

    async def read(self, count: int, seconds: float) -> dict[str, list[Entry]]:
        """Wait for entries after the positions, and move the positions past them.

        Args:
            count: maximum number of entries of each stream.
            seconds: how long to wait; at least a millisecond.

        Returns:
            The new entries by stream; see `pages_of`. Empty if no entries came.

        Raises:
            Unavailable: the server did not answer, or the connection is dead.
        """
        connection, positions = self._entered(), self.positions
        if not positions:
            await anyio.sleep(max(seconds, 0.0))
            return {}
        pages, _ = await read_blocking(connection, positions, count=count, seconds=seconds, silence=self._silence)
        for stream, entries in pages.items():
            if entries:
                positions[stream] = entries[-1][0].decode()
        return pages

    async def close(self) -> None:
        """Close the connection. Closing twice is allowed."""
        if self._connection is not None:
            await self._connection.close()

    def _entered(self) -> Connection:
        if self._connection is None:
            raise Unavailable("server: not connected yet")
        return self._connection


async def last_ids(connection: Connection, streams: Iterable[str]) -> dict[str, str]:
    """Return the id of the newest entry of each stream; `0-0` for an empty stream.

    A key that is not a stream is left out: a foreign client has replaced it, and the other streams can be read.

    Raises:
        Unavailable: the server did not answer, or refused to read any stream.
    """
    names = tuple(streams)
    replies = await connection.call_many([("XREVRANGE", name, "+", "-", "COUNT", 1) for name in names])
    newest = {
        name: cast("list[Entry]", answered(reply))
        for name, reply in zip(names, replies, strict=True)
        if not (isinstance(reply, Refused) and reply.code == "WRONGTYPE")
    }
    return {name: page[0][0].decode() if page else "0-0" for name, page in newest.items()}


async def read_blocking(
    connection: Connection,
    positions: Mapping[str, str],
    *,
    count: int,
    seconds: float,
    silence: float,
    then: Sequence[Sequence[Argument]] = (),
) -> tuple[dict[str, list[Entry]], list[Reply | Refused]]:
    """Wait until one of the streams has entries after its position, and read these entries.

    Args:
        connection: the connection, which is blocked for the time of the read.
        positions: the streams, each with the id to read after.
        count: maximum number of entries of each stream.
        seconds: how long the server waits for entries; at least a millisecond.
        silence: seconds beyond `seconds` after which a missing answer means that the connection is dead.
        then: commands that are sent in the same write. The server runs them after the read.

    Returns:
        The new entries by stream, see `pages_of`, and the replies to `then`.

    Raises:
        Refused: one of the keys is not a stream; the connection still works.
        Unavailable: the connection broke, or the answer did not come in time.
    """
    block = max(int(max(seconds, 0.0) * 1000), 1)
    command: Sequence[Argument] = ("XREAD", "COUNT", count, "BLOCK", block, "STREAMS", *positions, *positions.values())
    try:
        with anyio.fail_after(block / 1000 + silence):
            reply, *replies = await connection.call_many([command, *then])
    except TimeoutError:
        raise Unavailable("server: no answer to a blocked read") from None
    return pages_of(reply), replies


def pages_of(reply: Reply | Refused) -> dict[str, list[Entry]]:
    """Return the entries of each stream in the reply to XREAD.

    Redis 7.0 also names a stream whose new entries were removed before they were read. Its page is empty.

    Raises:
        Refused: the server refused the read.
    """
    return {name.decode(): page for name, page in cast("list[tuple[bytes, list[Entry]]]", answered(reply) or [])}


def _number(entry_id: str) -> tuple[int, int]:
    milliseconds, _, count = entry_id.partition("-")
    return int(milliseconds), int(count)
