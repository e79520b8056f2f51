"""Connections to a server, without the client library's automatic behaviour.

The library sends a command again after a lost answer, which would append twice and skip entries of a group. It ends
blocking reads by a timeout, and the form of its replies depends on the protocol. A `Connection` never retries, speaks
RESP2 and returns bytes. The owner of a connection decides what may be sent again.

The library connects and logs in. Then a `Pipeline` takes over the transport.
"""

import asyncio
from asyncio.trsock import TransportSocket
from collections.abc import Callable, Sequence
from typing import Protocol, cast

import hiredis
from redis.asyncio.connection import AbstractConnection

from lanebus.bus.errors import Redirected, Refused, Unavailable
from lanebus.bus.servers.bounds import ConnectionBounds
from lanebus.bus.servers.pipeline import Done, Pipeline, Request
from lanebus.bus.servers.replies import Argument, Reply, answered, is_ask
from lanebus.bus.servers.route_state import RouteState

__all__ = ("Connection", "Route")

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
