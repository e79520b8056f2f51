"""Links to a server: one connection each, owned by one task at a time, with the client's own cleverness switched off.

The client by itself sends a command again when its answer is lost, which appends twice and skips batches of a group; it
cuts blocking reads by a time-out; it changes the shape of replies with the protocol. Here a link never retries, has no
time-out of its own, speaks RESP2 and gives bytes. Who owns a link decides what is safe to send again.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, cast

import anyio
import hiredis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import AskError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from bus.errors import AnswerLost, Redirected, Refused, Unavailable

__all__ = ("Argument", "Finding", "Link", "Reply", "Route", "Trace")

Argument = str | bytes | int
Reply = bytes | int | None | Sequence["Reply"]

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
            SetupError: the server wants another user or password.
        """
        ...


class Link:
    """One connection. A call that is cut off in the middle, by an error or by cancellation, ends it."""

    def __init__(self, connection: AbstractConnection, finding: Finding) -> None:
        self._connection, self._finding = connection, finding
        self._is_broken = False
        self._was_asked = False

    @property
    def is_broken(self) -> bool:
        """Nothing more can be sent on it, or it would not reach the server it is meant for."""
        return self._is_broken or self._finding.is_over

    def mistrust(self, refusal: Refused) -> None:
        """Take an answer for what it says of the server: a link that leads to the wrong one is broken, and its like."""
        if refusal.is_misled:
            self._is_broken = True
            self._finding.refute(refusal)

    async def call(self, *command: Argument) -> Reply:
        """Send one command and wait for its answer.

        Raises:
            Refused: the server answered with an error; it did nothing.
            Unavailable: the connection broke; whether the command was carried out is not known.
        """
        (reply,) = await self.call_many((command,))
        if isinstance(reply, Refused):
            raise reply
        return reply

    async def call_many(self, commands: Sequence[Sequence[Argument]]) -> list[Reply | Refused]:
        """Send several commands in one write and wait for all answers, in their order.

        Where a cluster's server that gives a slot away sends one command of several elsewhere, that one and those
        behind it are sent again one by one, so that none sees less than one before it did: only reads, or what may be
        done twice, go together.

        Returns:
            One answer a command; a `Refused` stands where the server answered with an error.

        Raises:
            Unavailable: the connection broke; which commands were carried out is not known.
        """
        self._was_asked = False
        await self.send(commands)
        replies = [await self.receive() for _ in commands]
        return await self._redirected(commands, replies) if self._was_asked else replies

    async def _redirected(
        self, commands: Sequence[Sequence[Argument]], replies: list[Reply | Refused]
    ) -> list[Reply | Refused]:
        first = next(index for index, reply in enumerate(replies) if _is_ask(reply))
        for index in range(first, len(replies)):
            if index > first:
                await self.send((commands[index],))
                replies[index] = await self.receive()
            reply = replies[index]
            if isinstance(reply, Redirected) and _is_ask(reply):
                replies[index] = await self._finding.ask(reply, commands[index])
        return replies

    async def send(self, commands: Sequence[Sequence[Argument]]) -> None:
        """Send commands without waiting for their answers; `receive` gives them, one a command.

        Raises:
            Unavailable: the connection broke.
        """
        connection = self._connection
        if self.is_broken or not connection.is_connected:
            # The client would connect again by itself, and answers of before and after would be taken for each other.
            self._is_broken = True
            raise Unavailable("server: the link is broken")
        try:
            await connection.send_packed_command(_packed(commands), check_health=False)
        except (RedisError, OSError) as error:
            self._is_broken = True
            raise _translated(error) from None
        except BaseException:
            self._is_broken = True
            raise

    async def receive(self) -> Reply | Refused:
        """The next answer.

        Raises:
            Unavailable: the connection broke.
        """
        try:
            return cast("Reply", await self._connection.read_response(disable_decoding=True))
        except ResponseError as error:
            return self._heard(_refused(error))
        except (RedisError, OSError) as error:
            if _is_answer(error):
                return self._heard(_refused(error))
            self._is_broken = True
            raise AnswerLost(f"server: {type(error).__name__}") from None
        except BaseException:
            self._is_broken = True
            raise

    def _heard(self, refusal: Refused) -> Refused:
        self._was_asked = self._was_asked or _is_ask(refusal)
        self.mistrust(refusal)
        return refusal

    async def close(self) -> None:
        """End the connection; closing twice is fine."""
        self._is_broken = True
        with anyio.CancelScope(shield=True):
            await self._connection.disconnect(nowait=True)


def _packed(commands: Sequence[Sequence[Argument]]) -> Iterable[bytes]:
    return [_pack(tuple(command)) for command in commands]


def _is_answer(error: Exception) -> bool:
    # LOADING and the like are answers of a healthy connection, though the client files them under connection errors.
    return isinstance(error, RedisConnectionError) and not isinstance(error, RedisTimeoutError) and _code(error) != ""


def _is_ask(reply: Reply | Refused) -> bool:
    return isinstance(reply, Redirected) and reply.code == "ASK"


def _code(error: Exception) -> str:
    word = str(getattr(error, "status_code", None) or str(error).split(" ", 1)[0])
    return word if word.isupper() and word.isalpha() else ""


def _refused(error: Exception) -> Refused:
    # Only the first word: the client quotes arguments, and so messages, in the rest. Where to go instead is no message.
    if isinstance(error, AskError):
        slot, _, address = str(error.args[0]).partition(" ")
        host, _, port = address.rpartition(":")
        return Redirected(_code(error), int(slot), host.strip("[]?"), int(port))
    return Refused(_code(error) or type(error).__name__)


def _translated(error: Exception) -> Unavailable:
    return Unavailable(f"server: {type(error).__name__}")
