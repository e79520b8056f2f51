"""The branches `StreamError`, the log refused an operation; `SetupError`, a setting is wrong; and `Closed`."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from lanebus.bus.errors.base import BusError, MessageError, Refused

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class StreamError(BusError):
    """The log refused the operation. Nothing was written."""


class Conflict(StreamError):
    """The session's last position differs from the `expected` position that the caller passed.

    Fields: `session`; `expected`, the caller's position; `found`, the session's last position.
    """

    def __init__(self, session: str, expected: int, found: int) -> None:
        super().__init__(f"session {session!r} is at position {found}, expected {expected}", "read on and decide anew")
        self.session, self.expected, self.found = session, expected, found


class Fenced(StreamError):
    """An append was refused, because its epoch is not the epoch of the session's newest lease.

    If `epoch` is not above `found`, the lease is lost. An `epoch` above `found` is from another session's lease.

    Fields: `session`; `epoch`, the epoch of the append; `found`, the session's present epoch.
    """

    def __init__(self, session: str, epoch: int, found: int) -> None:
        is_lost = epoch <= found
        what = (
            f"lease epoch {epoch} of session {session!r} is over"
            if is_lost
            else (f"no lease of session {session!r} has epoch {epoch}")
        )
        super().__init__(
            f"{what}, the session is at epoch {found}",
            "stop, because another worker has taken over" if is_lost else "pass the `epoch` of a lease of this session",
        )
        self.session, self.epoch, self.found = session, epoch, found


class WrongAgent(StreamError):
    """The session does not belong to the agent that the caller named.

    Fields: `session`; `given`, the agent that the caller named; `actual`, the session's agent, "" if it has none.
    """

    def __init__(self, session: str, given: str, actual: str) -> None:
        super().__init__(
            f"session {session!r} belongs to the agent {actual!r}, not to {given!r}",
            "name its agent or none, or hand the session over first",
        )
        self.session, self.given, self.actual = session, given, actual


class LeaseHeld(StreamError):
    """Another holder has the session's lease, and did not release it in time.

    Fields: `session`; `seconds`, the time after which the holder's lease expires unless it is renewed.
    """

    def __init__(self, session: str, seconds: float) -> None:
        super().__init__(
            f"session {session!r}: another holder has the lease for {seconds:.1f} s",
            "wait longer, or leave the session to it",
        )
        self.session, self.seconds = session, seconds


class LeaseNotHeld(StreamError):
    """A lease was used outside of its `async with` block. Fields: `session`."""

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r}: the lease is not held", "enter it with `async with` first")
        self.session = session


class SessionClosed(StreamError):
    """The session is closed and accepts no messages until it is reopened.

    Fields: `session`.
    """

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r} is closed", "reopen it to publish more")
        self.session = session


class SessionErased(StreamError):
    """The session was erased. Its id cannot be used again, so a late writer cannot recreate it.

    Fields: `session`.
    """

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r} was erased", "use another session id")
        self.session = session


class SessionDamaged(StreamError):
    """A stored value of a session is not one that the bus writes: a foreign client or a fault of the server changed it.

    Fields: `session`; `place`, the key and its field, such as "head, position".
    """

    def __init__(self, session: str, place: str) -> None:
        super().__init__(
            f"a stored value of session {session!r} is damaged ({place})",
            "run `lanebus verify`, and restore the server's data from a backup, or erase the session",
        )
        self.session, self.place = session, place


class SessionExists(StreamError):
    """A fork cannot be created, because another session already has the id.

    Fields: `session`; `parent`, the parent of the existing session, or None if that session is no fork; `at`, the last
    position that the existing session shares with the parent, or 0.
    """

    def __init__(self, session: str, parent: str | None, at: int) -> None:
        # The parent is in a field only: a client may be shown this text, and not be allowed to know the parent.
        what = "as another fork" if parent else "and is not a fork"
        super().__init__(f"session {session!r} exists {what}", "choose another id")
        self.session, self.parent, self.at = session, parent, at


class NoSuchPosition(StreamError):
    """A caller asked to fork, trim or read a session up to a position that does not exist.

    Fields: `session`; `position`; `last`, the session's last position.
    """

    def __init__(self, session: str, position: int, last: int) -> None:
        if last:
            super().__init__(f"session {session!r} has no position {position}", f"name one from 1 to its last, {last}")
        else:
            super().__init__(f"session {session!r} has no entries", "publish to it first")
        self.session, self.position, self.last = session, position, last


class OverLimit(StreamError):
    """A publish or media would exceed the byte limit of the session, or of all sessions and media of the namespace.

    Fields: `session`, "" for media that are stored without a publish; `scope`, "session" or "namespace"; `size_bytes`,
    the present size; `limit_bytes`.
    """

    def __init__(self, session: str, scope: str, size_bytes: int, limit_bytes: int) -> None:
        what = f"publish to session {session!r}" if session else "media"
        super().__init__(
            f"{what} would exceed the limit of {limit_bytes} bytes, the {scope} holds {size_bytes}",
            "trim or erase data that is no longer needed, or raise the limit",
        )
        self.session, self.scope, self.size_bytes, self.limit_bytes = session, scope, size_bytes, limit_bytes


class PreviewFull(StreamError):
    """The live deltas of unfinished messages have reached their byte limit. Complete messages can still be published.

    Fields: `session`; `used_bytes`, the present size; `limit_bytes`.
    """

    def __init__(self, session: str, used_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            (
                f"live deltas of session {session!r} have {used_bytes} bytes, the limit is {limit_bytes} bytes "
                "(`LogBounds.live_bytes`)"
            ),
            "publish the whole messages, which removes their deltas",
        )
        self.session, self.used_bytes, self.limit_bytes = session, used_bytes, limit_bytes


class LogEmptied(StreamError):
    """The log of the namespace that this process knew is gone, and another one has begun in its place: the server lost
    its data or was flushed. Nothing was written.

    Sessions that the process knew raise `LogRolledBack` instead. All publishes are refused until the data is restored,
    or `lanebus namespace accept` accepts the new log.

    Fields: `namespace`.
    """

    def __init__(self, namespace: str) -> None:
        super().__init__(
            f"the log of namespace {namespace!r} was emptied: the server does not have the log that was here before",
            "restore the server's data from a backup; or, if the loss is known or was meant, accept the empty log with"
            f" `lanebus namespace accept --namespace {namespace}`",
        )
        self.namespace = namespace


class LogRolledBack(StreamError):
    """The log lost entries that were acknowledged or read: an older copy was restored, by a restart, a failover, or
    keys that were replaced in the server that runs.

    New entries may have been appended since. Read again from `found`, or publish the lost messages again; the next
    publish is accepted.

    Fields: `session`; `seen`, the position that was acknowledged or read; `found`, the position up to which the log
    certainly is unchanged, 0 if no entry certainly is; `of_expected`, whether a publish found that the log lost the
    entry that it `expected`, while no acknowledged publish of this process is known to be lost.
    """

    def __init__(self, session: str, seen: int, found: int, *, of_expected: bool = False) -> None:
        if found > 0:
            fault = f"session {session!r} was at position {seen} and has lost entries: it is unchanged up to {found}"
            remedy = (
                f"read again after position {found}, or publish the lost messages again; a cursor past the end looks "
                "the same"
            )
        else:
            fault = f"session {session!r} lost what was seen at {seen}, and perhaps all before it"
            remedy = (
                "check that the cursor is of this session; if so, an older copy was restored: read from the start, or "
                "publish the lost messages again"
            )
        super().__init__(fault, remedy)
        self.session, self.seen, self.found, self.of_expected = session, seen, found, of_expected


class GroupInUse(StreamError):
    """A consumer group was not removed, because it has live consumers. Stop them, or remove the group by force.

    Fields: `group`; `consumers`, the names of the live consumers.
    """

    def __init__(self, group: str, consumers: tuple[str, ...]) -> None:
        super().__init__(
            f"consumer group {group!r} has running consumers ({', '.join(consumers)})",
            "stop them, or remove the group by force",
        )
        self.group, self.consumers = group, consumers


class CursorTrimmed(StreamError):
    """Entries after the cursor were trimmed, so the reader would miss them.

    Fields: `session`; `cursor`, the cursor as text; `first_kept`, the first position that can be read.
    """

    def __init__(self, session: str, cursor: str, first_kept: int) -> None:
        super().__init__(
            f"entries of session {session!r} after {cursor} were trimmed, the first kept is {first_kept}",
            "begin there, or open the bus with the archive that has them",
        )
        self.session, self.cursor, self.first_kept = session, cursor, first_kept


class EntriesMissing(CursorTrimmed):
    """Entries after the cursor are missing from the log, although no trim removed them.

    Another client of the server deleted them, or the server's data was restored without them. They may be in the middle
    of the log or at its end.

    Fields: the fields of `CursorTrimmed`; `lane`, the lane that lacks them: "llm", "extension", or "" if that is not
    known. If the end is missing, `first_kept` is the position after it, which may not exist yet.
    """

    def __init__(self, session: str, cursor: str, first_kept: int, lane: str = "") -> None:
        of_lane, last = f"the {lane} lane of " if lane else "", first_kept - 1
        StreamError.__init__(
            self,
            f"entries of {of_lane}session {session!r} after {cursor} up to {last} are missing, no trim removed them",
            f"restore the server's data from a backup, read on after {last}, or trim to {first_kept} if archived",
        )
        self.session, self.cursor, self.first_kept, self.lane = session, cursor, first_kept, lane


class HeadMissing(StreamError):
    """The lanes of a session have entries of several publishes, but the session's head is gone.

    Another client of the server deleted the head, or the server's data was restored without it. Nothing was written.

    Fields: `session`; `last`, the position of the last entry that was found.
    """

    def __init__(self, session: str, last: int) -> None:
        super().__init__(
            f"session {session!r} has entries up to {last} at least, but its head is missing",
            "restore the server's data from a backup, or erase the session",
        )
        self.session, self.last = session, last


class ParentErased(CursorTrimmed):
    """Entries that a fork shares cannot be read, because the session that held them was erased by force.

    Fields: the fields of `CursorTrimmed`; `parent`, the erased session.
    """

    def __init__(self, session: str, cursor: str, first_kept: int, parent: str) -> None:
        StreamError.__init__(
            self,
            f"session {session!r} is a fork, and the session that held its first entries was erased",
            f"begin at {first_kept}, the first entry that is left",
        )
        self.session, self.cursor, self.first_kept, self.parent = session, cursor, first_kept, parent


class TrimRefused(StreamError):
    """A trim was refused, because holders still need some of the entries. Nothing was trimmed.

    Holders are readers, projections, forks, consumer groups and the workers of the session's agent. Trim fewer entries,
    remove the checkpoint of a reader that no longer exists, or trim by force.

    Fields:

    - `session`: the session's id.
    - `before`: the first position that the trim would have kept.
    - `holders`: for each holder's name, the position up to which the holder needs no entries. A holder's name is
      `r:<reader>`, `p:<projection>@<version>`, `f:<session>` for a fork, `g:<group>` for a consumer group, or
      `a:<agent>` for the workers of the session's agent.
    """

    def __init__(self, session: str, before: int, holders: Mapping[str, int]) -> None:
        needed_by = ", ".join(f"{name} at {position}" for name, position in sorted(holders.items()))
        releases = "".join(f"{each.words}, " for each in releases_of(holders))
        super().__init__(
            f"entries of session {session!r} before position {before} are still needed by {needed_by}",
            f"trim less, {releases}or trim by force",
        )
        self.session, self.before, self.holders = session, before, holders


class EraseRefused(StreamError):
    """A session was not erased, because forks share its entries.

    Fields: `session`; `forks`, the ids of the forks.
    """

    def __init__(self, session: str, forks: tuple[str, ...]) -> None:
        super().__init__(
            f"session {session!r} shares its entries with the forks {', '.join(sorted(forks))}",
            "erase these first, or erase it by force",
        )
        self.session, self.forks = session, forks


class ArchiveDamaged(StreamError):
    """A segment of a session's archive is missing, or its content has changed. No entry of the segment was read.

    Fields: `session`; `segment`, the segment's name, `<first>-<last>-<sha256>`; `reason`.
    """

    def __init__(self, session: str, segment: str, reason: str) -> None:
        super().__init__(f"archive of session {session!r}, segment {segment}: {reason}", "restore it from a backup")
        self.session, self.segment, self.reason = session, segment, reason


def is_of_session(error: BaseException) -> bool:
    """Return whether an error concerns only the session of the call. A task that serves many sessions then goes on with
    the others."""
    if isinstance(error, Refused):
        return not error.is_of_server
    return isinstance(error, StreamError | MessageError) and not isinstance(error, LogEmptied)


# What releases the entries that a holder keeps from a trim, in words and as a command.


class Release(NamedTuple):
    """What releases the entries of one kind of holder."""

    words: str
    command: str
    """the same on the command line, without `lanebus`"""


_RELEASES = {
    "a": Release("archive the entries", "archive SESSION"),
    "f": Release("erase the fork", "erase FORK"),
    "g": Release("remove the group", "groups remove GROUP"),
    "p": Release("remove the stored projection", "projections remove SESSION NAME@VERSION"),
}
"""by the letter with which the holder's name begins"""


