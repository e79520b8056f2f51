"""`Endpoint` is the address of one server, and connects to it.

Retries, timeouts and other automatic behaviour of the client library are switched off.
"""

import logging
import os
import re
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self, cast
from urllib.parse import urlsplit

import anyio
from redis.asyncio.connection import AbstractConnection, SSLConnection, UnixDomainSocketConnection, parse_url
from redis.asyncio.connection import Connection as TcpConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.driver_info import DriverInfo
from redis.exceptions import AuthenticationError, InvalidResponse, RedisError, ResponseError
from redis.exceptions import ConnectionError as ClientConnectionError
from redis.maint_notifications import MaintNotificationsConfig

from lanebus.bus.concurrency import BusOrigin, drop_in_child
from lanebus.bus.errors import DirectoryNotOwned, LoginRefused, Refused, SetupError, Unavailable, Unconnectable
from lanebus.bus.servers.calls import Argument, ConnectionBounds, Reply, answered
from lanebus.bus.servers.connection import Connection, FixedRouteState, RouteState
from lanebus.bus.storage.ownership import exposure, open_owned

_log = logging.getLogger(__name__)

_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""TCP keep-alive: seconds of silence before the first probe, seconds between probes, and number of probes. On macOS
TCP_KEEPIDLE is named TCP_KEEPALIVE."""

_DRIVER = DriverInfo()
"""The client name that each connection sends. It is created only once, because the library reads its version from disk,
which takes 0.6 ms."""


_FORM = "write redis://[USER:PASSWORD@]HOST:PORT[/DATABASE]; rediss:// for TLS, or unix://PATH"
_ENCODE = "in a user and a password, write %2F for /, %3F for ?, %23 for # and %40 for @"
_MAY_HAVE_AT = re.compile(r"(?:\w*(?:name|password|password_file)|ssl_\w+)=")


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
            url: `redis://`, `rediss://` or `unix://`. With the option `password_file=FILE`, the password is the file's
                line, read again for each connection.
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
        self._password_file = _PasswordFile.of(options)
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
        server._password_file = self._password_file
        server._class, server._options = self._class, {**self._options, "host": host, "port": port}
        if server._options.pop("path", None) is not None:  # another server than that of the socket
            server._class = TcpConnection
            server._options["socket_keepalive_options"] = _socket_options(self.bounds.answer_seconds)
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
            Unconnectable: a setting, a certificate or a right has to be changed first.
            SetupError: the server has no database of the URL's number, or the file of the password cannot be read and
                was never read before.
            OpenedElsewhere: this is another process or event loop than that of the bus.
        """
        self._origin.check_running()
        options = self._options
        if self._password_file is not None:
            options = {**options, "password": self._password_file.read()}
        connection = self._class(**options)  # type: ignore[arg-type]  # the library's own parser made the options
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
                if is_tls and await self._said_plainly(b"PING\r\n"):
                    reason, remedy, _ = NO_TLS
                    raise Unconnectable(f"server at {self.address}: {reason}", remedy) from None
                fault = f"server at {self.address}: no answer"
                raise Unavailable(fault, silence_remedy(is_tls=is_tls)) from None
            # The client library wraps this error if it comes from an unauthenticated greeting.
            if isinstance(error, AuthenticationError) or isinstance(error.__cause__, AuthenticationError):
                raise self._login_refused("WRONGPASS") from None
            if isinstance(error, RedisError | OSError):
                reason, remedy, is_lasting = connect_fault(error, is_tls=is_tls)
                if reason == CLOSED and not is_tls and TOO_MANY in await self._said_plainly():
                    reason, remedy, is_lasting = FULL
                if "DB index" in reason:
                    remedy = "use one from 0 up to the server's setting `databases`, 16 by default"
                    raise SetupError(f"the server has no database {self.database}", remedy) from None
                why = self._fault() if self._fault is not None else None
                kind = Unconnectable if is_lasting else Unavailable
                raise why or kind(f"server at {self.address}: {reason}", remedy) from None
            raise
        return Connection(connection, state or FixedRouteState(), self.bounds)

    async def _said_plainly(self, words: bytes = b"", seconds: float = 0.5) -> str:
        """Return what the server says on a connection without TLS; "" if it says nothing or cannot be reached.

        A server that has too many clients tells each new one, and hangs up. What it told is lost if the client has sent
        something before.

        Args:
            words: what to send; nothing secret.
            seconds: longest time.
        """
        path = self._options.get("path")
        try:
            with anyio.fail_after(seconds):
                stream = await (anyio.connect_unix(str(path)) if path else anyio.connect_tcp(self.host, self.port))
                async with stream:
                    if words:
                        await stream.send(words)
                    return (await stream.receive(1_000)).decode(errors="replace")
        except (OSError, TimeoutError, anyio.EndOfStream, anyio.BrokenResourceError):
            return ""

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
            raise Unavailable(f"server at {self.address}: no answer", "check that it runs") from None
        if isinstance(reply, Refused) and reply.code in {"NOAUTH", "NOPERM", "WRONGPASS"}:
            raise self._login_refused(reply.code)
        return answered(reply)

    def _login_refused(self, code: str) -> LoginRefused:
        return LoginRefused(code, password_file="" if self._password_file is None else str(self._password_file.path))


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


