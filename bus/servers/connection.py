"""Connections to a server, without the client library's automatic behaviour, and pools of connections.

The library sends a command again after a lost answer, which would append twice and skip entries of a group. It ends
blocking reads by a timeout, and the form of its replies depends on the protocol. A `Connection` never retries, speaks
RESP2 and returns bytes. The owner of a connection decides what may be sent again.

The library connects and logs in. Then a `Pipeline` takes over the transport.
"""

import asyncio
import os
from asyncio.trsock import TransportSocket
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from socket import SHUT_RDWR, socket
from typing import Protocol, cast

import anyio
import hiredis
from redis.asyncio.connection import AbstractConnection

from lanebus.bus.concurrency import BusOrigin
from lanebus.bus.errors import AnswerLost, Closed, Redirected, Refused, Unavailable, Unconnectable
from lanebus.bus.servers.calls import Argument, Backoff, ConnectionBounds, Reply, answered, is_ask, refusal_of

# Send requests on a connection and match the replies, which arrive in the order of the requests.
#
# Replies are handled in a callback, which saves a task switch for each reply. Every request has a time limit, which
# callers cannot omit: if no byte moves for the `seconds` of the oldest request, the connection is broken.

Done = Callable[[list[Reply | Refused] | Unavailable], None]
"""A function that is called with one reply for each command, or with the error if the replies did not arrive."""


@dataclass(slots=True, eq=False)
class Request:
    """Commands that were sent together, and the replies so far."""

    count: int
    """number of commands, each of which gets one reply"""
    done: Done
    seconds: float
    """time without a byte in either direction after which the connection is broken"""
    replies: list[Reply | Refused]


class Pipeline(asyncio.Protocol):
    """Writes requests to a transport, and passes the replies to each request to its `Request.done`."""

    def __init__(self, transport: asyncio.Transport, refused: Callable[[Refused], None]) -> None:
        """
        Args:
            transport: the connected transport, which this object takes over.
            refused: called with each error reply, before `Request.done` of the request.
        """
        self.transport, self._refused = transport, refused
        transport.set_protocol(self)
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader()
        self._requests: deque[Request] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._last_byte_at = 0.0
        self._unsent = 0
        self.fault: Unavailable | None = None
        """the error that broke the connection; None while the connection works"""

    def submit(self, data: Sequence[bytes], request: Request) -> None:
        """Write a request.

        Raises:
            Unavailable: the connection broke before any byte of the request was sent.
        """
        was_empty = not self.transport.get_write_buffer_size()
        if not self._requests:
            self._last_byte_at = self._loop.time()
        self.transport.writelines(data)
        if self.transport.is_closing():  # the connection broke during this write
            fault = Unavailable("server: the connection broke")
            if not was_empty:
                self._requests.append(request)
            self.fail(fault)
            if was_empty:
                raise fault
            return
        self._requests.append(request)
        when = self._last_byte_at + self._requests[0].seconds
        if self._timer is None or self._timer.when() > when:
            self._set_timer(when)

    def data_received(self, data: bytes) -> None:
        self._last_byte_at = self._loop.time()
        reader = self._reader
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not False:
                self._take(reply)
        except hiredis.HiredisError:
            self.fail(Unavailable("server: the reply is not RESP", "check that the URL names a Redis or Valkey server"))

    def _take(self, reply: object) -> None:
        if not self._requests:  # a reply without a request: the server says why it closes the connection
            return
        request = self._requests[0]
        if isinstance(reply, hiredis.ReplyError):
            refusal = refusal_of(str(reply))
            self._refused(refusal)
            request.replies.append(refusal)
        else:
            request.replies.append(cast("Reply", reply))
        if len(request.replies) == request.count:
            self._requests.popleft()
            request.done(request.replies)

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(AnswerLost(f"server: {type(exc).__name__ if exc else 'it closed the connection'}"))

    def fail(self, fault: Unavailable) -> None:
        """Break the connection and fail all requests. The server may still execute commands that were written."""
        if self.fault is not None:
            return
        self.fault = fault
        # Shut down now, not in the next turn of the event loop: a blocking read on the server could still take entries.
        # A copy is shut down, because uvloop's transports do not lend their sockets.
        with suppress(OSError), socket(fileno=os.dup(self.transport.get_extra_info("socket").fileno())) as copy:
            copy.shutdown(SHUT_RDWR)
        self.transport.abort()  # not `close`, which would wait until the dead connection has accepted all bytes
        if self._timer is not None:
            self._timer.cancel()
        requests, self._requests = self._requests, deque()
        for request in requests:
            request.done(fault)

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._check)

    def _check(self) -> None:
        """Break the connection if no byte has moved for too long.

        One timer serves all requests, because most requests are answered long before it fires.
        """
        self._timer = None
        if not self._requests:
            return
        unsent, self._unsent = self._unsent, self.transport.get_write_buffer_size()
        if self._unsent < unsent:
            self._last_byte_at = self._loop.time()
        seconds = self._requests[0].seconds
        if self._last_byte_at + seconds > self._loop.time():
            self._set_timer(self._last_byte_at + seconds)
        else:
            self.fail(Unavailable(f"server: no answer within {seconds:g} s"))


