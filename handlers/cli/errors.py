"""Errors of the command line."""

from pathlib import Path

from lanebus.bus.errors import MessageError, StreamError, Unavailable

__all__ = (
    "BeyondEnd",
    "FileUnread",
    "FileUnwritten",
    "InputLineRefused",
    "NoSuchLetter",
    "NotAnswered",
    "ServerSilent",
    "SessionEmpty",
)


class SessionEmpty(StreamError):
    """The session has no entries. The usual reason is a misspelt name."""

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r} has no entries: `lanebus sessions` lists the sessions that exist")
        self.session = session


class BeyondEnd(StreamError):
    """The session has not reached this position."""

    def __init__(self, session: str, position: int, last: int) -> None:
        super().__init__(f"session {session!r} has no entry {position}: use a position up to {last}")
        self.session, self.position, self.last = session, position, last


class NoSuchLetter(StreamError):
    """No group has a dead letter with this id. It may have been redriven or dropped."""

    def __init__(self, letter: str) -> None:
        super().__init__(f"there is no dead letter {letter}: `lanebus dead list` lists the ids")
        self.letter = letter


class InputLineRefused(MessageError):
    """A line of the input is not a message. Nothing was published."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"line {number}: {reason}; nothing was published")
        self.number, self.reason = number, reason


class FileUnread(MessageError):
    """A file could not be read."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


class FileUnwritten(Unavailable):
    """A file could not be written. An earlier file of this name is unchanged."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


class ServerSilent(Unavailable):
    """The server accepts connections but does not answer. Nothing was published."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the server did not answer within {seconds:g} s: check that it runs, or wait until it has loaded its log"
        )
        self.seconds = seconds


class NotAnswered(Unavailable):
    """No worker answered a command in time. The command stays in the log, and the next worker answers it."""

    def __init__(self, session: str, position: int, seconds: float) -> None:
        super().__init__(
            f"session {session!r}: no worker answered the command at position {position} within {seconds:g} s: start "
            "one with `lanebus worker`, the command stays in the log"
        )
        self.session, self.position, self.seconds = session, position, seconds
