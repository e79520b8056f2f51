"""Every error raised on purpose. One root, then branches by who can act.

    BusError
    ├─ MessageError    the data is wrong
    ├─ SetupError      the settings are wrong; change them
    ├─ StreamError     the stream said no
    ├─ Closed          you closed it
    └─ Unavailable     the world; try again

Fields are typed and the text is built here: catch a class and read its fields, never parse the text.
"""

from collections.abc import Mapping
from pathlib import Path

__all__ = (
    "AnswerLost",
    "ArchiveDamaged",
    "BusError",
    "Closed",
    "Conflict",
    "CursorTrimmed",
    "DecodeError",
    "DirectoryNotOwned",
    "EntryDamaged",
    "EraseRefused",
    "Fenced",
    "ForgedEntry",
    "GroupInUse",
    "InvalidArchiveName",
    "InvalidContent",
    "InvalidCursor",
    "InvalidLetterId",
    "InvalidMediaKey",
    "InvalidName",
    "InvalidNamespace",
    "InvalidSessionId",
    "KeyTooLong",
    "LogRolledBack",
    "LoginRefused",
    "MediaDamaged",
    "MediaMissing",
    "MediaRefused",
    "MediaTooLarge",
    "MessageError",
    "MessageTooLarge",
    "MissingExtra",
    "MissingUpcaster",
    "NoArchive",
    "NoEmbeddedServer",
    "NoKinds",
    "NoLanes",
    "NoMediaStore",
    "NoSuchPosition",
    "OldNamespace",
    "OutcomeUnknown",
    "OverLimit",
    "ParentErased",
    "PreviewFull",
    "Redirected",
    "Refused",
    "ReplyTooLarge",
    "SequenceGap",
    "ServerFailed",
    "ServerInUse",
    "SessionClosed",
    "SessionErased",
    "SessionExists",
    "SetupError",
    "SocketPathTooLong",
    "StreamError",
    "TrimRefused",
    "Unavailable",
    "UnknownKind",
    "UnknownRole",
    "UnknownVersion",
    "UnsafeServer",
)


class BusError(Exception):
    """The root of all errors this project raises on purpose."""


# --- the data is wrong --------------------------------------------------------------------------------------------


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


# --- the settings are wrong ---------------------------------------------------------------------------------------


class SetupError(BusError):
    """The bus cannot start as it was asked to. Change the setting that the text names."""


class InvalidNamespace(SetupError):
    """A namespace that cannot stand at the beginning of every key. Fields: `namespace`."""

    def __init__(self, namespace: str) -> None:
        super().__init__(
            f"namespace {namespace[:80]!r} is not allowed: use 1 to 64 letters, digits and characters of _ . : -"
        )
        self.namespace = namespace


class MissingExtra(SetupError):
    """A package is needed that is not installed by itself."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"the package {package!r} is not installed: pip install 'lanebus[{extra}]'")
        self.package, self.extra = package, extra


class MissingUpcaster(SetupError):
    """Entries of an old version could not be read: no step leads from it to the next. The package itself is wrong."""

    def __init__(self, version: int, newest: int) -> None:
        super().__init__(
            f"entries of version {version} cannot be read as version {newest}, as a step between is missing: "
            "install a complete lanebus"
        )
        self.version, self.newest = version, newest


class NoMediaStore(SetupError):
    """Media are to be looked up, and there is no store to look into."""

    def __init__(self, key: str) -> None:
        super().__init__(f"no MediaStore configured, which {key!r} needs: give the one that holds it")
        self.key = key


class NoArchive(SetupError):
    """A session is to be archived, or its archive to be erased, and the bus was opened without an archive."""

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r}: the bus was opened without an archive: give Bus.open(archive=…)")
        self.session = session


class NoEmbeddedServer(SetupError):
    """There is no server binary on this platform; give the URL of a server instead."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"no embedded server: {reason}; give a server with --url or LANEBUS_URL, such as redis://localhost:6379"
        )
        self.reason = reason


class SocketPathTooLong(SetupError):
    """A unix socket's path may not have more bytes than the kernel's limit."""

    def __init__(self, path: Path, limit_bytes: int) -> None:
        size = len(str(path).encode())
        super().__init__(f"socket path {path} has {size} bytes, the limit is {limit_bytes}: use a shorter directory")
        self.path, self.limit_bytes = path, limit_bytes


