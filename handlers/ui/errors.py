"""Errors of the HTTP server: settings that it cannot serve with, and requests that it refuses."""

from collections.abc import Sequence

from lanebus.bus.errors import SetupError, StreamError, Unavailable

__all__ = (
    "AddressRefused",
    "InvalidBasePath",
    "InvalidHost",
    "InvalidOrigin",
    "InvalidProxy",
    "KeyReused",
    "PortInUse",
    "ServeMissing",
    "ServerBusy",
    "SessionMissing",
    "TooManyStreams",
    "TooManyWaiting",
    "UnknownAgent",
)


class InvalidBasePath(SetupError):
    """The base path cannot be served."""

    def __init__(self, path: str, remedy: str) -> None:
        super().__init__(f"{path[:100]!r} is no base path", remedy)
        self.path = path


class InvalidHost(SetupError):
    """An allowed host is not a host as clients name it in the header `Host`."""

    def __init__(self, host: str, remedy: str) -> None:
        super().__init__(f"{host[:100]!r} is no host", remedy)
        self.host = host


class InvalidOrigin(SetupError):
    """An allowed origin is not an origin as browsers send it."""

    def __init__(self, origin: str, remedy: str) -> None:
        super().__init__(f"{origin[:100]!r} is no origin", remedy)
        self.origin = origin


class InvalidProxy(SetupError):
    """A trusted proxy is neither an IP address nor a network."""

    def __init__(self, proxy: str, remedy: str) -> None:
        super().__init__(f"{proxy[:100]!r} is no address of a proxy", remedy)
        self.proxy = proxy


class PortInUse(SetupError):
    """Another program listens on this address."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"{host}:{port} is in use by another program", "choose another port, or 0 for a free one")
        self.host, self.port = host, port


class AddressRefused(SetupError):
    """The operating system refused to listen on this address."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(f"cannot listen on {host}:{port} ({reason})", "choose another host or port")
        self.host, self.port, self.reason = host, port, reason


class ServeMissing(SetupError):
    """The packages of the extra `serve` are not installed."""

    def __init__(self, package: str) -> None:
        super().__init__(f"{package!r} is not installed", "run pip install 'lanebus[serve]'")
        self.package = package


class SessionMissing(StreamError):
    """The session has no entries. Only a message begins a session. Fields: `session`."""

    def __init__(self, session: str) -> None:
        super().__init__(
            f"session {session!r} has no entries", "check the id, or begin the session with POST …/messages"
        )
        self.session = session


class UnknownAgent(StreamError):
    """No worker has ever served the agent, and no session belongs to it. No session was begun. Fields: `agent`."""

    def __init__(self, agent: str) -> None:
        super().__init__(
            f"no worker has ever served the agent {agent!r}",
            "check the name against `lanebus agents`, or start its worker first",
        )
        self.agent = agent


class KeyReused(StreamError):
    """A key, or a client's id of a message, was used before for other content. This content was not published.

    Fields: `session`; `key`, the key or the id; `positions`, those of the first message or command.
    """

    def __init__(self, session: str, key: str, positions: Sequence[int]) -> None:
        places = ", ".join(map(str, positions))
        super().__init__(
            f"session {session!r}: the key or id {key!r} belongs to other content, at position {places}",
            "use a new key or id for each message and command",
        )
        self.session, self.key, self.positions = session, key, tuple(positions)


class ServerBusy(Unavailable):
    """The server holds as much in memory for its clients as it may, or had no turn for a request in time."""

    def __init__(self, retry_after: int = 2) -> None:
        """
        Args:
            retry_after: seconds after which the client may try again.
        """
        super().__init__(
            "the server already works for as many requests, or holds as much of them in memory, as it may",
            "try again in a few seconds",
        )
        self.retry_after = retry_after


class TooManyWaiting(Unavailable):
    """A principal has as many requests that wait for their turn as it may."""

    def __init__(self, limit: int, retry_after: int = 2) -> None:
        """
        Args:
            limit: see the error's text.
            retry_after: seconds after which the client may try again.
        """
        super().__init__(
            f"this token has {limit} requests that wait for their turn, and may have no more",
            "send fewer requests at once",
        )
        self.limit, self.retry_after = limit, retry_after


class TooManyStreams(Unavailable):
    """A principal has as many open event streams as it may, or they follow as many sessions as they may."""

    def __init__(self, limit: int, retry_after: int, *, is_of_sessions: bool = False) -> None:
        """
        Args:
            limit: see the error's text.
            retry_after: seconds after which the client may try again.
            is_of_sessions: whether the limit is one of followed sessions.
        """
        super().__init__(
            *(
                (
                    f"the open event streams of this token may follow {limit} sessions together, and no more",
                    "close a stream, or name fewer sessions",
                )
                if is_of_sessions
                else (
                    f"this token has {limit} open event streams, and may have no more",
                    "close a stream, or follow several sessions with one stream of /api/events",
                )
            )
        )
        self.limit, self.retry_after = limit, retry_after
