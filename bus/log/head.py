"""Read a session's head, the facts that are known without reading entries, and check cursors against a head."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, cast

from lanebus.bus.errors import InvalidCursor, Refused, SessionDamaged
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.servers.calls import answered
from lanebus.bus.wire.envelope import START, Cursor

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lanebus.bus.servers.calls import Argument, Reply
    from lanebus.bus.wire.keys import Keys


class Incarnation(NamedTuple):
    """The part of a log that one server process wrote. After a restart or failover, a new incarnation begins.

    A cursor holds the token of its incarnation. The token shows whether the log has lost the cursor's entry.
    """

    token: str
    """`<start>_<random>`; it is in the header of each entry of this incarnation"""
    start: int
    """the position before the incarnation's first entry"""


def start_of(token: str) -> int:
    """Return the position before the first entry of the incarnation `token`; -1 if `token` is not a valid token."""
    start, is_token, _ = token.partition("_")
    return int(start) if is_token and _START.fullmatch(start) else -1


class Origin(NamedTuple):
    """The origin of a fork: its parent session, and the last entry that it shares with the parent."""

    session: str
    """id of the parent"""
    cursor: Cursor
    """cursor of the last shared entry. Its incarnation shows whether the parent still has the shared entries"""

    @property
    def position(self) -> int:
        """The position of the last shared entry; 0 if no entry is shared."""
        return self.cursor.position


