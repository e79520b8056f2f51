"""Errors of the command line, and the next step after an error of the bus, in terms of the command line."""

from pathlib import Path

from lanebus.bus import errors
from lanebus.bus.errors import BusError, MessageError, StreamError, Unavailable, releases_of
from lanebus.handlers.agent import Delay, RequestUnknown
from lanebus.handlers.formats import UnknownFormat, Unsayable
from lanebus.handlers.providers import ContentRefused, NoModel


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


def next_step(error: BusError) -> str:
    """Return what the user of a command can do about an error. It is never empty."""
    return _own_words(error) or error.remedy or _general(error)


def _own_words(error: BusError) -> str:
    """Return the next step if it is a command or an option; "" if the error's own remedy fits."""
    match error:
        case errors.SessionClosed(session=session):
            return f"`lanebus reopen {session}` opens it again"
        case errors.Conflict(session=session):
            again = 'repeat with --expected and the "cursor" of its last line'
            return f"read on with `lanebus tail {session} --json`, then {again}"
        case errors.WrongAgent(session=session, given=given):
            return f"leave out --agent, or hand the session over with `lanebus hand-over {session} {given}`"
        case errors.EntriesMissing(session=session, first_kept=first, lane=lane):
            of_lane = f" --lane {lane}" if lane else ""
            return (
                f"restore the server's data from a backup, or read what follows with `lanebus tail {session}{of_lane} "
                f"--after {first - 1}`; if the entries are archived, `lanebus trim {session} --before {first}`"
            )
        case errors.HeadMissing(session=session) | errors.SessionDamaged(session=session):
            return f"restore the server's data from a backup, or delete the session with `lanebus erase {session}`"
        case errors.ParentErased(session=session, first_kept=first):
            return f"read its own entries with `lanebus tail {session} --after {first - 1}`"
        case errors.CursorTrimmed(session=session, first_kept=first):
            return (
                f"read the rest with `lanebus tail {session} --after {first - 1}`, or give the --archive that has them"
            )
        case errors.InvalidCursor():
            return 'use a position, or copy "cursor" from a line of `lanebus tail --json`'
        case RequestUnknown(session=session):
            return f"`lanebus turns {session}` lists the turns"
        case errors.TrimRefused(holders=holders):
            commands = " or ".join(f"`lanebus {each.command}`" for each in releases_of(holders))
            return f"trim less, {f'release them with {commands}, ' if commands else ''}or repeat with --force"
        case errors.NoArchive():
            return "give one with --archive or LANEBUS_ARCHIVE"
        case errors.GroupInUse(group=group):
            return f"stop them, or repeat `lanebus groups remove {group}` with --force"
        case errors.OutcomeUnknown(cause=cause):
            before = f"{cause.remedy}; then " if cause is not None and cause.remedy else ""
            return f"{before}repeat it with the same --key, which adds nothing if it was appended"
        case errors.OldNamespace(namespace=name):
            return (
                f"export the sessions of {name!r} with the version that wrote it (lanebus export), then import them "
                "with another --namespace"
            )
        case errors.LoginRefused(password_file=file) if file:
            return f"correct the password in {file}, or the user in the URL"
        case errors.LoginRefused():
            return "correct the user or the password in the URL"
        case errors.Refused(code="NOPERM", command=""):
            namespace = "name the namespace that the user is for with --namespace"
            return f"{namespace}, or run `lanebus doctor`, which names the right that the user lacks"
        case NoModel():
            return "name one with --model, or print the request of a past turn with --turn"
        case UnknownFormat(is_cut=True):
            return "the file was cut: copy it again, or write it again with `lanebus export`"
        case UnknownFormat():
            return "give a file of one of the formats in `lanebus import --help`"
        case Unsayable() | ContentRefused():
            return "change the messages, or leave out what does not fit with --lossy"
        case _:
            return ""


def _general(error: BusError) -> str:
    match error:
        case errors.SetupError():
            return "`lanebus config show` prints each setting and where it comes from"
        case errors.Unavailable():
            return "try again; `lanebus doctor` checks the server"
        case errors.MessageError():
            return "correct the input and try again"
        case _:
            return "look at the session with `lanebus tail`, then try again"