class _PasswordFile:
    """A file that holds a password. It is read for each connection, so that it can be replaced while a bus is open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._last: str | None = None
        self._fault, self._exposure = "", ""

    @classmethod
    def of(cls, options: dict[str, object]) -> "_PasswordFile | None":
        """Take the option `password_file` from the options of a URL; None if there is none.

        Raises:
            SetupError: the file has no name, or the URL has a password too.
        """
        name = options.pop("password_file", None)
        if name is None:
            return None
        if options.get("password"):
            raise SetupError("server URL: it has a password and a password_file", "leave one of them out")
        return cls(Path(str(name)))

    def read(self) -> str:
        """Return the password. If the file cannot be read, return the one that was read last: it may just be replaced.

        Raises:
            SetupError: the file cannot be read, and never was.
        """
        try:
            self._last, self._fault = self._read(), ""
        except SetupError as error:
            if self._last is None:
                raise
            if error.fault != self._fault:
                self._fault = error.fault
                _log.warning("the password that was read last is used on: %s", error)
        return self._last

    def _read(self, limit_bytes: int = 4_096) -> str:
        """Read the file. Not in a thread: it is local and small, and few connections are made."""
        # No colon after the path: in `…/password: text`, the text is hidden as a password.
        what, remedy = f"password file {self.path}", "name another file with password_file=FILE in the URL"
        try:
            with os.fdopen(open_owned(self.path, "password file", remedy), "rb") as file:
                fault, data = exposure(os.fstat(file.fileno())), file.read(limit_bytes + 1)
            password = data.decode().removesuffix("\n").removesuffix("\r")
        except DirectoryNotOwned as error:
            raise SetupError(f"{what} is not used ({error.reason})", error.remedy) from None
        except OSError as error:
            raise SetupError(f"{what} cannot be read: {error.strerror or error}", remedy) from None
        except ValueError:  # no UTF-8, or a name that no file can have
            raise SetupError(f"{what} cannot be read as text", remedy) from None
        if not password or "\n" in password or len(data) > limit_bytes:
            text = f"{what} does not hold one line of at most {limit_bytes} bytes"
            raise SetupError(text, "write the password into it, and nothing else")
        if fault != self._exposure:
            self._exposure = fault
            if fault:
                _log.warning("%s %s: run `chmod 600 %s`, and own it", what, fault, self.path)
        return password


# Why a connection could not be made, and what to do about it, in the words of the system or the server.

_CHECK = "check its address, and that it runs"
_OWN_CERTIFICATE = (
    "check the settings ssl_… in the URL; if it asks clients for a certificate, add ssl_certfile=FILE&ssl_keyfile=FILE;"
    " a server that has too many clients (maxclients) hangs up too"
)


class ConnectFault(NamedTuple):
    """Why a connection failed. Neither text contains the URL or its password."""

    reason: str
    remedy: str
    is_lasting: bool = False
    """whether a connection fails again until a setting, a certificate or a right is changed"""


def connect_fault(error: BaseException, *, is_tls: bool) -> ConnectFault:
    """Return why a connection failed, and the remedy.

    Args:
        error: what the client library raised while it connected or logged in.
        is_tls: whether the connection was to use TLS.
    """
    for cause in _causes(error):
        match cause:
            case ssl.SSLCertVerificationError() if "expired" in cause.verify_message:
                remedy = "renew it, or correct the clock here"
                return ConnectFault(f"its certificate was refused: {cause.verify_message}", remedy, is_lasting=True)
            case ssl.SSLCertVerificationError():
                remedy = "name the authority with ssl_ca_certs=FILE in the URL, and the host as its certificate does"
                return ConnectFault(f"its certificate was refused: {cause.verify_message}", remedy, is_lasting=True)
            case ssl.SSLError() if cause.reason in _NO_TLS_REASONS:
                return NO_TLS
            case FileNotFoundError() | PermissionError() if is_tls:
                remedy = "check the files that ssl_… names in the URL"
                return ConnectFault(str(cause.strerror), remedy, is_lasting=True)
            case ssl.SSLError():
                is_lasting = not isinstance(cause, ssl.SSLEOFError)  # a server that starts or ends hangs up
                return ConnectFault(f"TLS failed: {cause.reason}", _OWN_CERTIFICATE, is_lasting)
            case InvalidResponse() if _TLS_ALERT not in str(cause):
                reason = "it is not a Redis or Valkey server: its answer has another protocol"
                return ConnectFault(reason, "check its host and port", is_lasting=True)
            case ClientConnectionError() | ResponseError() if TOO_MANY in str(cause):
                return FULL
            case ResponseError():
                reason = str(cause).partition(", with args")[0]  # which may quote the password
                return ConnectFault(reason, _CHECK, is_lasting=True)
            case ConnectionResetError() | BrokenPipeError():
                break
            case socket.gaierror():
                return ConnectFault(str(cause.strerror), _CHECK)
            case PermissionError() if cause.errno is not None:
                remedy = "give this user the right to open the server's socket, or to connect to its address"
                return ConnectFault(os.strerror(cause.errno), remedy, is_lasting=True)
            case OSError() if cause.errno is not None:
                return ConnectFault(os.strerror(cause.errno), _CHECK)
            case _:
                pass
    if isinstance(error, ClientConnectionError | InvalidResponse | ConnectionError):
        remedy = _OWN_CERTIFICATE if is_tls else "if it wants TLS, use rediss:// instead of redis://"
        is_alert = isinstance(error, InvalidResponse)  # of a port with TLS
        return ConnectFault(CLOSED, remedy, is_lasting=is_alert)
    return ConnectFault(type(error).__name__, _CHECK)


def silence_remedy(*, is_tls: bool) -> str:
    """Return what to do about a server that accepts connections and does not answer.

    Args:
        is_tls: whether the connection was to use TLS. If the port has no TLS, Redis before 7.2 does not answer,
            because it waits for more bytes.
    """
    return "check that it runs; if this port does not speak TLS, use redis://" if is_tls else "check that it runs"


CLOSED = "it closed the connection without an answer"

FULL = ConnectFault("it has too many clients", "end clients that are not needed, or raise its maxclients")

NO_TLS = ConnectFault("it does not speak TLS on this port", "use redis:// instead of rediss://", is_lasting=True)

TOO_MANY = "max number of clients"
"""in the words of a server whose `maxclients` is reached"""

_TLS_ALERT = "\\x15"
"""The first byte of the answer of a port with TLS, as the client library writes it."""

_NO_TLS_REASONS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST"})


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