def releases_of(holders: Iterable[str]) -> list[Release]:
    """Return what releases the entries of holders, once for each kind. A reader (`r:…`) has to read on by itself.

    Args:
        holders: names of holders, as in `TrimRefused.holders`.
    """
    return [_RELEASES[kind] for kind in sorted({name.partition(":")[0] for name in holders} & _RELEASES.keys())]


# The branches `SetupError`, a setting is wrong: change it; and `Closed`, the caller has closed the bus.


class SetupError(BusError):
    """The configuration does not work. Change the setting that the text names."""


class InvalidBound(SetupError):
    """A bound is not a number, or it is too small.

    Fields: `key`, such as "bounds.publish.batch_count" or "WorkerBounds.store_every"; `value`.
    """

    def __init__(self, key: str, value: object, remedy: str) -> None:
        super().__init__(f"{key} is {repr(value)[:80]}", remedy)
        self.key, self.value = key, value


class InvalidNamespace(SetupError):
    """A namespace contains characters that key names must not have, or has the wrong length.

    Fields: `namespace`.
    """

    def __init__(self, namespace: str) -> None:
        super().__init__(
            f"namespace {namespace[:80]!r} is not allowed",
            "use 1 to 64 letters, digits and characters of _ . : -",
        )
        self.namespace = namespace


