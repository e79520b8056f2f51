"""What the command line refuses by itself."""

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
    """Nothing was ever published to the session that is to be shown; most often its name is misspelt."""

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r} has no entries; `lanebus sessions` lists those that have")
        self.session = session


class BeyondEnd(StreamError):
    """A position that the session has not reached."""

    def __init__(self, session: str, position: int, last: int) -> None:
        super().__init__(f"session {session!r} has no entry {position}: its last one is {last}")
        self.session, self.position, self.last = session, position, last


class NoSuchLetter(StreamError):
    """No group has a dead letter of that id (any more)."""

    def __init__(self, letter: str) -> None:
        super().__init__(f"there is no dead letter {letter}; `lanebus dead list` lists those that there are")
        self.letter = letter


class InputLineRefused(MessageError):
    """A line of the input is no message; nothing of the input was published."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"line {number}: {reason}; nothing was published")
        self.number, self.reason = number, reason


class FileUnread(MessageError):
    """A file that was named could not be read."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


class FileUnwritten(Unavailable):
    """A file that was named could not be written; what was there before is untouched."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


class ServerSilent(Unavailable):
    """The server takes connections and does not answer; nothing was published."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the server has not answered for {seconds:g} s; is it stopped, or loading a large log?")
        self.seconds = seconds


class NotAnswered(Unavailable):
    """No worker has answered a command in time. It stands in the log, and is answered by the next one that comes."""

    def __init__(self, session: str, position: int, seconds: float) -> None:
        super().__init__(
            f"session {session!r}: no worker has answered the command at position {position} for {seconds:g} s; "
            f"it stays in the log"
        )
        self.session, self.position, self.seconds = session, position, seconds
