"""Links to a server: one connection each, owned by one task at a time, with the client's own cleverness switched off.

The client by itself sends a command again when its answer is lost, which appends twice and skips batches of a group; it
cuts blocking reads by a time-out; it changes the shape of replies with the protocol. Here a link never retries, has no
time-out of its own, speaks RESP2 and gives bytes. Who owns a link decides what is safe to send again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, Self, cast

import anyio
import hiredis
from redis.asyncio.connection import AbstractConnection, Connection, UnixDomainSocketConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AskError, AuthenticationError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.maint_notifications import MaintNotificationsConfig

from bus.errors import Redirected, Refused, SetupError, Unavailable

__all__ = ("Argument", "Finding", "Link", "Reply", "Route", "Server", "Trace")

Argument = str | bytes | int
Reply = bytes | int | None | Sequence["Reply"]

# Its stub asks for a tuple of one and gives nothing back; it takes any and gives bytes. Much faster than the client's.
_pack = cast("Callable[[tuple[Argument, ...]], bytes]", hiredis.pack_command)  # pyright: ignore[reportUnknownMemberType]

CONNECT_SECONDS = 5.0


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


class Server:
    """Where a server is, and how links to it are made. Opening one connects; making this object does not."""

    def __init__(self, url: str) -> None:
        """Takes a URL `redis://`, `rediss://` or `unix://`.

        Raises:
            SetupError: the URL is none of these.
        """
        try:
            options = dict(parse_url(url))
        except ValueError as error:
            raise SetupError(f"server URL: {error}") from None
        self._class = cast("type[AbstractConnection]", options.pop("connection_class", Connection))
        self._options: dict[str, object] = {
            **options,
            "protocol": 2,
            "retry": Retry(NoBackoff(), 0),
            "socket_timeout": None,
            "socket_connect_timeout": CONNECT_SECONDS,
            "maint_notifications_config": MaintNotificationsConfig(enabled=False),
            "decode_responses": False,
        }
        try:
            self._class(**self._options)  # type: ignore[arg-type]  # as in `connect`; without I/O
        except TypeError as error:
            raise SetupError(f"server URL: {error}") from None

    @classmethod
    def at_socket(cls, path: str) -> Self:
        """A server that listens on a unix socket."""
        server = cls("unix://")
        server._class = UnixDomainSocketConnection
        server._options["path"] = path
        return server

    def at(self, host: str, port: int) -> Self:
        """A server at another address, reached with the same user, password and settings."""
        server = type(self).__new__(type(self))
        server._class, server._options = self._class, {**self._options, "host": host, "port": port}
        return server

    @property
    def host(self) -> str:
        """Its host name or address; of a server on a unix socket "localhost"."""
        return str(self._options.get("host", "localhost"))

    @property
    def port(self) -> int:
        """Its TCP port."""
        return int(cast("int", self._options.get("port", 6379)))

    @property
    def database(self) -> int:
        """The number of the database that its links use."""
        return int(cast("int", self._options.get("db", 0)))

    async def connect(self, finding: Finding | None = None) -> "Link":
        """A new link, connected and greeted.

        Args:
            finding: how it was found that the server is here; None if it is simply here.

        Raises:
            Unavailable: nobody answers there.
            SetupError: the server wants another user or password.
        """
        connection = self._class(**self._options)  # type: ignore[arg-type]  # the client's own parser made the options
        try:
            with anyio.fail_after(CONNECT_SECONDS):  # the client counts only until it is connected, not greeted
                await connection.connect()  # type: ignore[no-untyped-call]  # the client types it only in part
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await connection.disconnect(nowait=True)
            # The client wraps what an unauthenticated greeting gets.
            if isinstance(error, AuthenticationError) or isinstance(error.__cause__, AuthenticationError):
                raise SetupError("the server refused the user or password") from None
            if isinstance(error, RedisError | OSError):
                raise Unavailable(f"server at {_place(self._options)}: {type(error).__name__}") from None
            raise
        return Link(connection, finding or Trace())


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
            raise _translated(error) from None
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


def _place(options: Mapping[str, object]) -> str:
    """Where a server is, for people: without user and password."""
    return str(options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}")


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
