"""What readers and publishers get: envelopes with cursors, notices between envelopes, and receipts."""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple, Self, cast

from lanebus.bus.errors import (
    Conflict,
    Fenced,
    InvalidArgument,
    InvalidCursor,
    KeyReserved,
    LogRolledBack,
    MessageError,
    MessageTooLarge,
    OverLimit,
    SessionClosed,
    SessionErased,
    WrongAgent,
    require_count,
    require_text,
)
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.messages.message import Delta

CURSOR = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18})(?:\.([A-Za-z0-9_-]{1,32})(?:\.([0-9a-f]{1,8}))?)?)?")


class Cursor(NamedTuple):
    """The place of a reader in a session. The reader has seen everything up to and including this place.

    Compare cursors as numbers, never as text. The text form is a stream id, followed by the incarnation and the proof
    if they are known: `<position>-<delta>.<incarnation>.<proof>`.
    """

    position: int
    """position of the last entry that was seen; 0 is before the first entry"""
    delta: int = 0
    """number of the last live delta that was seen at this position; 0 is before the first delta"""
    incarnation: str = ""
    """token of the log's incarnation. A log that loses its end gets a new incarnation, so that a cursor of
    lost entries is detected. A cursor with "" was not read from the log. Of such a cursor, only the position is
    checked: it must not be beyond the log's end"""
    proof: str = ""
    """proof of the entry at `position`, in hexadecimal digits. It differs for every entry that was ever appended there,
    so that a log is detected that went back without a restart, such as by restored keys. "" if unknown: such a cursor
    was read by an earlier version, or after a range that was not read whole; only its incarnation is checked"""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a cursor from the text that `str()` returns, or from a plain position.

        Raises:
            InvalidCursor: the text is neither a cursor nor a position.
        """
        return cls._read("text", text)

    @classmethod
    def of(cls, given: Cursor | str, name: str = "after") -> Cursor:
        """Return the cursor that a caller passed, either as a `Cursor` or as the text that `str()` returns.

        Args:
            given: the cursor.
            name: the caller's name for the argument, for the error.

        Raises:
            InvalidCursor: the text is not a cursor.
            InvalidArgument: `given` is neither a cursor nor a text, or its position or delta is negative.
        """
        return given if type(given) is Cursor and _is_whole(given) else cls._read(name, given)

    @classmethod
    def _read(cls, name: str, given: object) -> Self:
        if type(given) is Cursor:
            position, delta, incarnation, proof = cast("tuple[object, object, object, object]", given)
            require_count(f"{name}.position", position)
            require_count(f"{name}.delta", delta)
            require_text(f"{name}.incarnation", incarnation)
            require_text(f"{name}.proof", proof)
        if isinstance(getattr(given, "cursor", None), Cursor):  # a receipt, an envelope, a notice, a head
            raise InvalidArgument(name, given, "pass its `cursor`")
        if not isinstance(given, str):
            raise InvalidArgument(name, given, "pass a Cursor, or its text such as '12-0'; START is the first")
        match = CURSOR.fullmatch(given)
        if match is None:
            raise InvalidCursor(given)
        return cls(int(match[1]), int(match[2] or 0), match[3] or "", match[4] or "")

    def __str__(self) -> str:
        if not self.incarnation:
            return self.id
        return f"{self.id}.{self.incarnation}.{self.proof}" if self.proof else f"{self.id}.{self.incarnation}"

    @property
    def id(self) -> str:
        """The place as a stream id."""
        return f"{self.position}-{self.delta}"

    def is_after(self, other: Cursor) -> bool:
        """Return whether this cursor is after `other`. Incarnations and proofs are not compared."""
        return self[:2] > other[:2]


def _is_whole(cursor: Cursor) -> bool:
    """Return whether the parts have the types and values of a cursor: a NamedTuple accepts any value."""
    position, delta, incarnation, proof = cast("tuple[object, object, object, object]", cursor)
    numbers = type(position) is int and type(delta) is int and position >= 0 and delta >= 0
    return numbers and isinstance(incarnation, str) and isinstance(proof, str)


START = Cursor(0)
"""The cursor before the first entry: reading after it returns everything."""


class DecodeFailure(NamedTuple):
    """Stands in `Envelope.message` for an entry that cannot be read or trusted, so that readers get every position."""

    error: MessageError
    raw: bytes
    """the stored body of the entry, unchanged; b"" if the entry has no body"""


class Envelope(NamedTuple):
    """A message with its session, position, time and producer.

    A live delta has the position of the session's last entry, and a `delta` of 1 or more. A snapshot
    (`Delta.is_snapshot`) has the position and `delta` at which the follower joins.
    """

    session: str
    position: int
    """position in the session. The positions of both lanes together count from 1 without gaps"""
    lane: Lane
    message: Publishable | Delta | DecodeFailure
    time: float
    """time of the append, in seconds since 1970 UTC by the server's clock"""
    producer: str
    """name of the process that appended the message"""
    delta: int = 0
    """for a live delta, its number among the deltas at this position; 0 for an entry"""
    incarnation: str = ""
    """incarnation of the log that was read, see `Cursor`"""
    is_imported: bool = False
    """whether an import brought the entry. Workers do not act on imported events, commands and tool calls. False for an
    entry that cannot be read"""
    proof: str = ""
    """proof of the entry, or for a live delta of the entry at its position, see `Cursor`"""

    @property
    def cursor(self) -> Cursor:
        """The cursor of a reader that has seen this envelope and nothing after it."""
        return Cursor(self.position, self.delta, self.incarnation, self.proof)