# The state that the connections of one route share: whether the route still leads to the right server.


class RouteState(Protocol):
    """Routing state that the connections to one server share. Invalidating the state breaks all these connections."""

    @property
    def is_over(self) -> bool:
        """Whether the route leads to the wrong server. If so, all connections that were made with it are broken."""
        ...

    def invalidate(self, refusal: Refused) -> None:
        """Handle an error reply that shows that the route leads to the wrong server."""
        ...

    async def ask(self, redirect: Redirected, command: Sequence[Argument]) -> Reply | Refused:
        """Send one command to the server that an ASK redirect names. The route does not change for later commands."""
        ...


class FixedRouteState:
    """Routing state for a server that never redirects: a single server, or the primary that Sentinels name."""

    def __init__(self) -> None:
        self.is_over = False

    def invalidate(self, refusal: Refused) -> None:
        """See `RouteState`."""
        del refusal
        self.is_over = True

    async def ask(self, redirect: Redirected, command: Sequence[Argument]) -> Reply | Refused:
        """Return the redirect unchanged, because there is no other server."""
        del command
        return redirect


# The stub is wrong: the function takes a tuple of any length and returns bytes. It is much faster than the packing of
# the client library.
_pack = cast("Callable[[tuple[Argument, ...]], bytes]", hiredis.pack_command)  # pyright: ignore[reportUnknownMemberType]


class Route(Protocol):
    """Connects to the server that currently holds a key."""

    async def connect(self) -> "Connection":
        """Open a connection and log in.

        Raises:
            Unavailable: the server did not answer.
            LoginRefused: the server refused the user or password.
        """
        ...


class ServerRoute(Route, Protocol):
    """A `Route` that leads to one server for all keys."""

    @property
    def address(self) -> str:
        """Where the server is, as `host:port` or the path of a unix socket; "" if that is not known yet."""
        ...


