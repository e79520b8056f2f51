"""Links to a server: one connection each, owned by one task at a time, with the client's own cleverness switched off.

The client by itself sends a command again when its answer is lost, which appends twice and skips batches of a group; it
cuts blocking reads by a time-out; it changes the shape of replies with the protocol. Here a link never retries, has no
time-out of its own, speaks RESP2 and gives bytes. Who owns a link decides what is safe to send again.
"""

from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import cast

import anyio
import hiredis
from redis.asyncio.connection import AbstractConnection, Connection, UnixDomainSocketConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.maint_notifications import MaintNotificationsConfig

from bus.errors import Closed, Refused, SetupError, Unavailable

__all__ = ("Argument", "Link", "LinkPool", "Reply", "Server", "answer_in_time")

Argument = str | bytes | int
Reply = bytes | int | None | Sequence["Reply"]

# Its stub asks for a tuple of one and gives nothing back; it takes any and gives bytes. Much faster than the client's.
_pack = cast("Callable[[tuple[Argument, ...]], bytes]", hiredis.pack_command)  # pyright: ignore[reportUnknownMemberType]

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0
"""How long a short call waits for its answer before its link counts as dead."""


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
        self._place = _place(options)
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
    def at_socket(cls, path: str) -> "Server":
        """A server that listens on a unix socket."""
        server = cls("unix://")
        server._class = UnixDomainSocketConnection
        server._options["path"] = path
        server._place = path
        return server

    async def connect(self) -> "Link":
        """A new link, connected and greeted.

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
                raise Unavailable(f"server at {self._place}: {type(error).__name__}") from None
            raise
        return Link(connection)


class Link:
    """One connection. A call that is cut off in the middle, by an error or by cancellation, ends it."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection
        self.is_broken = False

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

        Returns:
            One answer a command; a `Refused` stands where the server answered with an error.

        Raises:
            Unavailable: the connection broke; which commands were carried out is not known.
        """
        await self.send(commands)
        return [await self.receive() for _ in commands]

    async def send(self, commands: Sequence[Sequence[Argument]]) -> None:
        """Send commands without waiting for their answers; `receive` gives them, one a command.

        Raises:
            Unavailable: the connection broke.
        """
        connection = self._connection
        if self.is_broken or not connection.is_connected:
            # The client would connect again by itself, and answers of before and after would be taken for each other.
            self.is_broken = True
            raise Unavailable("server: the link is broken")
        try:
            await connection.send_packed_command(_packed(commands), check_health=False)
        except (RedisError, OSError) as error:
            self.is_broken = True
            raise _translated(error) from None
        except BaseException:
            self.is_broken = True
            raise

    async def receive(self) -> Reply | Refused:
        """The next answer.

        Raises:
            Unavailable: the connection broke.
        """
        try:
            return cast("Reply", await self._connection.read_response(disable_decoding=True))
        except ResponseError as error:
            return _refused(error)
        except (RedisError, OSError) as error:
            if _is_answer(error):
                return _refused(error)
            self.is_broken = True
            raise _translated(error) from None
        except BaseException:
            self.is_broken = True
            raise

    async def close(self) -> None:
        """End the connection; closing twice is fine."""
        self.is_broken = True
        with anyio.CancelScope(shield=True):
            await self._connection.disconnect(nowait=True)


class LinkPool:
    """Links for short calls that are safe to cut off: reads. A link that was cut off is not used again."""

    def __init__(self, server: Server, limit: int = 8) -> None:
        """Takes the most links to have open at once; callers beyond it wait."""
        self._server = server
        self._limiter = anyio.CapacityLimiter(limit)
        self._idle: list[Link] = []
        self._drops = 0
        self._is_closed = False

    @property
    def borrowed(self) -> int:
        """How many links are in use."""
        return self._limiter.borrowed_tokens

    @property
    def idle(self) -> tuple[Link, ...]:
        """The links that wait for their next use."""
        return tuple(self._idle)

    @asynccontextmanager
    async def link(self) -> AsyncGenerator[Link, None]:
        """Borrow a link for the length of the block.

        Raises:
            Closed: the bus is closed.
            Unavailable, SetupError: as for `Server.connect`.
        """
        async with self._limiter:
            if self._is_closed:
                raise Closed("bus")
            link = self._idle.pop() if self._idle else await self._server.connect()
            drops = self._drops
            try:
                yield link
            finally:
                if link.is_broken or self._is_closed or drops != self._drops:
                    await link.close()
                else:
                    self._idle.append(link)

    async def call(self, *command: Argument, more_seconds: float = 0.0) -> Reply:
        """One command on a borrowed link; a pure read or an idempotent script, as it is sent again once.

        Args:
            more_seconds: how much longer than a short call it may take.

        Raises:
            Refused, Unavailable: as for `Link.call`.
        """
        (reply,) = await self.call_many((command,), more_seconds=more_seconds)
        if isinstance(reply, Refused):
            raise reply
        return reply

    async def call_many(
        self, commands: Sequence[Sequence[Argument]], *, more_seconds: float = 0.0
    ) -> list[Reply | Refused]:
        """Several commands on a borrowed link in one write; sent again once, as `call` says."""
        try:
            async with self.link() as link:
                with answer_in_time(more_seconds):
                    return await link.call_many(commands)
        except Unavailable:
            await self.drop_idle()
            async with self.link() as link:
                with answer_in_time(more_seconds):
                    return await link.call_many(commands)

    async def drop_idle(self) -> None:
        """Close what is idle: a link may have died unseen, which only shows at its next use, and then all may have.

        What is in use is closed when it comes back: its answer may be the last that it gave.
        """
        self._drops += 1
        while self._idle:
            await self._idle.pop().close()

    async def close(self) -> None:
        """Close what is idle, and what is in use when it comes back."""
        self._is_closed = True
        await self.drop_idle()


@contextmanager
def answer_in_time(more_seconds: float = 0.0) -> Generator[None, None, None]:
    """Raises Unavailable if the block takes longer than a live server does; its link is then broken."""
    seconds = ANSWER_SECONDS + more_seconds
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError:
        raise Unavailable(f"server: no answer within {seconds:g} s") from None


def _packed(commands: Sequence[Sequence[Argument]]) -> Iterable[bytes]:
    return [_pack(tuple(command)) for command in commands]


def _place(options: Mapping[str, object]) -> str:
    """Where a server is, for people: without user and password."""
    return str(options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}")


def _is_answer(error: Exception) -> bool:
    # LOADING and the like are answers of a healthy connection, though the client files them under connection errors.
    return isinstance(error, RedisConnectionError) and not isinstance(error, RedisTimeoutError) and _code(error) != ""


def _code(error: Exception) -> str:
    word = str(getattr(error, "status_code", None) or str(error).split(" ", 1)[0])
    return word if word.isupper() and word.isalpha() else ""


def _refused(error: Exception) -> Refused:
    # Only the first word: the client quotes arguments, and so messages, in the rest.
    return Refused(_code(error) or type(error).__name__)


def _translated(error: Exception) -> Unavailable:
    return Unavailable(f"server: {type(error).__name__}")
