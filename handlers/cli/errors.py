"""Errors of the command line."""

from pathlib import Path

from lanebus.bus.errors import BusError, MessageError, StreamError, Unavailable
from lanebus.handlers.agent.errors import Delay

__all__ = (
    "BeyondEnd",
    "CommandRefused",
    "Declined",
    "FileUnread",
    "FileUnwritten",
    "InputLineRefused",
    "ModuleRaised",
    "NamespaceMissing",
    "NoSuchGroup",
    "NoSuchLetter",
    "NoSuchProjection",
    "NotAnswered",
    "ServerSilent",
    "SessionEmpty",
    "SessionOpen",
)


class SessionEmpty(StreamError):
    """The session has no entries. The usual reason is a misspelt name."""

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r} has no entries", "`lanebus sessions` lists the sessions that exist")
        self.session = session


class NamespaceMissing(StreamError):
    """The server has no such namespace. The usual reason is a misspelt name, or the wrong server."""

    def __init__(self, namespace: str) -> None:
        super().__init__(
            f"there is no namespace {namespace!r}: nothing was checked",
            "name that of your workers with --namespace; `lanebus config show` prints which server is asked",
        )
        self.namespace = namespace


class SessionOpen(StreamError):
    """The session is open, so it cannot be reopened with messages. Nothing was appended."""

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r} is open", f"append messages with `lanebus publish {session}`")
        self.session = session


class BeyondEnd(StreamError):
    """The session has not reached this position."""

    def __init__(self, session: str, position: int, last: int) -> None:
        super().__init__(f"session {session!r} has no entry {position}", f"use a position up to {last}")
        self.session, self.position, self.last = session, position, last


class NoSuchLetter(StreamError):
    """No group has a dead letter with this id. It may have been redriven or dropped."""

    def __init__(self, letter: str) -> None:
        super().__init__(f"there is no dead letter {letter}", "`lanebus dead list` lists the ids")
        self.letter = letter


class NoSuchGroup(StreamError):
    """There is no consumer group of this name.

    Fields: `group`, the name; `known`, the names of all groups. The error's text lists only the first `most` groups.
    """

    def __init__(self, group: str, known: tuple[str, ...] = (), *, most: int = 5) -> None:
        remedy = f"the groups are {', '.join(sorted(known)[:most])}" if known else "no worker has run here yet"
        more = "; `lanebus groups status` lists all" if len(known) > most else ""
        super().__init__(f"there is no consumer group {group!r}", remedy + more)
        self.group, self.known = group, known


class NoSuchProjection(StreamError):
    """The session stores no projection of this name and version."""

    def __init__(self, session: str, projection: str) -> None:
        super().__init__(
            f"session {session!r} stores no projection {projection!r}",
            f"`lanebus projections list {session}` lists the stored ones",
        )
        self.session, self.projection = session, projection


class Declined(BusError):
    """The user did not confirm, so nothing was done."""

    def __init__(self, done: str) -> None:
        super().__init__(f"nothing was {done}", "answer y, or confirm with --yes")
        self.done = done


class CommandRefused(StreamError):
    """A worker answered a command, and did not apply it."""

    def __init__(self, session: str, command: str, outcome: str, reason: str | None) -> None:
        why = f": {reason}" if reason else ""
        super().__init__(
            f"session {session!r}: the answer to {command} is {outcome!r}{why}",
            f"`lanebus tail {session}` shows what the agent did meanwhile",
        )
        self.session, self.command, self.outcome, self.reason = session, command, outcome, reason


class ModuleRaised(BusError):
    """A module of the user raised an error while it was imported.

    Fields: `target`, the text that names the module; `trace`, the module's own part of the traceback.
    """

    def __init__(self, target: str, error: str, trace: str) -> None:
        super().__init__(f"{target} raised {error} while it was imported", "correct the line that the traceback names")
        self.target, self.trace = target, trace


class InputLineRefused(MessageError):
    """A line of the input is not a message. Nothing was published."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"line {number}: {reason}; nothing was published")
        self.number, self.reason = number, reason


class FileUnread(MessageError):
    """A file could not be read."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}", "check its path and your right to read it")
        self.path, self.reason = path, reason


class FileUnwritten(Unavailable):
    """A file could not be written. An earlier file of this name is unchanged."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}", "choose another place to write to")
        self.path, self.reason = path, reason


class ServerSilent(Unavailable):
    """The server accepts connections but does not answer. Nothing was published."""

    def __init__(self, seconds: float, *, is_tls: bool = False) -> None:
        plain = "; if its port does not speak TLS, use redis:// instead of rediss://" if is_tls else ""
        super().__init__(
            f"the server did not answer within {seconds:g} s",
            f"check that it runs, or wait until it has loaded its log{plain}",
        )
        self.seconds = seconds


class NotAnswered(Unavailable):
    """No worker answered a command in time. The command stays in the log, and the next worker answers it.

    Fields: `session`, `position`; `seconds`, the limit; `delay`, why there is no answer yet.
    """

    def __init__(self, session: str, position: int, seconds: float, delay: Delay) -> None:
        subject = "no worker answered" if delay.cause == "unserved" else "no answer yet to"
        remedies = {
            "unserved": "start one with `lanebus worker`, the command stays in the log",
            "running": f"wait longer: the command stays in the log, and `lanebus tail {session}` shows its answer",
            "waiting": f"wait longer: the command stays in the log, and `lanebus tail {session}` shows its answer",
            "unknown": "the command stays in the log; `lanebus agents` shows whether a worker serves the agent",
        }
        super().__init__(
            f"session {session!r}: {subject} the command at position {position} within {seconds:g} s"
            f"{delay.text and f': {delay.text}'}",
            remedies[delay.cause],
        )
        self.session, self.position, self.seconds, self.delay = session, position, seconds, delay