class Connection:
    """One connection to a server. If a call fails or is cancelled before its answer, the connection is broken."""

    def __init__(self, connection: AbstractConnection, state: RouteState, bounds: ConnectionBounds) -> None:
        """
        Args:
            connection: the library's connection, connected and logged in. This object owns it from now on.
            state: the routing state that the connections of the route share.
            bounds: the bounds. Only `answer_seconds` is used.
        """
        self._connection, self._state = connection, state
        self._seconds = bounds.answer_seconds
        self._is_broken = False
        self._was_redirected = False
        transport = cast("asyncio.Transport", connection._writer.transport)  # type: ignore[union-attr]  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]  # connected: it has one
        self._pipeline = Pipeline(transport, self._note_refusal)

    @property
    def is_broken(self) -> bool:
        """Whether the connection cannot be used any more: it failed, or its route now leads to another server."""
        return self._is_broken or self._pipeline.fault is not None or self._state.is_over

    @property
    def socket(self) -> TransportSocket | None:
        """The socket; None if the connection is closed."""
        return cast("TransportSocket | None", self._pipeline.transport.get_extra_info("socket"))

    def note_redirect(self, refusal: Refused) -> None:
        """Break this connection if an error reply shows that the connection needs a new login or leads to the wrong
        server.

        If the server is wrong, all connections of the route are broken.
        """
        if refusal.is_misled:
            self._is_broken = True
            self._state.invalidate(refusal)
        elif refusal.code == "NOAUTH":  # the connection would have to log in again
            self._is_broken = True

    async def call(self, *command: Argument, more_seconds: float = 0.0) -> Reply:
        """Send one command and wait for its answer.

        Args:
            command: the command's name and arguments.
            more_seconds: seconds that the server may take in addition to those of a short command. The time of a
                blocking read is added automatically.

        Raises:
            Refused: the server answered with an error and did nothing.
            Unavailable: the connection broke, or no answer came in time. The command may have been executed.
        """
        (reply,) = await self.call_many((command,), more_seconds=more_seconds)
        return answered(reply)

    async def call_many(
        self, commands: Sequence[Sequence[Argument]], *, more_seconds: float = 0.0
    ) -> list[Reply | Refused]:
        """Send several commands in one write and wait for all answers.

        If a cluster server redirects a command (ASK), this command and all later commands are sent again one by one. So
        no command sees an older state than the command before it. Several commands may be sent only if they are reads
        or may run twice.

        Args:
            commands: the commands.
            more_seconds: as for `call`.

        Returns:
            One reply for each command, in order. An error reply is a `Refused`.

        Raises:
            Unavailable: the connection broke, or no answer came in time. Any of the commands may have been executed.
        """
        self._was_redirected = False
        replies = await self._call_many(commands, more_seconds)
        return await self._redirected(commands, replies, more_seconds) if self._was_redirected else replies

    async def _call_many(self, commands: Sequence[Sequence[Argument]], more_seconds: float) -> list[Reply | Refused]:
        if not commands:
            return []
        answer: asyncio.Future[list[Reply | Refused]] = asyncio.get_running_loop().create_future()

        def done(replies: list[Reply | Refused] | Unavailable) -> None:
            if answer.done():
                return
            if isinstance(replies, Unavailable):
                answer.set_exception(replies)
            else:
                answer.set_result(replies)

        self.submit(commands, done, more_seconds=more_seconds)
        try:
            return await answer
        except BaseException:
            if answer.cancelled() or not answer.done():  # otherwise all answers arrived, or the connection is broken
                self._pipeline.fail(Unavailable("server: a cancelled call broke the connection"))
            else:
                answer.exception()  # retrieve the exception, or the event loop would log it
            raise

    async def _redirected(
        self, commands: Sequence[Sequence[Argument]], replies: list[Reply | Refused], more_seconds: float
    ) -> list[Reply | Refused]:
        first = next(index for index, reply in enumerate(replies) if is_ask(reply))
        for index in range(first, len(replies)):
            if index > first:
                (replies[index],) = await self._call_many((commands[index],), more_seconds)
            reply = replies[index]
            if isinstance(reply, Redirected) and is_ask(reply):
                replies[index] = await self._state.ask(reply, commands[index])
        return replies

    def submit(self, commands: Sequence[Sequence[Argument]], done: Done, *, more_seconds: float = 0.0) -> None:
        """Send commands in one write, without waiting.

        This never blocks: bytes that the server does not accept yet are buffered. So the owner must bound the bytes.

        Args:
            commands: the commands.
            done: called from the event loop with the answers. If the connection turns out to be broken, the call may
                come before `submit` returns.
            more_seconds: as for `call`.

        Raises:
            Unavailable: the connection is broken, and nothing was sent.
        """
        if self.is_broken:
            # Without this check the client library would reconnect, and old answers would be matched to new commands.
            self._is_broken = True
            raise Unavailable(str(self._pipeline.fault or "server: the connection is broken"))
        seconds = self._seconds + more_seconds + max(map(_blocks, commands))
        self._pipeline.submit(
            [_pack(tuple(command)) for command in commands], Request(len(commands), done, seconds, [])
        )

    def _note_refusal(self, refusal: Refused) -> None:
        self._was_redirected = self._was_redirected or is_ask(refusal)
        self.note_redirect(refusal)

    def leave(self) -> None:
        """Break the connection, because its server no longer serves the keys. Calls that wait raise `Unavailable`."""
        self._pipeline.fail(Unavailable("server: another server has become the primary"))

    async def close(self) -> None:
        """Close the connection. Calls that wait for an answer raise `Unavailable`. Closing twice is allowed."""
        self._is_broken = True
        self._pipeline.fail(Unavailable("server: the connection was closed"))
        await self._connection.disconnect(nowait=True)  # releases the transport without waiting


