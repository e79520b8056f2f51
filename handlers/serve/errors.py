"""Errors of the server: settings that it cannot serve with, requests that it refuses, tokens and uploads.

The command line imports them too, so this module needs no extra.
"""

import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

from lanebus.bus.errors import MessageError, SetupError, StreamError, Unavailable

# Errors of the HTTP server: settings that it cannot serve with, and requests that it refuses.


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


class CommandsWaiting(StreamError):
    """The session has as many commands that wait for a worker as it may. This one was not published.

    Fields: `session`; `limit`, the number.
    """

    def __init__(self, session: str, limit: int) -> None:
        super().__init__(
            f"session {session!r} has {limit} commands that no worker has answered, and may have no more",
            "wait until a worker has answered them: `lanebus top` shows whether one runs",
        )
        self.session, self.limit = session, limit


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


# Errors of requests whose query parameters are wrong.


class UnknownParameter(MessageError):
    """The request has a query parameter that the endpoint does not have."""

    def __init__(self, name: str, allowed: Collection[str]) -> None:
        names = ", ".join(sorted(allowed))
        remedy = f"use only {names}" if names else "leave it out: this endpoint has no parameters"
        super().__init__(f"unknown parameter {name[:100]!r}", remedy)
        self.name, self.allowed = name, tuple(sorted(allowed))


class RepeatedParameter(MessageError):
    """The request has a query parameter twice."""

    def __init__(self, name: str) -> None:
        super().__init__(f"parameter {name!r} is given twice", "give it once, with commas between several values")
        self.name = name


class InvalidParameter(MessageError):
    """The value of a query parameter is not allowed."""

    def __init__(self, name: str, text: str, remedy: str) -> None:
        super().__init__(f"parameter {name!r} is {text[:100]!r}", remedy)
        self.name, self.text = name, text


# Errors of tokens.


class FileExposed(SetupError):
    """Every user of the machine may write a file of tokens, keys or revocations, and so give themselves all rights."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"every user may write {path}", f"check its content, and run `chmod 600 {shlex.quote(str(path))}`"
        )
        self.path = path


class HookAnswerInvalid(SetupError):
    """The hook `identify` or `authorize` returned something else than it must. The request was refused."""

    def __init__(self, hook: str, wanted: str, found: object) -> None:
        super().__init__(f"{hook} returned an object of type {type(found).__name__}", f"return {wanted}")
        self.hook = hook


class HookNotFound(SetupError):
    """`identify` or `authorize` names no async function."""

    def __init__(self, target: str, reason: str) -> None:
        super().__init__(f"{target!r}: {reason}", "name an async function as module:attribute")
        self.target, self.reason = target, reason


class TokensMissing(SetupError):
    """The package of the extra `tokens` is not installed."""

    def __init__(self) -> None:
        super().__init__("'jwt' is not installed", "run pip install 'lanebus[tokens]'")


class TokensEqual(SetupError, ValueError):
    """The start token is also a reader's token, so the server cannot know what it allows."""

    def __init__(self) -> None:
        super().__init__("both tokens are the same", "use two different ones")


class WeakKey(SetupError):
    """A key for signing tokens is too short."""

    def __init__(self, size_bytes: int, least_bytes: int) -> None:
        super().__init__(
            f"the key has {size_bytes} bytes, and needs at least {least_bytes}",
            "make one with `lanebus token key FILE`",
        )
        self.size_bytes, self.least_bytes = size_bytes, least_bytes


class TokenFileUnreadable(SetupError):
    """A file of tokens, keys or revocations cannot be read, is too large, or holds nothing."""

    def __init__(self, path: Path, what: str, fault: str) -> None:
        make = "token key FILE" if what in {"key", "token"} else "token revoke --revoked-file FILE"
        super().__init__(f"{path} {fault}", f"name another file, or make one with `lanebus {make}`")
        self.path, self.what = path, what


class NotRevocations(SetupError):
    """A file to which revoked tokens should be added holds something else, such as a key. It was not changed."""

    def __init__(self, path: Path, header: str) -> None:
        super().__init__(
            f"{path} is no list of revoked tokens, and was not changed",
            f"name another file; if it is your list, add the line `{header}` to it",
        )
        self.path = path


class InvalidToken(MessageError):
    """A signed token is not valid. Fields: `reason`."""

    def __init__(self, reason: str, remedy: str = "use a token that was signed with this key") -> None:
        super().__init__(f"the token is not valid: {reason}", remedy)
        self.reason = reason


# Errors of uploads.


class UploadMissing(StreamError):
    """There is no such upload of this principal to this session. Fields: `sha256`."""

    def __init__(self, sha256: str) -> None:
        super().__init__(
            f"you have no upload {sha256[:64]} to this session: it was removed, or another server process has it",
            "begin it again. Several processes need one directory for uploads",
        )
        self.sha256 = sha256


class WrongOffset(StreamError):
    """A piece does not begin where the upload ends. Fields: `offset`, where it begins; `expected`, where it must."""

    def __init__(self, offset: int, expected: int) -> None:
        super().__init__(f"the piece begins at {offset}, and the upload ends at {expected}", f"continue at {expected}")
        self.offset, self.expected = offset, expected


class UploadDamaged(MessageError):
    """All bytes of an upload have arrived, and they have another SHA-256. The upload was removed.

    Fields: `sha256`, the expected digest; `found`, the digest of the bytes.
    """

    def __init__(self, sha256: str, found: str) -> None:
        super().__init__(f"the uploaded bytes have the SHA-256 {found}, not {sha256}", "upload the file again")
        self.sha256, self.found = sha256, found


class TooManyUploads(StreamError):
    """A principal has as many uploads as it may. Fields: `limit`; `unit`, "files" or "bytes"."""

    def __init__(self, limit: int, unit: str) -> None:
        super().__init__(
            f"your uploads would exceed {limit} {unit}", "send or delete those that you have begun, or try again later"
        )
        self.limit, self.unit = limit, unit


class UploadBusy(Unavailable):
    """Another request adds to this upload: an earlier one whose connection was lost may not have ended."""

    def __init__(self) -> None:
        super().__init__("another request is adding to this upload", "ask for its offset in a second, and continue")


class UploadPlaceBusy(Unavailable):
    """Another process used the directory of uploads for too long. Fields: `seconds`, the length of the wait."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the directory of uploads was locked for {seconds:g} s", "try again")
        self.seconds = seconds


class UploadsFull(Unavailable):
    """The uploads of all principals need all files or bytes that they may have."""

    def __init__(self) -> None:
        super().__init__("the server holds as many uploads as it may", "try again later")
