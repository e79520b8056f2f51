"""Connections to a server, without the client library's automatic behaviour.

The library sends a command again after a lost answer, which would append twice and skip entries of a group. It ends
blocking reads by a timeout, and the form of its replies depends on the protocol. A `Connection` never retries, speaks
RESP2 and returns bytes; its owner decides what may be sent again.

The library connects and logs in; then a `Pipeline` takes over the transport.
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

# The stub is wrong: it takes a tuple of any length and returns bytes. Much faster than the client library's packing.
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


class Connection:
    """One connection. A call that ends before its answer, by an error or by cancellation, breaks it."""

    def __init__(self, connection: AbstractConnection, state: RouteState, bounds: ConnectionBounds) -> None:
        """
        Args:
            connection: connected and logged in; owned by this object from now on.
            state: shared with the other connections of the route.
            bounds: `answer_seconds` is used.
        """
        self._connection, self._state = connection, state
        self._seconds = bounds.answer_seconds
        self._is_broken = False
        self._was_redirected = False
        transport = cast("asyncio.Transport", connection._writer.transport)  # type: ignore[union-attr]  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]  # connected: it has one
        self._pipeline = Pipeline(transport, self._note_refusal)

    @property
    def is_broken(self) -> bool:
        """Nothing more can be sent on it, or its route now leads to another server."""
        return self._is_broken or self._pipeline.fault is not None or self._state.is_over

    @property
    def socket(self) -> TransportSocket | None:
        """The socket; None if the connection is closed."""
        return cast("TransportSocket | None", self._pipeline.transport.get_extra_info("socket"))

    def note_redirect(self, refusal: Refused) -> None:
        """Break this connection if an error reply shows that it needs a new login or has the wrong server.

        A wrong server breaks all connections of the route.
        """
        if refusal.is_misled:
            self._is_broken = True
            self._state.invalidate(refusal)
        elif refusal.code == "NOAUTH":  # it would have to log in again
            self._is_broken = True

    async def call(self, *command: Argument, more_seconds: float = 0.0) -> Reply:
        """Send one command and wait for its answer.

        Args:
            command: the name and its arguments.
            more_seconds: how much longer than a short command the server may take. The time of a blocking read is added
                automatically.

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

        If a cluster server redirects one of them (ASK), it and the later ones are sent again one by one. So none sees
        an older state than a previous one, and only reads or commands that may run twice may be sent together.

        Args:
            commands: the commands.
            more_seconds: as for `call`.

        Returns:
            One reply for each command, in order; a `Refused` for an error reply.

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
            if answer.cancelled() or not answer.done():  # else all answers are there, or the connection is broken
                self._pipeline.fail(Unavailable("server: a cancelled call broke the connection"))
            else:
                answer.exception()  # retrieved: the event loop would log an unretrieved exception
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

        This never blocks: bytes that the server does not accept yet are buffered, so the owner bounds them.

        Args:
            commands: the commands.
            done: called with the answers, from the event loop; before this returns if the connection turns out broken.
            more_seconds: as for `call`.

        Raises:
            Unavailable: the connection is broken, and nothing was sent.
        """
        if self.is_broken:
            # The client library would reconnect, and old answers would be matched with new commands.
            self._is_broken = True
            raise Unavailable(str(self._pipeline.fault or "server: the connection is broken"))
        seconds = self._seconds + more_seconds + max(map(_blocks, commands))
        self._pipeline.submit(
            [_pack(tuple(command)) for command in commands], Request(len(commands), done, seconds, [])
        )

    def _note_refusal(self, refusal: Refused) -> None:
        self._was_redirected = self._was_redirected or is_ask(refusal)
        self.note_redirect(refusal)

    async def close(self) -> None:
        """Close the connection. Calls that wait raise `Unavailable`. Closing twice is allowed."""
        self._is_broken = True
        self._pipeline.fail(Unavailable("server: the connection was closed"))
        await self._connection.disconnect(nowait=True)  # releases the transport without waiting


def _blocks(command: Sequence[Argument]) -> float:
    """Return how many seconds a command blocks by itself."""
    if command[0] not in {"XREAD", "XREADGROUP"} or "BLOCK" not in command:
        return 0.0
    return int(command[command.index("BLOCK") + 1]) / 1000