class MissingExtra(SetupError):
    """An optional package is needed and is not installed.

    Fields: `package`; `extra`, the extra of lanebus that installs it.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"the package {package!r} is not installed", f"pip install 'lanebus[{extra}]'")
        self.package, self.extra = package, extra


class MissingUpcaster(SetupError):
    """Old entries cannot be read, because the code that converts them to the next version (the upcaster) is missing.

    This is a fault of the installation.

    Fields: `version`, the version without an upcaster; `newest`, the version that this lanebus writes.
    """

    def __init__(self, version: int, newest: int) -> None:
        super().__init__(
            f"entries of version {version} cannot be read as version {newest}, because an upcaster is missing",
            "reinstall lanebus",
        )
        self.version, self.newest = version, newest


class NoMediaStore(SetupError):
    """A reference to stored media cannot be resolved, because no media store is configured.

    Fields: `key`, the address of the media.
    """

    def __init__(self, key: str) -> None:
        super().__init__(f"no MediaStore configured for {key!r}", "give the one that holds it")
        self.key = key


class NoArchive(SetupError):
    """Archiving a session, or erasing its archive, needs a bus that was opened with an archive.

    Fields: `session`.
    """

    def __init__(self, session: str) -> None:
        super().__init__(f"the bus has no archive for session {session!r}", "pass one to Bus.open(archive=…)")
        self.session = session


class NotEntered(SetupError, TypeError, AttributeError):
    """`Bus.open` was used without `async with`.

    This is also a TypeError and an AttributeError, the errors that Python raises for such a use.

    Fields: `call`, such as "Bus.open()"; `use`, how its result was used.
    """

    def __init__(self, call: str, use: str) -> None:
        super().__init__(f"`{call}` was {use}", f"write `async with {call} as …:`, inside of an async function")
        self.call, self.use = call, use


class NoEmbeddedServer(SetupError):
    """There is no embedded server for this platform, or its package is not installed. Use the URL of a server instead.

    Fields: `reason`.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"no embedded server: {reason}",
            "give a server with --url or LANEBUS_URL, such as redis://localhost:6379",
        )
        self.reason = reason