class SessionHead(NamedTuple):
    """The state of a session, without its entries."""

    session: str
    position: int
    """position of the last entry; 0 if the session has no entries"""
    created: float
    """time of the first append, in seconds since 1970 UTC by the server's clock; 0.0 if the session is empty"""
    updated: float
    """time of the last append, in seconds since 1970 UTC by the server's clock; 0.0 if the session is empty"""
    size_bytes: int
    """size of all messages, as JSON"""
    epoch: int
    """epoch of the latest lease; 0 if no lease was ever acquired"""
    trimmed: int
    """the highest trimmed position; 0 if no entry was trimmed"""
    is_closed: bool
    is_erased: bool = False
    incarnations: tuple[Incarnation, ...] = ()
    """the newest incarnations, in the order in which they began"""
    origin: Origin | None = None
    """the origin of a fork; None if the session is not a fork"""
    archived: int = 0
    """the last archived position; 0 if no entry is archived"""
    trimmed_llm: int = 0
    """the highest position that was trimmed from the LLM lane"""
    trimmed_extension: int = 0
    """the highest position that was trimmed from the extension lane"""
    trimmed_by: str = ""
    """token of the incarnation that wrote the entry at `trimmed`; "" if it is unknown"""
    live_id: str = ""
    """the highest id of any live delta so far; "" if the session never had a live delta"""
    agent: str = ""
    """the agent that the session belongs to; "" before its first message"""
    last_llm: int = 0
    """position of the last entry that was appended to the LLM lane; 0 if there is none, or if it is unknown because an
    older version appended it"""
    last_extension: int = 0
    """the same of the extension lane"""
    lost_llm: int = 0
    """all entries of the LLM lane up to this position are missing, as another client deleted the lane's stream; 0 if it
    was never deleted"""
    lost_extension: int = 0
    """the same of the extension lane"""
    ends: str = ""
    """`<position>.<proof>` of the last entries of the last three appends, the newest last; "" if unknown"""
    trimmed_proof: str = ""
    """proof of the entry at `trimmed`; "" if it is unknown"""

    @property
    def is_there(self) -> bool:
        """Whether the server has the head of a session that was ever published to. A lease alone is no such head."""
        return bool(self.created or self.position or self.is_erased)

    @property
    def own_start(self) -> Cursor:
        """The cursor before the session's own entries. For a fork, it is after the entries shared with the parent."""
        return START if self.origin is None else self.origin.cursor

    @property
    def fingerprint(self) -> bytes:
        """A text that changes with an append, a new incarnation, a close and an erasure, and if another log takes the
        session's place, but not with a trim."""
        state = "closed" if self.is_closed else "erased" if self.is_erased else ""
        token = self.incarnations[-1].token if self.incarnations else ""
        return f"{self.position} {token} {state} {self.ends}".encode()

    @property
    def first_kept(self) -> int:
        """The first position that was not trimmed. It may not exist yet."""
        return self.trimmed + 1

    def lacks(self, lanes: Collection[Lane], after: int) -> bool:
        """Return whether any entry of `lanes` after position `after` was trimmed."""
        if after >= self.trimmed:
            return False  # the most frequent case
        if len(lanes) == len(Lane):
            return True
        gone = {Lane.LLM: self.trimmed_llm, Lane.EXTENSION: self.trimmed_extension}
        return any(after < gone[lane] for lane in lanes)

    def last_in(self, lanes: Collection[Lane]) -> int:
        """Return the position of the last entry of `lanes`, as far as the head knows. It may have been trimmed."""
        if len(lanes) == len(Lane):
            return self.position
        last = {Lane.LLM: self.last_llm, Lane.EXTENSION: self.last_extension}
        return max(last[lane] for lane in lanes)

    def lost_in(self, lane: Lane) -> int:
        """Return the position up to which all entries of a lane are missing, although they were not trimmed; 0 if no
        entry is."""
        lost, trimmed = (
            (self.lost_llm, self.trimmed_llm) if lane is Lane.LLM else (self.lost_extension, self.trimmed_extension)
        )
        return lost if lost > trimmed else 0

    @property
    def cursor(self) -> Cursor:
        """The cursor of a reader that has seen all entries."""
        return self.cursor_at(self.position)

    def cursor_at(self, position: int) -> Cursor:
        """Return the cursor of a reader that has seen all entries up to a position.

        If the head does not know the incarnation or the proof at this position, the cursor has "" for it. Of a cursor
        without incarnation, only the position is checked against the log.
        """
        return Cursor(position, 0, self.incarnation_of(position) or "", self.proof_of(position))

    def incarnation_of(self, position: int) -> str | None:
        """Return the incarnation that wrote the entry at a position: "" for position 0, None if the head does not list
        the incarnation."""
        if position <= 0:
            return ""
        for token, start in reversed(self.incarnations):
            if start < position:
                return token
        if self.origin is not None and position == self.origin.position:
            return self.origin.cursor.incarnation or None
        return self.trimmed_by or None if position == self.trimmed else None

    def proof_of(self, position: int) -> str:
        """Return the proof of the entry at a position; "" if the head does not list it."""
        if self.ends and position > 0:
            _, is_listed, rest = f" {self.ends} ".partition(f" {position}.")
            if is_listed:
                return rest.partition(" ")[0]
        if self.origin is not None and position == self.origin.position:
            return self.origin.cursor.proof
        return self.trimmed_proof if position == self.trimmed else ""

    def common_position(self, cursor: Cursor) -> int | None:
        """Return the last position up to which the log still holds the entries that a reader saw.

        This is the cursor's position, unless the log was rolled back. Return None if the incarnations and proofs that
        the head lists are not enough to find the position. In that case, entries have to be read.

        Args:
            cursor: the reader's cursor.
        """
        position = min(cursor.position, self.position)
        if not cursor.incarnation or not position:
            return position
        end = self.position
        for token, start in reversed(self.incarnations):
            if token == cursor.incarnation:
                return self._unchanged(cursor, end)
            end = start
        if self.incarnations and end <= 0:
            return 0  # the head lists all incarnations, and none of them is the cursor's
        if position <= end and self.incarnation_of(position) == cursor.incarnation:
            return self._unchanged(cursor, position)
        return None

    def _unchanged(self, cursor: Cursor, end: int) -> int | None:
        """Do the work of `common_position`, for an incarnation whose last position is `end`."""
        if cursor.position > end:
            # The newest incarnation may have gone back and then grown again, without a restart.
            return None if cursor.proof and end == self.position else end
        if not cursor.proof:
            return cursor.position
        if not (proof := self.proof_of(cursor.position)):
            return None
        return cursor.position if proof == cursor.proof else max(start_of(cursor.incarnation), 0)


def head_command(keys: Keys, session: str) -> tuple[Argument, ...]:
    """Return the command that reads a session's head."""
    return ("HMGET", keys.head(session), *_HEAD)


_HEAD = (
    *("position", "created", "updated", "bytes", "epoch", "trimmed", "archived"),
    *("state", "incarnations", "parent", "fork", "trimmed_llm", "trimmed_ext", "trimmed_by", "live", "agent"),
    *("last_llm", "last_ext", "lost", "ends", "trimmed_proof"),
)