class DirectoryNotOwned(SetupError):
    """The data directory belongs to another user, or others may enter it."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"data directory {path}: {reason}")
        self.path, self.reason = path, reason


class ReplyTooLarge(SetupError):
    """One entry is larger than what the server sends to a client at once, so it cannot be read.

    Raise the server's setting `client-output-buffer-limit` for normal clients.

    Fields: `session`; `position`, of the entry; `size_bytes`, of its JSON.
    """

    def __init__(self, session: str, position: int, size_bytes: int) -> None:
        super().__init__(
            f"session {session!r}: the entry at position {position} has {size_bytes} bytes, which the server does not "
            "send in one reply: raise its client-output-buffer-limit for normal clients"
        )
        self.session, self.position, self.size_bytes = session, position, size_bytes


class OldNamespace(SetupError):
    """A namespace was written in an earlier form that this version of the package does not read."""

    def __init__(self, namespace: str, schema: int, needed: int) -> None:
        super().__init__(
            f"namespace {namespace!r} has schema {schema} and this version of lanebus needs {needed}: export its "
            "sessions with the version that wrote it (lanebus export), import them into a new directory or namespace"
        )
        self.namespace, self.schema, self.needed = namespace, schema, needed


class UnsafeServer(SetupError):
    """The server at the URL would lose entries without saying so, or is too old."""

    def __init__(self, setting: str, found: str, wanted: str) -> None:
        super().__init__(f"server has {setting} = {found}, the bus needs {wanted}")
        self.setting, self.found, self.wanted = setting, found, wanted


# --- the stream said no -------------------------------------------------------------------------------------------


class StreamError(BusError):
    """The log refused, with a reason. Nothing was written."""


class Conflict(StreamError):
    """`expected=` named another position than the session's last one."""

    def __init__(self, session: str, expected: int, found: int) -> None:
        super().__init__(f"session {session!r} is at position {found}, expected {expected}: read on and decide anew")
        self.session, self.expected, self.found = session, expected, found


class Fenced(StreamError):
    """The lease this append belongs to was lost: another worker holds a later epoch."""

    def __init__(self, session: str, epoch: int, found: int) -> None:
        super().__init__(
            f"session {session!r}: lease epoch {epoch} is over, the session is at epoch {found}: stop, as another "
            "worker goes on"
        )
        self.session, self.epoch, self.found = session, epoch, found


class SessionClosed(StreamError):
    """The session was closed; it takes no further messages."""

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r} is closed: reopen it to publish more")
        self.session = session


class SessionErased(StreamError):
    """The session was erased; its id is never used again, so that a late writer cannot bring it back."""

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r} was erased: use another session id")
        self.session = session


class SessionExists(StreamError):
    """A session was to begin as a fork, and there is one of that id already: another fork, or no fork at all.

    Fields: `session`; `parent`, what it is a fork of, and `at`, the last position it shares; None and 0 if it is none.
    """

    def __init__(self, session: str, parent: str | None, at: int) -> None:
        what = f"as a fork of {parent!r} at position {at}" if parent else "and is no fork"
        super().__init__(f"session {session!r} exists {what}: choose another id")
        self.session, self.parent, self.at = session, parent, at


class NoSuchPosition(StreamError):
    """A session was to be forked at a position that it does not have (yet). Fields: `last`, the last one it has."""

    def __init__(self, session: str, position: int, last: int) -> None:
        super().__init__(f"session {session!r} has no position {position}: name one from 1 to its last, {last}")
        self.session, self.position, self.last = session, position, last


class OverLimit(StreamError):
    """A session, or all sessions of a namespace, hold as many bytes as they may.

    Fields: `scope`, "session" or "namespace"; `size_bytes`, what is there; `limit_bytes`.
    """

    def __init__(self, session: str, scope: str, size_bytes: int, limit_bytes: int) -> None:
        whose = f"session {session!r}" if scope == "session" else "the namespace"
        super().__init__(
            f"publish to session {session!r}: {whose} holds {size_bytes} bytes, its limit is {limit_bytes}: trim or "
            "erase what is no longer needed, or raise the limit"
        )
        self.session, self.scope, self.size_bytes, self.limit_bytes = session, scope, size_bytes, limit_bytes


class PreviewFull(StreamError):
    """The live deltas of messages that are still open fill all the room they have; the messages will follow whole."""

    def __init__(self, session: str, used_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"session {session!r}: live deltas take {used_bytes} bytes, the limit is {limit_bytes} bytes: publish the "
            "whole messages, which ends them"
        )
        self.session, self.used_bytes, self.limit_bytes = session, used_bytes, limit_bytes


