"""A session's head: what is known of it without reading it, and whether it is still the log somebody saw."""

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
    """A stretch of a log that one server process wrote. A log that lost its end goes on with another one."""

    token: str
    """`<start>_<random>`; it stands in the header of each of its entries"""
    start: int
    """the position it began behind"""


def start_of(token: str) -> int:
    """Return the position that an incarnation began behind; -1 if this is no token."""
    start, is_token, _ = token.partition("_")
    return int(start) if is_token and start.isdigit() else -1


class Origin(NamedTuple):
    """Where a fork comes from."""

    session: str
    """its parent"""
    cursor: Cursor
    """of the last entry that they share; its incarnation tells whether the parent still has what was forked"""

    @property
    def position(self) -> int:
        """Of the last entry that they share; 0 if they share none."""
        return self.cursor.position


class SessionHead(NamedTuple):
    """What the log knows of a session without reading it."""

    session: str
    position: int
    """of the last entry; 0 if there is none"""
    created: float
    """seconds UTC by the server's clock; 0.0 if the session is empty"""
    updated: float
    """seconds UTC of the last append; 0.0 if the session is empty"""
    size_bytes: int
    """of all messages' JSON"""
    epoch: int
    """of the lease last taken"""
    trimmed: int
    """the highest position that was trimmed away; 0 if none was"""
    is_closed: bool
    is_erased: bool = False
    incarnations: tuple[Incarnation, ...] = ()
    """the newest ones, the last one last"""
    origin: Origin | None = None
    """None: it is no fork"""
    archived: int = 0
    """up to which position the archive has it; 0 if it has nothing"""
    trimmed_llm: int = 0
    trimmed_extension: int = 0
    """the highest position that was trimmed away from this lane alone"""
    trimmed_by: str = ""
    """which incarnation wrote the entry at `trimmed`; "" if that is not known"""
    live_id: str = ""
    """the highest id that any live delta had; "" if there was none"""

    @property
    def own_start(self) -> Cursor:
        """Of a reader that has seen what a fork shares with its parent, and none of its own entries."""
        return START if self.origin is None else self.origin.cursor

    @property
    def glance(self) -> bytes:
        """What scripts/glance.lua gives as long as nothing is appended, lost or erased."""
        state = "closed" if self.is_closed else "erased" if self.is_erased else ""
        token = self.incarnations[-1].token if self.incarnations else ""
        return f"{self.position} {token} {state}".encode()

    @property
    def first_kept(self) -> int:
        """The first position that was not trimmed away, whether it is there already or not."""
        return self.trimmed + 1

    def lacks(self, lanes: Collection[Lane], after: int) -> bool:
        """Whether something of these lanes behind a position was trimmed away."""
        if after >= self.trimmed:
            return False  # as good as always
        if len(lanes) == len(Lane):
            return True
        gone = {Lane.LLM: self.trimmed_llm, Lane.EXTENSION: self.trimmed_extension}
        return any(after < gone[lane] for lane in lanes)

    @property
    def cursor(self) -> Cursor:
        """Of a reader that has seen all there is."""
        return self.cursor_at(self.position)

    def cursor_at(self, position: int) -> Cursor:
        """Return the cursor of a reader that has seen all up to a position.

        It names no incarnation if the head does not know which one wrote that entry; such a cursor is believed.
        """
        return Cursor(position, 0, self.incarnation_of(position) or "")

    def incarnation_of(self, position: int) -> str | None:
        """Return which incarnation wrote the entry at a position: "" before the first, None if the head cannot tell."""
        if position <= 0:
            return ""
        for token, start in reversed(self.incarnations):
            if start < position:
                return token
        if self.origin is not None and position == self.origin.position:
            return self.origin.cursor.incarnation or None
        return self.trimmed_by or None if position == self.trimmed else None

    def common_position(self, cursor: Cursor) -> int | None:
        """Return up to which position this is surely the log that the cursor's reader saw.

        It is the cursor's own position, unless the log lost its end. None if the head cannot tell, as it lists the
        newest incarnations only: ask `common_position` in incarnations.py.
        """
        position = min(cursor.position, self.position)
        if not cursor.incarnation or not position:
            return position
        end = self.position
        for token, start in reversed(self.incarnations):
            if token == cursor.incarnation:
                return min(position, end)
            end = start
        if self.incarnations and end <= 0:
            return 0  # the head lists all, and not this one
        if position <= end and self.incarnation_of(position) == cursor.incarnation:
            return position
        return None


def head_command(keys: Keys, session: str) -> tuple[Argument, ...]:
    """The command that reads a session's head."""
    return ("HMGET", keys.head(session), *_HEAD)


_HEAD = (
    *("position", "created", "updated", "bytes", "epoch", "trimmed", "archived"),
    *("state", "incarnations", "parent", "fork", "trimmed_llm", "trimmed_ext", "trimmed_by", "live"),
)


def read_head(session: str, reply: Reply | Refused) -> SessionHead:
    """The head from the answer to `head_command`."""
    *numbers, state, incarnations, parent, fork, llm, extension, by, live = cast("list[bytes | None]", answered(reply))
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
    )


def read_incarnations(text: bytes | None) -> tuple[Incarnation, ...]:
    """All that a head lists, the newest last."""
    return _incarnations(text) if text else ()


@lru_cache(maxsize=1024)  # a followed session's head is read again and again
def _incarnations(text: bytes) -> tuple[Incarnation, ...]:
    return tuple(Incarnation(token, start_of(token)) for token in text.decode().split(" "))
