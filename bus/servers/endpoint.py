"""`Endpoint` is the address of one server, and connects to it.

Retries, timeouts and other automatic behaviour of the client library are switched off.
"""

import re
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Self, cast
from urllib.parse import urlsplit

import anyio
from redis.asyncio.connection import AbstractConnection, SSLConnection, UnixDomainSocketConnection, parse_url
from redis.asyncio.connection import Connection as TcpConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.driver_info import DriverInfo
from redis.exceptions import AuthenticationError, RedisError
from redis.maint_notifications import MaintNotificationsConfig

from lanebus.bus.errors import LoginRefused, Refused, SetupError, Unavailable
from lanebus.bus.origin import BusOrigin, drop_in_child
from lanebus.bus.servers.bounds import ConnectionBounds
from lanebus.bus.servers.connect_fault import connect_fault, silence_remedy
from lanebus.bus.servers.connection import Connection
from lanebus.bus.servers.replies import Argument, Reply, answered
from lanebus.bus.servers.route_state import FixedRouteState, RouteState

__all__ = ("Endpoint", "check_login")

_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""TCP keep-alive: seconds of silence before the first probe, seconds between probes, and number of probes. On macOS
TCP_KEEPIDLE is named TCP_KEEPALIVE."""

_DRIVER = DriverInfo()
"""The client name that each connection sends. It is created only once, because the library reads its version from disk,
which takes 0.6 ms."""


_FORM = "write redis://[USER:PASSWORD@]HOST:PORT[/DATABASE]; rediss:// for TLS, or unix://PATH"
_ENCODE = "in a user and a password, write %2F for /, %3F for ?, %23 for # and %40 for @"
_MAY_HAVE_AT = re.compile(r"(?:\w*(?:name|password)|ssl_\w+)=")


def check_login(url: str) -> None:
    """Raise SetupError if a URL's user or password seems to have a character that ends it, such as #.

    The client library would take its beginning for a host, a port or an option, and errors would quote it.
    """
    authority, *rest = re.split("([/?#])", url.partition("://")[2], maxsplit=1)
    path, _, query = "".join(rest).partition("?")
    is_path = url.startswith("unix:") and authority[-1:] in {"", "@"}
    is_cut = any("@" in each and not _MAY_HAVE_AT.match(each) for each in query.split("&"))
    if "#" in path + query or ("@" in path and not is_path) or is_cut:
        raise SetupError("server URL: its user or password seems to have a /, ? or #, which ends it", _ENCODE)


class Endpoint:
    """The address of a server, with user, password and settings. Creating it does no I/O; `connect` does."""

    def __init__(self, url: str, bounds: ConnectionBounds | None = None) -> None:
        """
        Args:
            url: `redis://`, `rediss://` or `unix://`.
            bounds: timeouts; None means the defaults.

        Raises:
            SetupError: the URL is invalid, or has an unknown option.
        """
        check_login(url)
        try:
            options = dict(parse_url(url))
            path = urlsplit(url).path.strip("/")
        except ValueError as error:  # the text of other errors may quote what should have been the password
            fault = str(error) if str(error).startswith("Invalid value for") else "its host or port is not valid"
            raise SetupError(f"server URL: {fault}", f"{_FORM}; {_ENCODE}") from None
        if not url.startswith("unix://") and path and not (path.isascii() and path.isdigit()):
            raise SetupError(f"server URL: its database {path!r} is no number", _FORM)  # the library would use 0
        self._origin = BusOrigin()
        self.bounds = bounds or ConnectionBounds()
        """timeouts and numbers of the connections to this server"""
        self._fault: Callable[[], Unavailable | None] | None = None
        self._class = cast("type[AbstractConnection]", options.pop("connection_class", TcpConnection))
        self._options: dict[str, object] = {
            **options,
            "protocol": 2,
            "retry": Retry(NoBackoff(), 0),
            "socket_timeout": None,
            "socket_connect_timeout": None,  # `connect` has one: of two, either may be seen first
            "maint_notifications_config": MaintNotificationsConfig(enabled=False),
            "decode_responses": False,
            "driver_info": _DRIVER,
        }
        if issubclass(self._class, TcpConnection):
            self._options["socket_keepalive_options"] = _socket_options(self.bounds.answer_seconds)
        try:
            self._class(**self._options)  # type: ignore[arg-type]  # checks the options as `connect` would, without I/O
        except TypeError as error:
            name = str(error).rpartition(" ")[2]
            raise SetupError(f"server URL: there is no option {name}", "remove it, or correct its name") from None

    @classmethod
    def at_socket(
        cls,
        path: str,
        bounds: ConnectionBounds | None = None,
        fault: Callable[[], Unavailable | None] | None = None,
    ) -> Self:
        """Return the endpoint of a unix socket.

        Args:
            path: the socket.
            bounds: timeouts; None means the defaults.
            fault: returns why the server ended, if it is known. `connect` raises this if the server does not answer.
        """
        server = cls("unix://", bounds)
        server._fault = fault
        server._class = UnixDomainSocketConnection
        server._options["path"] = path
        return server

    def at(self, host: str, port: int) -> Self:
        """Return an endpoint at another address, with the same user, password and settings."""
        server = type(self).__new__(type(self))
        server._origin, server.bounds, server._fault = self._origin, self.bounds, self._fault
        server._class, server._options = self._class, {**self._options, "host": host, "port": port}
        return server

    @property
    def address(self) -> str:
        """See `ServerRoute`."""
        return _address(self._options)

    @property
    def host(self) -> str:
        """Host name or IP address; "localhost" for a unix socket."""
        return str(self._options.get("host", "localhost"))

    @property
    def port(self) -> int:
        """TCP port."""
        return int(cast("int", self._options.get("port", 6379)))

    @property
    def database(self) -> int:
        """Number of the database that connections to this endpoint use."""
        return int(cast("int", self._options.get("db", 0)))

    async def connect(self, state: RouteState | None = None) -> Connection:
        """Open a connection and log in.

        Args:
            state: routing state that the connections of a route share. None means that the route never changes.

        Raises:
            Unavailable: no server answers at this address.
            LoginRefused: the server refused the user or password.
            SetupError: the server has no database of the URL's number.
            OpenedElsewhere: this is another process or event loop than that of the bus.
        """
        self._origin.check_running()
        connection = self._class(**self._options)  # type: ignore[arg-type]  # the library's own parser made the options
        drop_in_child(connection, _descriptor)
        try:
            # The client library's own timeout would not cover the login.
            with anyio.fail_after(self.bounds.connect_seconds):
                await connection.connect()  # type: ignore[no-untyped-call]  # the library types it only in part
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await connection.disconnect(nowait=True)
            is_tls = issubclass(self._class, SSLConnection)
            if isinstance(error, TimeoutError):
                fault = f"server at {_address(self._options)}: no answer"
                raise Unavailable(fault, silence_remedy(is_tls=is_tls)) from None
            # The client library wraps this error if it comes from an unauthenticated greeting.
            if isinstance(error, AuthenticationError) or isinstance(error.__cause__, AuthenticationError):
                raise LoginRefused() from None
            if isinstance(error, RedisError | OSError):
                reason, remedy = connect_fault(error, is_tls=is_tls)
                if "DB index" in reason:
                    remedy = "use one from 0 up to the server's setting `databases`, 16 by default"
                    raise SetupError(f"the server has no database {self.database}", remedy) from None
                why = self._fault() if self._fault is not None else None
                raise why or Unavailable(f"server at {_address(self._options)}: {reason}", remedy) from None
            raise
        return Connection(connection, state or FixedRouteState(), self.bounds)

    async def ask(self, *commands: Sequence[Argument]) -> list[Reply | Refused]:
        """Send commands in one write on a new connection. Raises the errors of `connect` and `Connection.call_many`."""
        connection = await self.connect()
        try:
            return await connection.call_many(commands)
        finally:
            await connection.close()

    async def look_up(self, *command: Argument) -> Reply:
        """Send one command on a new connection, within `lookup_seconds`.

        Raises:
            LoginRefused: the server refused the user or password, or the user lacks the right.
            Refused: the server answered with another error.
            Unavailable: the server did not answer in time.
        """
        try:
            with anyio.fail_after(self.bounds.lookup_seconds):
                (reply,) = await self.ask(command)
        except TimeoutError:
            raise Unavailable(f"server at {_address(self._options)}: no answer", "check that it runs") from None
        if isinstance(reply, Refused) and reply.code in {"NOAUTH", "NOPERM", "WRONGPASS"}:
            raise LoginRefused(reply.code)
        return answered(reply)


def _descriptor(connection: AbstractConnection) -> int:
    """Return the file descriptor of a connection's socket; -1 if it is not connected."""
    writer = connection._writer  # pyright: ignore[reportPrivateUsage]  # the library does not tell it otherwise
    return -1 if writer is None else cast("int", writer.get_extra_info("socket").fileno())


def _socket_options(dead_seconds: float) -> dict[int, int]:
    """Return the socket options that make the kernel detect a dead connection. Unsupported options are left out."""
    options = {**_KEEPALIVE, "TCP_USER_TIMEOUT": max(1, round(dead_seconds * 1000))}
    return {getattr(socket, name): value for name, value in options.items() if hasattr(socket, name)}


def _address(options: Mapping[str, object]) -> str:
    """Return the address for error texts and metrics, without user and password."""
    if path := options.get("path"):
        return str(path)
    host = str(options.get("host", "localhost"))
    return f"{f'[{host}]' if ':' in host else host}:{options.get('port', 6379)}"
