"""Where one server is, and how links to it are made, with all that switched off that the client does by itself."""

import socket
from collections.abc import Mapping, Sequence
from typing import Self, cast

import anyio
from redis.asyncio.connection import AbstractConnection, UnixDomainSocketConnection, parse_url
from redis.asyncio.connection import Connection as TcpConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.driver_info import DriverInfo
from redis.exceptions import AuthenticationError, RedisError
from redis.maint_notifications import MaintNotificationsConfig

from lanebus.bus.errors import LoginRefused, Refused, SetupError, Unavailable
from lanebus.bus.servers.bounds import ConnectionBounds
from lanebus.bus.servers.connection import Connection
from lanebus.bus.servers.replies import Argument, Reply, answered
from lanebus.bus.servers.route_state import FixedRouteState, RouteState

__all__ = ("Endpoint",)

_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""Seconds of silence before the kernel asks whether the other side is there, between two questions, and how many. The
second name is that of the first on macOS."""

_DRIVER = DriverInfo()
"""What a connection says of the client. Made once: the client looks its version up on disk, 0.6 ms each time."""


class Endpoint:
    """Where a server is, and how links to it are made. Opening one connects; making this object does not."""

    def __init__(self, url: str, bounds: ConnectionBounds | None = None) -> None:
        """Takes a URL `redis://`, `rediss://` or `unix://`, and how long connections are waited for.

        Raises:
            SetupError: the URL is none of these.
        """
        try:
            options = dict(parse_url(url))
        except ValueError as error:
            raise SetupError(f"server URL: {error}") from None
        self.bounds = bounds or ConnectionBounds()
        """how long connections are waited for"""
        self._class = cast("type[AbstractConnection]", options.pop("connection_class", TcpConnection))
        self._options: dict[str, object] = {
            **options,
            "protocol": 2,
            "retry": Retry(NoBackoff(), 0),
            "socket_timeout": None,
            "socket_connect_timeout": self.bounds.connect_seconds,
            "maint_notifications_config": MaintNotificationsConfig(enabled=False),
            "decode_responses": False,
            "driver_info": _DRIVER,
        }
        if issubclass(self._class, TcpConnection):
            self._options["socket_keepalive_options"] = _socket_options(self.bounds.answer_seconds)
        try:
            self._class(**self._options)  # type: ignore[arg-type]  # as in `connect`; without I/O
        except TypeError as error:
            raise SetupError(f"server URL: {error}") from None

    @classmethod
    def at_socket(cls, path: str, bounds: ConnectionBounds | None = None) -> Self:
        """A server that listens on a unix socket."""
        server = cls("unix://", bounds)
        server._class = UnixDomainSocketConnection
        server._options["path"] = path
        return server

    def at(self, host: str, port: int) -> Self:
        """A server at another address, reached with the same user, password and settings."""
        server = type(self).__new__(type(self))
        server.bounds = self.bounds
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

    async def connect(self, state: RouteState | None = None) -> Connection:
        """A new link, connected and greeted.

        Args:
            state: of the route that leads here, shared by its links; None if the server is simply here.

        Raises:
            Unavailable: nobody answers there.
            LoginRefused: the server wants another user or password.
        """
        connection = self._class(**self._options)  # type: ignore[arg-type]  # the client's own parser made the options
        try:
            # The client counts only until it is connected, not greeted.
            with anyio.fail_after(self.bounds.connect_seconds):
                await connection.connect()  # type: ignore[no-untyped-call]  # the client types it only in part
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await connection.disconnect(nowait=True)
            if isinstance(error, TimeoutError):
                raise Unavailable(f"server at {_place(self._options)}: it does not answer") from None
            # The client wraps what an unauthenticated greeting gets.
            if isinstance(error, AuthenticationError) or isinstance(error.__cause__, AuthenticationError):
                raise LoginRefused() from None
            if isinstance(error, RedisError | OSError):
                raise Unavailable(f"server at {_place(self._options)}: {type(error).__name__}") from None
            raise
        return Connection(connection, state or FixedRouteState(), self.bounds)

    async def ask(self, *commands: Sequence[Argument]) -> list[Reply | Refused]:
        """Send commands in one write on a link of their own. Raises as `connect` and `Connection.call_many` do."""
        link = await self.connect()
        try:
            return await link.call_many(commands)
        finally:
            await link.close()

    async def look_up(self, *command: Argument) -> Reply:
        """Ask where something is, within `lookup_seconds`.

        Raises:
            LoginRefused: the server wants another user or password, or gives this user too few rights.
            Refused: the server answered with another error.
            Unavailable: the server does not answer in time.
        """
        try:
            with anyio.fail_after(self.bounds.lookup_seconds):
                (reply,) = await self.ask(command)
        except TimeoutError:
            raise Unavailable(f"server at {_place(self._options)}: it does not answer") from None
        if isinstance(reply, Refused) and reply.code in {"NOAUTH", "NOPERM", "WRONGPASS"}:
            raise LoginRefused(reply.code)
        return answered(reply)


def _socket_options(dead_seconds: float) -> dict[int, int]:
    """What the kernel is told of each TCP connection, as far as it knows of it: how a dead one is found."""
    wanted = {**_KEEPALIVE, "TCP_USER_TIMEOUT": max(1, round(dead_seconds * 1000))}
    return {getattr(socket, name): value for name, value in wanted.items() if hasattr(socket, name)}


def _place(options: Mapping[str, object]) -> str:
    """Where a server is, for people: without user and password."""
    return str(options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}")
