"""Errors of a stream: the log refused, with a reason, and wrote nothing."""

from collections.abc import Mapping

from lanebus.bus.errors.base import BusError

__all__ = (
    "ArchiveDamaged",
    "Conflict",
    "CursorTrimmed",
    "EraseRefused",
    "Fenced",
    "GroupInUse",
    "LogRolledBack",
    "NoSuchPosition",
    "OverLimit",
    "ParentErased",
    "PreviewFull",
    "SessionClosed",
    "SessionErased",
    "SessionExists",
    "StreamError",
    "TrimRefused",
)


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
            f"session {session!r}: live deltas take {used_bytes} bytes, the limit is {limit_bytes} bytes "
            "(`LogBounds.live_bytes`): publish the whole messages, which ends them"
        )
        self.session, self.used_bytes, self.limit_bytes = session, used_bytes, limit_bytes


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
