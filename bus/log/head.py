"""Read a session's head, the facts that are known without reading entries, and check cursors against a head."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, cast

from lanebus.bus.messages.lanes import Lane
from lanebus.bus.servers.replies import answered
from lanebus.bus.wire.envelope import START, Cursor

if TYPE_CHECKING:
    from collections.abc import Collection

    from lanebus.bus.errors import Refused
    from lanebus.bus.servers.topology import Argument, Reply
    from lanebus.bus.wire.keys import Keys

__all__ = (
    "Incarnation",
    "Origin",
    "SessionHead",
    "head_command",
    "read_head",
    "read_incarnations",
    "start_of",
)


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
    return int(start) if is_token and start.isdigit() else -1


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
    ends: str = ""
    """`<position>.<proof>` of the last entries of the last three appends, the newest last; "" if unknown"""
    trimmed_proof: str = ""
    """proof of the entry at `trimmed`; "" if it is unknown"""

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
    *("ends", "trimmed_proof"),
)


def read_head(session: str, reply: Reply | Refused) -> SessionHead:
    """Return the head that the reply to `head_command` describes. If the command was refused, raise the error."""
    *numbers, state, incarnations, parent, fork, llm, extension, by, live, agent, ends, proof = cast(
        "list[bytes | None]", answered(reply)
    )
    position, created, updated, size_bytes, epoch, trimmed, archived = (int(number or 0) for number in numbers)
    return SessionHead(
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
        Origin(parent.decode(), Cursor.parse(fork.decode())) if parent and fork else None,
        archived,
        trimmed if llm is None else int(llm),
        trimmed if extension is None else int(extension),
        (by or b"").decode(),
        (live or b"").partition(b" ")[0].decode(),
        (agent or b"").decode(errors="replace"),
        (ends or b"").decode(errors="replace"),
        (proof or b"").decode(errors="replace"),
    )


def read_incarnations(text: bytes | None) -> tuple[Incarnation, ...]:
    """Return the incarnations that a head lists, the newest last."""
    return _incarnations(text) if text else ()


@lru_cache(maxsize=1024)  # the head of a followed session is read repeatedly
def _incarnations(text: bytes) -> tuple[Incarnation, ...]:
    return tuple(Incarnation(token, start_of(token)) for token in text.decode().split(" "))
