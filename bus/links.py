"""Links to a server: one connection each, owned by one task at a time, with the client's own cleverness switched off.

The client by itself sends a command again when its answer is lost, which appends twice and skips batches of a group; it
cuts blocking reads by a time-out; it changes the shape of replies with the protocol. Here a link never retries, speaks
RESP2 and gives bytes. The owner of a link decides what is safe to send again.

The client connects and greets; then the link takes the transport over. Reading answers by callback saves a task switch
for each of them, and every wait has one and the same bound: a link on which an answer is due and no byte moves for
`answer_seconds` is broken, so no caller can forget it.
"""

import asyncio
from asyncio.trsock import TransportSocket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from socket import SHUT_RDWR
from typing import Protocol, cast

import hiredis
from redis.asyncio.connection import AbstractConnection

from bus.connection_bounds import ConnectionBounds
from bus.errors import AnswerLost, Redirected, Refused, Unavailable

__all__ = ("Argument", "Finding", "Link", "Reply", "Route", "Trace")

Argument = str | bytes | int
Reply = bytes | int | None | Sequence["Reply"]

Done = Callable[[list[Reply | Refused] | Unavailable], None]
"""Is given the answers, one a command, or why there are none."""

# Its stub asks for a tuple of one and gives nothing back; it takes any and gives bytes. Much faster than the client's.
_pack = cast("Callable[[tuple[Argument, ...]], bytes]", hiredis.pack_command)  # pyright: ignore[reportUnknownMemberType]


class Finding(Protocol):
    """What was believed about where a server is, when links to it were made; all of them hear when it was wrong."""

    @property
    def is_over(self) -> bool:
        """It was wrong, or is no longer right: links made by it lead to the wrong place."""
        ...

    def refute(self, refusal: Refused) -> None:
        """A link that was made by it got this answer, which says that it leads to the wrong server."""
        ...

    async def ask(self, redirect: Redirected, command: Sequence[Argument]) -> "Reply | Refused":
        """Send one command, this once, where a server that gives a slot away said to send it."""
        ...


class Trace:
    """The finding of a place that is given once and for all, or by somebody who is asked each time."""

    def __init__(self) -> None:
        self.is_over = False

    def refute(self, refusal: Refused) -> None:
        """See `Finding`."""
        del refusal
        self.is_over = True

    async def ask(self, redirect: Redirected, command: Sequence[Argument]) -> "Reply | Refused":
        """See `Finding`. There is no other server: the answer stays what it was."""
        del command
        return redirect


class Route(Protocol):
    """The way to the server that holds something, wherever that is now."""

    async def connect(self) -> "Link":
        """A new link, connected and greeted.

        Raises:
            Unavailable: nobody answers there.
            LoginRefused: the server wants another user or password.
        """
        ...


@dataclass(slots=True, eq=False)
class _Due:
    """Answers that are still to come to one request."""

    count: int
    done: Done
    seconds: float
    """without a byte, after which they are not waited for any longer"""
    replies: list[Reply | Refused]


class _Wire(asyncio.Protocol):
    """Reads answers off a transport and hands them out in the order of the requests."""

    def __init__(self, transport: asyncio.Transport, heard: Callable[[Refused], None]) -> None:
        self.transport, self._heard = transport, heard
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader()
        self._due: deque[_Due] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._moved_at = 0.0
        self._unsent = 0
        self.fault: Unavailable | None = None
        """why nothing more comes; None as long as it works"""

    def submit(self, data: Sequence[bytes], due: _Due) -> None:
        """Write a request. Raises Unavailable if the connection broke before any of it was sent."""
        was_empty = not self.transport.get_write_buffer_size()
        if not self._due:
            self._moved_at = self._loop.time()
        self.transport.writelines(data)
        if self.transport.is_closing():  # it broke as it was written to
            fault = Unavailable("server: the connection broke")
            if not was_empty:
                self._due.append(due)
            self.fail(fault)
            if was_empty:
                raise fault
            return
        self._due.append(due)
        when = self._moved_at + self._due[0].seconds
        if self._timer is None or self._timer.when() > when:
            self._arm(when)

    def data_received(self, data: bytes) -> None:
        self._moved_at = self._loop.time()
        reader = self._reader
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not False:
                self._take(reply)
        except hiredis.HiredisError:
            self.fail(Unavailable("server: an answer that is none"))

    def _take(self, reply: object) -> None:
        if not self._due:  # nobody asked: a server that says why it hangs up
            return
        due = self._due[0]
        if isinstance(reply, hiredis.ReplyError):
            refusal = _refused(str(reply))
            self._heard(refusal)
            due.replies.append(refusal)
        else:
            due.replies.append(cast("Reply", reply))
        if len(due.replies) == due.count:
            self._due.popleft()
            due.done(due.replies)

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(AnswerLost(f"server: {type(exc).__name__ if exc else 'it closed the connection'}"))

    def fail(self, fault: Unavailable) -> None:
        """Wait for nothing more. What was written may have been carried out."""
        if self.fault is not None:
            return
        self.fault = fault
        # At once, not in the next turn of the event loop: a read that blocks there would be given what comes meanwhile.
        with suppress(OSError):
            self.transport.get_extra_info("socket").shutdown(SHUT_RDWR)
        self.transport.abort()  # not `close`, which waits until a dead connection has taken all that was written
        if self._timer is not None:
            self._timer.cancel()
        gone, self._due = self._due, deque()
        for due in gone:
            due.done(fault)

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        """See whether anything has moved. One timer serves many requests: most are answered long before it is due."""
        self._timer = None
        if not self._due:
            return
        unsent, self._unsent = self._unsent, self.transport.get_write_buffer_size()
        if self._unsent < unsent:
            self._moved_at = self._loop.time()
        seconds = self._due[0].seconds
        if self._moved_at + seconds > self._loop.time():
            self._arm(self._moved_at + seconds)
        else:
            self.fail(Unavailable(f"server: no answer within {seconds:g} s"))