class SequenceGap(StreamError):
    """A producer's number is not the next one: an earlier append never landed."""

    def __init__(self, producer: str, expected: int, found: int) -> None:
        super().__init__(
            f"producer {producer!r}: expected number {expected}, found {found}: publish again what is missing"
        )
        self.producer, self.expected, self.found = producer, expected, found


class LogRolledBack(StreamError):
    """The log has lost what was already acknowledged or read: it came back from an older copy and may have grown.

    Fields: `seen`, the position it was seen at; `found`, up to where it surely still is what was seen. Read again from
    there, or publish again what was lost: the next publish goes in.
    """

    def __init__(self, session: str, seen: int, found: int) -> None:
        super().__init__(
            f"session {session!r} was seen at position {seen} and lost its end, it is the same up to {found}: read "
            "again from there, or publish again what was lost"
        )
        self.session, self.seen, self.found = session, seen, found


class GroupInUse(StreamError):
    """A consumer group was not removed: some of its consumers are alive. Stop them, or remove it by force.

    Fields: `consumers`, their names.
    """

    def __init__(self, group: str, consumers: tuple[str, ...]) -> None:
        super().__init__(
            f"consumer group {group!r} has running consumers ({', '.join(consumers)}): stop them, or remove the group "
            "by force"
        )
        self.group, self.consumers = group, consumers


class CursorTrimmed(StreamError):
    """The entries after this cursor were trimmed; reading would skip them unseen."""

    def __init__(self, session: str, cursor: str, first_kept: int) -> None:
        super().__init__(
            f"session {session!r}: entries after {cursor} were trimmed, first kept: {first_kept}: begin there, or open "
            "the bus with the archive that has them"
        )
        self.session, self.cursor, self.first_kept = session, cursor, first_kept


class ParentErased(CursorTrimmed):
    """What a fork shares cannot be read any more: the session that held it, `parent`, was erased by force."""

    def __init__(self, session: str, cursor: str, first_kept: int, parent: str) -> None:
        super().__init__(session, cursor, first_kept)
        self.args = (f"session {session!r} shares entries with {parent!r}, which was erased; first left: {first_kept}",)
        self.parent = parent


_RELEASES = {"p": "projections remove SESSION NAME@VERSION", "g": "groups remove GROUP", "f": "erase FORK"}
"""what ends a holder of entries, by the letter before its name"""


class TrimRefused(StreamError):
    """Somebody still needs what was to be trimmed away; nothing was.

    Fields: `before`, the first position that was to be kept; `holders`, each with the position it is done with:
    `r:<reader>`, `p:<projection>@<version>`, `f:<session>` of a fork, `g:<group>` of workers. Trim up to the lowest of
    them, drop a checkpoint that nobody moves any more, or pass them by force.
    """

    def __init__(self, session: str, before: int, holders: Mapping[str, int]) -> None:
        who = ", ".join(f"{name} at {position}" for name, position in sorted(holders.items()))
        kinds = {name.partition(":")[0] for name in holders}
        ways = " or ".join(f"`lanebus {_RELEASES[kind]}`" for kind in sorted(kinds & _RELEASES.keys()))
        super().__init__(
            f"session {session!r}: what is before position {before} is still needed by {who}: trim less, "
            f"{f'end that by {ways}, ' if ways else ''}or trim by force"
        )
        self.session, self.before, self.holders = session, before, holders


class EraseRefused(StreamError):
    """Forks of a session share its entries, so it was not erased. Fields: `forks`, their ids."""

    def __init__(self, session: str, forks: tuple[str, ...]) -> None:
        super().__init__(
            f"session {session!r}: its entries are shared by its forks {', '.join(sorted(forks))}: erase these first, "
            "or erase it by force"
        )
        self.session, self.forks = session, forks


class ArchiveDamaged(StreamError):
    """A segment of a session's archive is not there, or is not what it was when it was written.

    Fields: `segment`, its name in the archive, `<first>-<last>-<sha256>`; `reason`. Nothing of it was read.
    """

    def __init__(self, session: str, segment: str, reason: str) -> None:
        super().__init__(f"archive of session {session!r}, segment {segment}: {reason}; restore it from a backup")
        self.session, self.segment, self.reason = session, segment, reason


# --- you closed it ------------------------------------------------------------------------------------------------


class Closed(BusError):
    """The bus, or the part of it that was used, is closed."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is closed: open another")
        self.what = what


# --- the world ----------------------------------------------------------------------------------------------------


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
    def is_passing(self) -> bool:
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