def _blocks(command: Sequence[Argument]) -> float:
    """Return for how many seconds the server blocks on a command; 0.0 if the command does not block."""
    if command[0] not in {"XREAD", "XREADGROUP"} or "BLOCK" not in command:
        return 0.0
    return int(command[command.index("BLOCK") + 1]) / 1000


# Connection pools for short calls that may be cancelled: reads, and scripts that may run twice.


class Pool(Protocol):
    """Sends each command to the server that holds its key."""

    @property
    def has_connected(self) -> bool:
        """Whether a connection succeeded at least once."""
        ...

    async def call(
        self, *command: Argument, at: str | None = None, more_seconds: float = 0.0, again: bool = True
    ) -> Reply:
        """Send one command and return its reply.

        The command may be sent twice, so it must be a read or an idempotent script, unless `again` is False.

        Args:
            command: the command's name and arguments.
            at: for a command without keys, a key on the server to use. None means the command's first key.
            more_seconds: seconds that the call may take in addition to those of a short call.
            again: whether the command may run twice. If False, it is sent again only if the server refused it.

        Raises:
            Refused: as for `Connection.call`. A refusal that is expected to pass within seconds is retried first.
            Unavailable: as for `Connection.call`.
        """
        ...

    async def call_many(
        self, commands: Sequence[Sequence[Argument]], *, more_seconds: float = 0.0
    ) -> list[Reply | Refused]:
        """Send several commands, in one write to each server. Commands for one session keep their order.

        See `call` for repetition and errors. The reply to a refused command is a `Refused`, which is not raised.
        """
        ...

    async def call_each(self, *command: Argument) -> dict[str, Reply]:
        """Send a command without keys to every primary, as `call` does. Return the replies by `ServerRoute.address`."""
        ...

    def scan(self, match: str) -> AsyncGenerator[list[bytes], None]:
        """Yield the keys that match a pattern, from all servers, in pages. A key may be yielded twice.

        Raises:
            Unavailable: a server did not answer.
        """
        ...

    async def close(self) -> None:
        """Close idle connections now, and connections in use when they are returned."""
        ...