class Link:
    """One connection. A call that is cut off in the middle, by an error or by cancellation, ends it."""

    def __init__(self, connection: AbstractConnection, finding: Finding, bounds: ConnectionBounds) -> None:
        """Takes a connection that is connected and greeted, and owns it from now on."""
        self._connection, self._finding = connection, finding
        self._seconds = bounds.answer_seconds
        self._is_broken = False
        self._was_asked = False
        transport = cast("asyncio.Transport", connection._writer.transport)  # type: ignore[union-attr]  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]  # greeted: it has one
        self._wire = _Wire(transport, self._hear)
        transport.set_protocol(self._wire)

    @property
    def is_broken(self) -> bool:
        """Nothing more can be sent on it, or it would not reach the server it is meant for."""
        return self._is_broken or self._wire.fault is not None or self._finding.is_over

    @property
    def socket(self) -> TransportSocket | None:
        """What the operating system knows it as."""
        return cast("TransportSocket | None", self._wire.transport.get_extra_info("socket"))

    def mistrust(self, refusal: Refused) -> None:
        """Take an answer for what it says of the server: a link that leads to the wrong one is broken, and its like."""
        if refusal.is_misled:
            self._is_broken = True
            self._finding.refute(refusal)
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
        if isinstance(reply, Refused):
            raise reply
        return reply

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
                self._wire.fail(Unavailable("server: the call was cut off"))
            else:
                answer.exception()  # looked at, or the event loop would complain that nobody did
            raise

    async def _redirected(
        self, commands: Sequence[Sequence[Argument]], replies: list[Reply | Refused], more_seconds: float
    ) -> list[Reply | Refused]:
        first = next(index for index, reply in enumerate(replies) if _is_ask(reply))
        for index in range(first, len(replies)):
            if index > first:
                (replies[index],) = await self._call_many((commands[index],), more_seconds)
            reply = replies[index]
            if isinstance(reply, Redirected) and _is_ask(reply):
                replies[index] = await self._finding.ask(reply, commands[index])
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
            raise Unavailable(str(self._wire.fault or "server: the link is broken"))
        seconds = self._seconds + more_seconds + max(map(_blocks, commands))
        self._wire.submit([_pack(tuple(command)) for command in commands], _Due(len(commands), done, seconds, []))

    def _hear(self, refusal: Refused) -> None:
        self._was_asked = self._was_asked or _is_ask(refusal)
        self.mistrust(refusal)

    async def close(self) -> None:
        """End the connection; closing twice is fine. Answers that are still due do not come any more."""
        self._is_broken = True
        self._wire.fail(Unavailable("server: the link was closed"))
        await self._connection.disconnect(nowait=True)  # it lets go of the transport; nothing is waited for


def _blocks(command: Sequence[Argument]) -> float:
    """How many seconds a command may block by itself."""
    if command[0] not in {"XREAD", "XREADGROUP"} or "BLOCK" not in command:
        return 0.0
    return int(command[command.index("BLOCK") + 1]) / 1000


def _is_ask(reply: Reply | Refused) -> bool:
    return isinstance(reply, Redirected) and reply.code == "ASK"


def _refused(text: str) -> Refused:
    # Only the first word: the rest may quote arguments, and so messages. Where to go instead is no message.
    code, _, rest = text.partition(" ")
    if code in {"ASK", "MOVED"}:
        slot, _, address = rest.partition(" ")
        host, _, port = address.rpartition(":")
        return Redirected(code, int(slot), host.strip("[]?"), int(port))
    if code == "ERR" and "unauthenticated" in rest:  # said of a long request before a login
        code = "NOAUTH"
    return Refused(code if code.isupper() and code.isalpha() else "ERR")
