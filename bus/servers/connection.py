"""Links to a server: one connection each, owned by one task at a time, with the client's own cleverness switched off.

The client by itself sends a command again when its answer is lost, which appends twice and skips batches of a group; it
cuts blocking reads by a time-out; it changes the shape of replies with the protocol. Here a link never retries, speaks
RESP2 and gives bytes. The owner of a link decides what is safe to send again.

The client connects and greets; then a `Pipeline` takes the transport over.
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

# Its stub asks for a tuple of one and gives nothing back; it takes any and gives bytes. Much faster than the client's.
_pack = cast("Callable[[tuple[Argument, ...]], bytes]", hiredis.pack_command)  # pyright: ignore[reportUnknownMemberType]


class Route(Protocol):
    """The way to the server that holds something, wherever that is now."""

    async def connect(self) -> "Connection":
        """A new link, connected and greeted.

        Raises:
            Unavailable: nobody answers there.
            LoginRefused: the server wants another user or password.
        """
        ...


class Connection:
    """One connection. A call that is cut off in the middle, by an error or by cancellation, ends it."""

    def __init__(self, connection: AbstractConnection, state: RouteState, bounds: ConnectionBounds) -> None:
        """Takes a connection that is connected and greeted, and owns it from now on."""
        self._connection, self._state = connection, state
        self._seconds = bounds.answer_seconds
        self._is_broken = False
        self._was_asked = False
        transport = cast("asyncio.Transport", connection._writer.transport)  # type: ignore[union-attr]  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]  # greeted: it has one
        self._pipeline = Pipeline(transport, self._hear)

    @property
    def is_broken(self) -> bool:
        """Nothing more can be sent on it, or it would not reach the server it is meant for."""
        return self._is_broken or self._pipeline.fault is not None or self._state.is_over

    @property
    def socket(self) -> TransportSocket | None:
        """What the operating system knows it as."""
        return cast("TransportSocket | None", self._pipeline.transport.get_extra_info("socket"))

    def note_redirect(self, refusal: Refused) -> None:
        """Take an answer for what it says of the server: a link that leads to the wrong one is broken, and its like."""
        if refusal.is_misled:
            self._is_broken = True
            self._state.invalidate(refusal)
        elif refusal.code == "NOAUTH":  # this connection would have to greet anew
            self._is_broken = True

    async def call(self, *command: Argument, more_seconds: float = 0.0) -> Reply:
        """Send one command and wait for its answer.

        Args:
            more_seconds: how much longer than a short command the server may take; the time that a read blocks is
                added by itself.

        Raises:
            Refused: the server answered with an error; it did nothing.
            Unavailable: the connection broke, or no answer came in time; whether the command was carried out is not
                known.
        """
        (reply,) = await self.call_many((command,), more_seconds=more_seconds)
        return answered(reply)

    async def call_many(
        self, commands: Sequence[Sequence[Argument]], *, more_seconds: float = 0.0
    ) -> list[Reply | Refused]:
        """Send several commands in one write and wait for all answers, in their order.

        Where a cluster's server that gives a slot away sends one command of several elsewhere, that one and those
        behind it are sent again one by one, so that none sees less than one before it did: only reads, or what may be
        done twice, go together.

        Returns:
            One answer a command; a `Refused` stands where the server answered with an error.

        Raises:
            Unavailable: the connection broke, or no answer came in time; which commands were carried out is not known.
        """
        self._was_asked = False
        replies = await self._call_many(commands, more_seconds)
        return await self._redirected(commands, replies, more_seconds) if self._was_asked else replies

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
            if answer.cancelled() or not answer.done():  # else all answers were there, or none will come
                self._pipeline.fail(Unavailable("server: the call was cut off"))
            else:
                answer.exception()  # looked at, or the event loop would complain that nobody did
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
        """Send commands in one write, without waiting; `done` is called with their answers, from the event loop.

        It never blocks: what the server does not take yet is kept in memory, so the owner sees to it that little is on
        its way. `done` may be called before this returns if the connection is found broken.

        Raises:
            Unavailable: the link is broken, and nothing was sent.
        """
        if self.is_broken:
            # The client would connect again by itself, and answers of before and after would be taken for each other.
            self._is_broken = True
            raise Unavailable(str(self._pipeline.fault or "server: the link is broken"))
        seconds = self._seconds + more_seconds + max(map(_blocks, commands))
        self._pipeline.submit(
            [_pack(tuple(command)) for command in commands], Request(len(commands), done, seconds, [])
        )

    def _hear(self, refusal: Refused) -> None:
        self._was_asked = self._was_asked or is_ask(refusal)
        self.note_redirect(refusal)

    async def close(self) -> None:
        """End the connection; closing twice is fine. Answers that are still due do not come any more."""
        self._is_broken = True
        self._pipeline.fail(Unavailable("server: the link was closed"))
        await self._connection.disconnect(nowait=True)  # it lets go of the transport; nothing is waited for


def _blocks(command: Sequence[Argument]) -> float:
    """How many seconds a command may block by itself."""
    if command[0] not in {"XREAD", "XREADGROUP"} or "BLOCK" not in command:
        return 0.0
    return int(command[command.index("BLOCK") + 1]) / 1000