class SocketPathTooLong(SetupError):
    """The path of a unix socket has more bytes than the operating system allows.

    Fields: `path`; `limit_bytes`.
    """

    def __init__(self, path: Path, limit_bytes: int) -> None:
        size = len(str(path).encode())
        super().__init__(
            f"socket path {path} has {size} bytes, the limit is {limit_bytes}",
            "use a shorter directory: choose one with LANEBUS_DATA_DIR or data_dir",
        )
        self.path, self.limit_bytes = path, limit_bytes


class DirectoryNotCreated(SetupError):
    """A directory that a setting names is missing and cannot be created.

    If the disk is full, `Unavailable` is raised instead.

    Fields: `path`; `reason`.
    """

    def __init__(self, what: str, path: Path, reason: str, remedy: str = "choose another directory") -> None:
        super().__init__(f"{what} {path} cannot be created: {reason}", remedy)
        self.path, self.reason = path, reason


class DirectoryNotOwned(SetupError):
    """A directory belongs to another user, or other users have access to it.

    Others may neither enter the data directory nor write to a directory of media or of an archive. These hold no
    symbolic links and only regular files.

    Fields: `path`, the folder or file that is wrong; `reason`.
    """

    def __init__(self, path: Path, reason: str, *, what: str = "data directory", remedy: str = "") -> None:
        super().__init__(f"{what} {path}: {reason}", remedy)
        self.path, self.reason = path, reason


