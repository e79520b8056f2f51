"""Errors of the data: what was said, or what was read, is wrong. Sending or reading it again cannot help."""

from lanebus.bus.errors.base import BusError

__all__ = (
    "DecodeError",
    "EntryDamaged",
    "ForgedEntry",
    "InvalidArchiveName",
    "InvalidContent",
    "InvalidCursor",
    "InvalidLetterId",
    "InvalidMediaKey",
    "InvalidName",
    "InvalidSessionId",
    "KeyTooLong",
    "MediaDamaged",
    "MediaMissing",
    "MediaRefused",
    "MediaTooLarge",
    "MessageError",
    "MessageTooLarge",
    "NoKinds",
    "NoLanes",
    "UnknownKind",
    "UnknownRole",
    "UnknownVersion",
)


class MessageError(BusError):
    """What was said, or what was read, is not a message. Retrying the same data cannot help."""


class DecodeError(MessageError):
    """The data does not have the shape of a message.

    Fields: `path`, where in the data the fault is ("content.0.text", "" for the whole); `reason`, what is wrong there.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path, self.reason = path, reason


class UnknownRole(MessageError):
    """A message names a role that no lane knows."""

    def __init__(self, role: str) -> None:
        super().__init__(f"unknown role {role!r}")
        self.role = role


class UnknownKind(MessageError):
    """A context entry or an agent event names a kind that does not exist."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"unknown kind {kind!r}")
        self.kind = kind


class UnknownVersion(MessageError):
    """An entry was written in a newer form than this version of the package can read."""

    def __init__(self, version: int, newest: int) -> None:
        super().__init__(f"entry has version {version}, this package reads up to {newest}: install a newer lanebus")
        self.version, self.newest = version, newest


class MessageTooLarge(MessageError):
    """One message is over the limit; nothing of its batch was written."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"message of {size_bytes} bytes is over the limit of {limit_bytes} bytes: shorten it, or move what is "
            "large in it into media"
        )
        self.size_bytes, self.limit_bytes = size_bytes, limit_bytes


class KeyTooLong(MessageError):
    """The `key` of a publish is over the limit; nothing was written. Use a digest of what it was made from."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"key of {size_bytes} bytes is over the limit of {limit_bytes} bytes: use its SHA-256 instead")
        self.size_bytes, self.limit_bytes = size_bytes, limit_bytes


class InvalidContent(MessageError, ValueError):
    """What a constructor was given makes no message. It is a ValueError too, as such mistakes are in other systems."""


class MediaTooLarge(MessageTooLarge):
    """Media of a message, or the file they were to come from, are over a limit."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(size_bytes, limit_bytes)
        text = f"media of {size_bytes} bytes are over the limit of {limit_bytes} bytes: use smaller ones, or a URL"
        self.args = (text,)


class MediaRefused(MessageError):
    """A file cannot become media: it is empty, no regular file, outside of the allowed folder, not what it claims.

    Fields: `name`, of the file without its folders; `reason`.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"file {name!r}: {reason}")
        self.name, self.reason = name, reason


class MediaMissing(MessageError):
    """The media store holds nothing at this address."""

    def __init__(self, key: str) -> None:
        super().__init__(f"media not found: {key}; they were deleted, or the bus was opened with another media store")
        self.key = key


class MediaDamaged(MessageError):
    """Media are not those that their SHA-256 names.

    Fields: `sha256`, what they were to have; `found`, what they have.
    """

    def __init__(self, sha256: str, found: str) -> None:
        super().__init__(f"media {sha256} are damaged, their SHA-256 is {found}: delete them and put them again")
        self.sha256, self.found = sha256, found


class InvalidMediaKey(MessageError):
    """A text that is no address in a media store. It was not looked up, and no path was made of it."""

    def __init__(self, key: str) -> None:
        super().__init__(f"invalid storage key {key[:80]!r}: want a SHA-256, 64 lower-case hex digits")
        self.key = key


class InvalidArchiveName(MessageError):
    """A text that is no name in an archive store. It was not looked up, and no path was made of it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"invalid archive name {name[:80]!r}")
        self.name = name


class InvalidSessionId(MessageError):
    """A session id that does not match `[A-Za-z0-9_-]{1,64}`."""

    def __init__(self, session: str) -> None:
        super().__init__(f"session id {session[:80]!r} does not match [A-Za-z0-9_-]{{1,64}}")
        self.session = session


class InvalidName(MessageError):
    """A name of a reader, a projection, a consumer or its group does not match `pattern`."""

    def __init__(self, name: str, pattern: str = "[A-Za-z0-9_.-]{1,64}") -> None:
        super().__init__(f"name {name[:80]!r} does not match {pattern}")
        self.name, self.pattern = name, pattern


class NoLanes(MessageError):
    """A reader asked for no lane at all, of which nothing would ever come."""

    def __init__(self) -> None:
        super().__init__("no lanes to read: give at least one, such as lanes={Lane.LLM}, or leave `lanes` out for both")


class NoKinds(MessageError):
    """A reader asked for no kind at all, of which nothing would ever come."""

    def __init__(self) -> None:
        super().__init__('no kinds to read: give at least one, such as kinds={"user"}, or leave `kinds` out for all')


class InvalidCursor(MessageError):
    """A text that is not a cursor: `<position>` or `<position>-<k>`."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text[:80]!r} is not a cursor: want <position> or <position>-<k>")
        self.text = text


class InvalidLetterId(MessageError):
    """A text that is not the id of a dead letter: `<bucket>:<milliseconds>-<number>`."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text[:80]!r} is not the id of a dead letter: want <bucket>:<milliseconds>-<number>")
        self.text = text


class ForgedEntry(MessageError):
    """An entry stands in a stream that the bus would not have put it in, so it is not believed."""

    def __init__(self, stream: str, entry_id: str, reason: str) -> None:
        super().__init__(f"entry {entry_id} of {stream}: {reason}")
        self.stream, self.entry_id, self.reason = stream, entry_id, reason


class EntryDamaged(MessageError):
    """An entry is not what was written: its checksum does not fit. Its bytes changed on a disk or in memory.

    Restore the log from a copy, or read the entry from the archive if it has it.
    """

    def __init__(self, session: str, lane: str, position: int) -> None:
        super().__init__(
            f"entry {position} of the {lane} lane of session {session!r} is damaged: its checksum does not fit; "
            "restore the server's data from a copy"
        )
        self.session, self.lane, self.position = session, lane, position