class ConnectionPool:
    """The `Pool` of one server. Broken connections are not reused."""

    def __init__(self, route: ServerRoute, limit: int = 8, bounds: ConnectionBounds | None = None) -> None:
        """
        Args:
            route: route to the server.
            limit: maximum number of connections; further callers wait.
            bounds: timeouts and pauses; None means the defaults.
        """
        self._route, self._origin = route, BusOrigin()
        self._bounds = bounds or ConnectionBounds()
        self._limiter = anyio.CapacityLimiter(limit)
        self._idle: list[Connection] = []
        self._drops = 0
        self._is_closed = False
        self.has_connected = False
        """See `Pool`."""

    @property
    def borrowed(self) -> int:
        """Number of connections in use."""
        return self._limiter.borrowed_tokens

    @property
    def idle(self) -> tuple[Connection, ...]:
        """The idle connections."""
        return tuple(self._idle)

    async def call(
        self, *command: Argument, at: str | None = None, more_seconds: float = 0.0, again: bool = True
    ) -> Reply:
        """See `Pool`."""
        del at  # all keys are on one server
        (reply,) = await self._patiently((command,), more_seconds, again=again)
        return answered(reply)

    async def call_many(
        self, commands: Sequence[Sequence[Argument]], *, more_seconds: float = 0.0
    ) -> list[Reply | Refused]:
        """See `Pool`."""
        return await self._patiently(commands, more_seconds, again=True)

    async def call_each(self, *command: Argument) -> dict[str, Reply]:
        """See `Pool`."""
        reply = await self.call(*command)
        return {self._route.address: reply}

    async def scan(self, match: str) -> AsyncGenerator[list[bytes], None]:
        """See `Pool`."""
        cursor = b"0"
        while True:
            reply = await self.call("SCAN", cursor, "MATCH", match, "COUNT", self._bounds.scan_count)
            cursor, found = cast("tuple[bytes, list[bytes]]", reply)
            yield found
            if cursor == b"0":
                return

    async def _patiently(
        self, commands: Sequence[Sequence[Argument]], more_seconds: float, *, again: bool
    ) -> list[Reply | Refused]:
        replies = await self.attempt(commands, more_seconds, again=again)
        if is_settled(replies):
            return replies
        backoff = patient_backoff(self._bounds)
        while not is_settled(replies) and await backoff.wait():
            # Send all commands again, because the reads of one call keep their order.
            replies = await self.attempt(commands, more_seconds, again=again)
        return replies

    async def attempt(
        self, commands: Sequence[Sequence[Argument]], more_seconds: float, *, again: bool
    ) -> list[Reply | Refused]:
        """Send commands in one write.

        If there is no answer and `again` is True, send the commands once more on a new connection.
        """
        try:
            return await self._once(commands, more_seconds)
        except Unconnectable:
            raise
        except Unavailable:
            await self.drop_idle()
            if not again:
                raise
            return await self._once(commands, more_seconds)

    async def _once(self, commands: Sequence[Sequence[Argument]], more_seconds: float) -> list[Reply | Refused]:
        async with self._borrow() as connection:
            return await connection.call_many(commands, more_seconds=more_seconds)

    @asynccontextmanager
    async def _borrow(self) -> AsyncGenerator[Connection, None]:
        """Borrow a connection for the length of the block.

        Raises:
            Closed: the bus is closed.
            OpenedElsewhere: this is another process or event loop than that of the bus.
            Unavailable: as for `Route.connect`.
        """
        self._origin.check_running()
        async with self._limiter:
            if self._is_closed:
                raise Closed("bus")
            connection = self._idle.pop() if self._idle else await self._route.connect()
            self.has_connected = True
            drops = self._drops
            try:
                yield connection
            finally:
                if connection.is_broken or self._is_closed or drops != self._drops:
                    await connection.close()
                else:
                    self._idle.append(connection)

    async def drop_idle(self) -> None:
        """Close all connections after a connection was found dead, because the others may be dead too.

        Idle connections are closed now, connections in use when they are returned. A dead connection is noticed only
        when it is used.
        """
        self._drops += 1
        while self._idle:
            await self._idle.pop().close()

    async def close(self) -> None:
        """See `Pool`."""
        self._is_closed = True
        await self.drop_idle()


def is_settled(replies: Sequence[Reply | Refused]) -> bool:
    """Return whether the replies are final: no reply is a refusal that is expected to pass within seconds."""
    return not any(isinstance(reply, Refused) and reply.is_retryable for reply in replies)


def patient_backoff(bounds: ConnectionBounds) -> Backoff:
    """Return the backoff for a short call. The backoff gives up after `retrying_seconds`."""
    return Backoff(bounds.first_pause_seconds, bounds.longest_pause_seconds, patience=bounds.retrying_seconds)
