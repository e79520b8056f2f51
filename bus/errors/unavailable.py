"""Errors of the server or the network. A retry may succeed."""

from pathlib import Path

from lanebus.bus.errors.message import BusError


class Unavailable(BusError):
    """The server cannot be reached or cannot answer. A later retry may succeed."""

    @property
    def is_transient(self) -> bool:
        """Whether the same command may succeed later, without a change of the session or of the user's rights."""
        return True


class AnswerLost(Unavailable):
    """The connection ended before the complete answer arrived. It is unknown whether the command was executed.

    Either the server ended, or it closed the connection because the answer exceeded its `client-output-buffer-limit`.
    """


class OutcomeUnknown(Unavailable):
    """A publish was sent but not answered before its deadline. Its messages may or may not be in the log.

    It is safe to publish again with the same `key`: if the first publish was appended, the second adds nothing.

    Fields: `session`; `seconds`, the time limit of the publish; `is_forgotten`. If `is_forgotten` is True, the server
    no longer knows this producer's last publish, because many other producers have published since. The error is then
    raised before the time limit.

    `cause` says why the embedded server ended, such as a full disk; None if it did not end, or it is not known.
    """

    def __init__(
        self, session: str, seconds: float, *, is_forgotten: bool = False, cause: BusError | None = None
    ) -> None:
        why = f"no answer came within {seconds:g} s"
        if is_forgotten:
            why = "the answer was lost, and the server no longer knows the last publish of this producer"
        remedy = "publish again with the same key"
        if cause is not None:
            why, remedy = f"{why}: {cause.fault}", f"{cause.remedy}; then {remedy}" if cause.remedy else remedy
        super().__init__(f"the outcome of a publish to session {session!r} is unknown, {why}", remedy)
        self.session, self.seconds, self.is_forgotten, self.cause = session, seconds, is_forgotten, cause


class Refused(Unavailable):
    """The server answered with an error and did not execute the command.

    The server's text is left out, because it may quote the data of the command.

    Fields: `code`, the first word of the error, such as OOM or NOSCRIPT; `command`, the refused command's name if
    the code is NOPERM and the server reports the name, otherwise "".
    """

    def __init__(self, code: str, command: str = "") -> None:
        remedy = _REMEDIES.get(code, "")
        super().__init__(f"the server refused the command {f'{command!r} ' if command else ''}with {code}", remedy)
        self.code, self.command = code, command

    @property
    def is_transient(self) -> bool:
        """See `Unavailable`."""
        return self.code in _TRANSIENT

    @property
    def is_retryable(self) -> bool:
        """Whether the command is expected to succeed within seconds, such as after a server start or a failover."""
        return self.code in _PASSING

    @property
    def is_of_server(self) -> bool:
        """Whether the server refuses other sessions too, because of the server's state, the user or the user's
        rights."""
        return self.is_transient or self.code == "NOPERM"

    @property
    def is_misled(self) -> bool:
        """Whether the command went to the wrong server: one that does not serve the command's keys, or soon
        will not."""
        return self.code in _MISLED


_MISLED = frozenset({"CLUSTERDOWN", "MASTERDOWN", "MOVED", "READONLY", "UNBLOCKED"})
_REMEDIES = {
    "MISCONF": "it cannot write to its disk: free space there, and see its log",
    "NOPERM": "log in as a user that may do this: run `lanebus acl` and apply what it prints",
    "NOREPLICAS": "it has too few replicas: see min-replicas-to-write",
    "OOM": "its memory is full: raise maxmemory, then archive and trim sessions; `lanebus erase` works at once",
}
_PASSING = _MISLED | {"ASK", "BUSY", "LOADING", "TRYAGAIN"}
_TRANSIENT = _PASSING | {"MISCONF", "NOAUTH", "NOREPLICAS", "OOM"}


class LoginRefused(Refused):
    """A server refused the user or password of an open bus.

    The bus keeps trying, because the server's password may be changed again. While `Bus.open` connects, the error is a
    `SetupError` instead.

    Fields: `code`, see `Refused`; `password_file`, the file that the password is of, "" if it is of the URL.
    """

    def __init__(self, code: str = "WRONGPASS", where: str = "the server", *, password_file: str = "") -> None:
        fault = f"{where} refused the user or password ({code})"
        place = f"the password in {password_file}, or the user" if password_file else "it"
        Unavailable.__init__(self, fault, f"correct {place} there, the bus keeps trying")
        self.code, self.command, self.password_file = code, "", password_file

    @property
    def is_transient(self) -> bool:
        """See `Unavailable`."""
        return True


class Redirected(Refused):
    """A server of a cluster redirected the command to another server, permanently (code MOVED) or once (code ASK).

    Fields: `code`; `slot`; `host` and `port` of the other server. `host` is "" if it is the host of
        the server that answered.
    """

    def __init__(self, code: str, slot: int, host: str, port: int) -> None:
        super().__init__(code)
        self.slot, self.host, self.port = slot, host, port


class Unconnectable(Unavailable):
    """A server answers, and no connection to it can be made until a setting, a certificate or a right is changed.

    An open bus keeps trying, because the server may be changed. A program that waits for its server to start does not.
    """


class RewriteUnfinished(Unavailable):
    """A session is erased, but the server's append-only file was not rewritten and may still have its entries.

    Fields: `reason`.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the session is erased, but the server's append-only file was not rewritten: {reason}",
            "erase the session again with rewrite",
        )
        self.reason = reason


class ServerFailed(Unavailable):
    """The embedded server did not start, or ended unexpectedly.

    Fields: `reason`.
    """

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(f"embedded server: {reason}", remedy)
        self.reason = reason


class ServerInUse(Unavailable):
    """The embedded server was not stopped, because other processes use its data directory and would restart the server.

    Fields: `path`, the data directory; `openers`, the ids of those processes that are connected to
    the server.
    """

    def __init__(self, path: Path, openers: tuple[int, ...]) -> None:
        by = f" by process {', '.join(map(str, openers))}" if openers else ""
        super().__init__(f"data directory {path} is held open{by}", "end the processes that use it to stop the server")
        self.path, self.openers = path, openers