CLOSED, REOPENED = "session.closed", "session.reopened"
"""The kinds of the extension messages that are appended when a session is closed or reopened."""

NoticeKind = Literal["caughtUp", "fellBehind", "scanned", "closed", "reopened"]


class Notice(NamedTuple):
    """A notice to a follower. If a new follower starts after `cursor`, it repeats nothing and loses nothing.

    caughtUp     the follower has received all entries that existed when it started, or when it fell behind
    fellBehind   the follower's buffer was full; the next entries are read from the log again, so nothing is lost
    scanned      the follower's selection matches no further entry up to the cursor
    closed       the session is closed, and the follower has received all entries of the session
    reopened     the session accepts messages again
    """

    kind: NoticeKind
    cursor: Cursor


# The outcome of a publish: a receipt, or the error with which the log refused the publish.


class Receipt(NamedTuple):
    """The positions of the messages of one publish."""

    positions: tuple[int, ...]
    """one position for each message, in order"""
    is_duplicate: bool = False
    """whether nothing was appended, because an earlier publish had the same key. `positions` are then those of the
    earlier publish"""
    incarnation: str = ""
    """incarnation of the log to which the messages were appended, see `Cursor`"""
    proof: str = ""
    """proof of the last message's entry, see `Cursor`"""

    @property
    def position(self) -> int:
        """The position of the last message."""
        return self.positions[-1]

    @property
    def cursor(self) -> Cursor:
        """The cursor of a reader that has seen these messages and all earlier messages."""
        return Cursor(self.position, 0, self.incarnation, self.proof)


Expected = Cursor | Receipt | str | int
"""The end of a session that a caller saw: a cursor, its text, the receipt of the last publish, or a plain position. A
plain position names nothing across a rollback: other entries may have taken the places of those that the caller
saw."""

REFUSALS = (Conflict, Fenced, WrongAgent, SessionClosed, SessionErased, OverLimit, MessageTooLarge, LogRolledBack)

Outcome = (
    Receipt
    | Conflict
    | Fenced
    | WrongAgent
    | SessionClosed
    | SessionErased
    | OverLimit
    | MessageTooLarge
    | LogRolledBack
)
"""The result of `Session.try_publish`: a receipt, or the error with which the log refused the publish."""


def cursor_of(expected: Expected | None) -> Cursor | None:
    """Return the cursor that a caller passed as `expected`; None for None.

    Raises:
        InvalidCursor: the text is not a cursor.
        InvalidArgument: `expected` has another type, or a negative number.
    """
    match expected:
        case None | Cursor():
            return None if expected is None else Cursor.of(expected, "expected")
        case Receipt():
            return expected.cursor
        case str():
            return Cursor.of(expected, "expected")
        case int() if expected >= 0 and not isinstance(expected, bool):
            return Cursor(expected)
        case _ if isinstance(getattr(expected, "cursor", None), Cursor):  # an envelope, a notice
            raise InvalidArgument("expected", expected, "pass its `cursor`")
        case _:
            raise InvalidArgument("expected", expected, "pass a cursor, its text, a receipt, or START if it is empty")


# Publish keys of the bus's own, which no caller can use.

RESERVED: Final = "lanebus:"
"""The prefix of reserved keys. It is part of the stored format, not a setting."""


class ReservedKey(str):
    """The key of a publish by lanebus itself, such as a worker's answer: a name with the prefix `lanebus:`.

    Such keys can be predicted, and the first publish under a key wins. So the keys of callers must not meet them.
    """

    __slots__ = ()

    def __new__(cls, name: str) -> Self:
        """Return the key `lanebus:<name>`."""
        return super().__new__(cls, RESERVED + name)


def check_key(key: str | None) -> None:
    """Raise KeyReserved if a caller's key has the prefix of reserved keys.

    Args:
        key: the key; None and a `ReservedKey` are accepted.
    """
    if key is not None and key.startswith(RESERVED) and not isinstance(key, ReservedKey):
        raise KeyReserved(key, RESERVED)