class OpenedElsewhere(SetupError):
    """A bus was used in another process or event loop than the one that opened it. Nothing was sent.

    Fields: `place`, "process" or "event loop", which differs.
    """

    def __init__(self, place: Literal["process", "event loop"]) -> None:
        super().__init__(
            f"the bus was opened in another {place}",
            "open a bus of its own in the child process, after the fork"
            if place == "process"
            else "open another bus in this event loop, or send the call to the bus's loop with"
            " `asyncio.run_coroutine_threadsafe`",
        )
        self.place = place


class ReplyTooLarge(SetupError):
    """An entry is larger than the largest reply of the server, so it cannot be read.

    Raise the server's setting `client-output-buffer-limit` for normal clients.

    Fields: `session`; `position`, the position of the entry; `size_bytes`, the size of the entry.
    """

    def __init__(self, session: str, position: int, size_bytes: int) -> None:
        super().__init__(
            (
                f"entry {position} of session {session!r} has {size_bytes} bytes, more than the server sends in one "
                "reply"
            ),
            "raise its client-output-buffer-limit for normal clients",
        )
        self.session, self.position, self.size_bytes = session, position, size_bytes


class OldNamespace(SetupError):
    """A namespace has an older schema that this version of lanebus does not read.

    Fields: `namespace`; `schema`, the schema of the namespace; `needed`, the schema that this version reads.
    """

    def __init__(self, namespace: str, schema: int, needed: int) -> None:
        super().__init__(
            f"namespace {namespace!r} has schema {schema} and this version of lanebus needs {needed}",
            (
                "export its sessions with the version that wrote it (lanebus export), then import them into a new "
                "directory or namespace"
            ),
        )
        self.namespace, self.schema, self.needed = namespace, schema, needed


class UnsafeServer(SetupError):
    """The server's settings could lose entries silently, or the server is too old.

    Fields: `setting`; `found`, the value of the setting; `wanted`, the value that the bus needs.
    """

    def __init__(self, setting: str, found: str, wanted: str) -> None:
        super().__init__(f"server has {setting} = {found}", f"the bus needs {wanted}")
        self.setting, self.found, self.wanted = setting, found, wanted


def check_bounds(bounds: "DataclassInstance", key: str = "", *, zero: Collection[str] = ()) -> None:
    """Check every field of a dataclass of bounds. Call this function in `__post_init__`.

    A field of type int must be an integer of 1 or more. A field of type float must be a finite number above 0. A field
    of another type must be a dataclass, which checks itself.

    Args:
        bounds: the bounds.
        key: name of the bounds in the error, such as "bounds.publish". "" means the name of the class.
        zero: fields that may also be 0.

    Raises:
        InvalidBound: a field has another value.
    """
    for field in fields(bounds):
        value: object = getattr(bounds, field.name)
        kind = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", "")
        number = None if isinstance(value, bool) or not isinstance(value, int | float) else value
        least = field.name in zero
        if kind == "int":
            is_valid = isinstance(number, int) and number >= (0 if least else 1)
            remedy = f"use {0 if least else 1} or more"
        elif kind == "float":
            is_valid = number is not None and isfinite(number) and (number > 0 or (least and number == 0))
            remedy = f"use a number {'of 0 or more' if least else 'above 0'}"
        else:
            is_valid, remedy = kind in {each.__name__ for each in type(value).__mro__}, f"use {kind}(…)"
        if not is_valid:
            raise InvalidBound(f"{key or type(bounds).__name__}.{field.name}", value, remedy)


class Closed(BusError):
    """The bus, or the used part of the bus, is closed.

    Fields: `what`, a name for the closed part, such as "bus".
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is closed", "open another")
        self.what = what
