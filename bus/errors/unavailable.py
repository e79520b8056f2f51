"""Errors of the world: the server cannot be reached or cannot answer. Trying again may help."""

from pathlib import Path

from lanebus.bus.errors.base import BusError

__all__ = (
    "AnswerLost",
    "LoginRefused",
    "OutcomeUnknown",
    "Redirected",
    "Refused",
    "ServerFailed",
    "ServerInUse",
    "Unavailable",
)


class Unavailable(BusError):
    """The server could not be reached or could not answer. Trying again later may help."""


class AnswerLost(Unavailable):
    """The connection ended before the answer had come whole: the server ended, or closed the connection because the
    answer outgrew its `client-output-buffer-limit`. Whether the command was carried out is not known.
    """


class OutcomeUnknown(Unavailable):
    """A publish was sent and no answer came before its deadline: it may or may not be in the log.

    Publishing with the same `key` again is safe: if the first one landed, nothing is added.
    """

    def __init__(self, session: str, seconds: float) -> None:
        super().__init__(
            f"publish to session {session!r}: no answer within {seconds:g} s, the outcome is unknown: publish again "
            "with the same key"
        )
        self.session, self.seconds = session, seconds


class Refused(Unavailable):
    """The server answered with an error and did nothing. `code` is the error's first word, such as OOM or NOSCRIPT.

    The rest of its text is left out, as it may quote what was being written.
    """

    def __init__(self, code: str) -> None:
        remedy = _REMEDIES.get(code)
        super().__init__(f"the server refused: {code}" + (f", {remedy}" if remedy else ""))
        self.code = code

    @property
    def is_transient(self) -> bool:
        """The same command may succeed later, without anybody changing it."""
        return self.code in _TRANSIENT

    @property
    def is_retryable(self) -> bool:
        """It will be over in seconds: the server starts, gives up its place to another, or has just done so."""
        return self.code in _PASSING

    @property
    def is_misled(self) -> bool:
        """The command came to a server that is not, or will not be for long, the one that holds what it is about."""
        return self.code in _MISLED


_MISLED = frozenset({"CLUSTERDOWN", "MASTERDOWN", "MOVED", "READONLY", "UNBLOCKED"})
_REMEDIES = {
    "MISCONF": "it cannot write to its disk: see its log",
    "NOPERM": "its user may not do this: allow it with ACL SETUSER",
    "NOREPLICAS": "it has too few replicas: see min-replicas-to-write",
    "OOM": "its memory is full: raise maxmemory, or trim sessions",
}
_PASSING = _MISLED | {"ASK", "BUSY", "LOADING", "TRYAGAIN"}
_TRANSIENT = _PASSING | {"MISCONF", "NOAUTH", "NOREPLICAS", "OOM"}


class LoginRefused(Refused):
    """A server refused the user or password of an open bus, which goes on trying: a password may be rotated in steps.

    To open a bus is refused with a `SetupError` instead.
    """

    def __init__(self, code: str = "WRONGPASS", where: str = "the server") -> None:
        super().__init__(code)
        self.args = (f"{where} refused the user or password ({code}): correct it there, the bus goes on trying",)


class Redirected(Refused):
    """A server of a cluster named another one for this command: for good (code MOVED), or for this once (code ASK).

    Fields: `slot`; `host`, "" is the host that was asked; `port`.
    """

    def __init__(self, code: str, slot: int, host: str, port: int) -> None:
        super().__init__(code)
        self.slot, self.host, self.port = slot, host, port


class ServerFailed(Unavailable):
    """The embedded server did not start, or ended by itself."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"embedded server: {reason}")
        self.reason = reason


class ServerInUse(Unavailable):
    """The embedded server was not stopped: somebody has its data directory open, and would only start it again.

    Fields: `path`, the data directory; `openers`, the process ids that have it open, as far as they are known.
    """

    def __init__(self, path: Path, openers: tuple[int, ...]) -> None:
        who = f" by process {', '.join(map(str, openers))}" if openers else ""
        super().__init__(f"data directory {path} is held open{who}: end what uses it, its server runs until then")
        self.path, self.openers = path, openers