def read_head(session: str, reply: Reply | Refused) -> SessionHead:
    """Return the head that the reply to `head_command` describes.

    Raises:
        SessionDamaged: the key is not a hash, or one of its fields is not as the bus writes it.
        Refused: the server refused the command.
    """
    if isinstance(reply, Refused) and reply.code == "WRONGTYPE":
        raise SessionDamaged(session, "head")
    found = cast("list[bytes | None]", answered(reply))
    *numbers, state, incarnations, parent, fork, llm, extension, by, live, agent = found[:16]
    last_llm, last_extension, lost, ends, trimmed_proof = found[16:]
    try:
        position, created, updated, size_bytes, epoch, trimmed, archived = (
            0 if number is None else _number(number) for number in numbers
        )
        head = SessionHead(
            session,
            position,
            created / 1000,
            updated / 1000,
            size_bytes,
            epoch,
            trimmed,
            state == b"closed",
            state == b"erased",
            read_incarnations(incarnations),
            None if parent is None or fork is None else _origin(parent, fork),
            archived,
            trimmed if llm is None else _number(llm),
            trimmed if extension is None else _number(extension),
            _matched(_TOKEN, by),
            _matched(_LIVE, live).partition(" ")[0],
            (agent or b"").decode(errors="replace"),
            0 if last_llm is None else _number(last_llm),
            0 if last_extension is None else _number(last_extension),
            *_pair(lost),
            _matched(_ENDS, ends),
            _matched(_PROOF, trimmed_proof),
        )
    except ValueError:
        raise SessionDamaged(session, f"head, {_damaged_field(found)}") from None
    # An append first begins an incarnation, then sets position and time. A torn file may have the incarnation alone.
    if not position and head.incarnations and updated:
        raise SessionDamaged(session, "head, position")
    return head


def read_incarnations(text: bytes | None) -> tuple[Incarnation, ...]:
    """Return the incarnations that a head lists, the newest last. Raises ValueError if the text is no such list."""
    return _incarnations(text) if text else ()


@lru_cache(maxsize=1024)  # the head of a followed session is read repeatedly
def _incarnations(text: bytes) -> tuple[Incarnation, ...]:
    tokens = text.decode("ascii").split(" ")
    if not all(map(_TOKEN.fullmatch, map(str.encode, tokens))):
        raise ValueError
    return tuple(Incarnation(token, start_of(token)) for token in tokens)


_START = re.compile("[0-9]{1,18}")
_TOKEN = re.compile(rb"[A-Za-z0-9_-]{0,32}")
_PARENT = re.compile(rb"[A-Za-z0-9_-]{1,64}")
_PROOF = re.compile(rb"[0-9a-f]{0,8}")
_ENDS = re.compile(rb"(?:[0-9]{1,18}\.[0-9a-f]{1,8}(?: |$)){0,3}")
_LIVE = re.compile(rb"(?:[0-9]{1,18}-[0-9]{1,18} [0-9]{1,18}(?: [0-9a-f]*)?)?")


def _number(text: bytes) -> int:
    """Return a stored number. Raises ValueError if the text is not digits alone."""
    if text.isdigit() and len(text) < 19:  # as many digits as `_START` allows; a pattern would take twice as long
        return int(text)
    raise ValueError


def _pair(text: bytes | None) -> tuple[int, int]:
    """Return two stored numbers; zeros if they are missing. Raises ValueError if the text has another form."""
    llm, extension = (b"0", b"0") if text is None else text.split(b" ")
    return _number(llm), _number(extension)


def _matched(form: re.Pattern[bytes], text: bytes | None) -> str:
    """Return a stored text of a form; "" if it is missing. Raises ValueError if it has another form."""
    if text and form.fullmatch(text) is None:
        raise ValueError
    return (text or b"").decode()


def _origin(parent: bytes, fork: bytes) -> Origin:
    try:
        return Origin(_matched(_PARENT, parent), Cursor.parse(fork.decode()))
    except InvalidCursor:
        raise ValueError from None


def _damaged_field(values: Sequence[bytes | None]) -> str:
    """Return the name of the first damaged field of a head. The values are those of `head_command`."""
    forms: dict[str, re.Pattern[bytes]] = {
        "incarnations": re.compile(rb"|[A-Za-z0-9_-]{1,32}(?: [A-Za-z0-9_-]{1,32})*"),
        "parent": _PARENT,
        "trimmed_by": _TOKEN,
        "live": _LIVE,
        "lost": re.compile(rb"[0-9]{1,18} [0-9]{1,18}"),
        "ends": _ENDS,
        "trimmed_proof": _PROOF,
    }
    number = re.compile(_START.pattern.encode())
    for name, value in zip(_HEAD, values, strict=False):
        form = forms.get(name, number)
        if name not in {"state", "fork", "agent"} and value is not None and form.fullmatch(value) is None:
            return name
    return "fork"
