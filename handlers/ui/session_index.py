"""An index of all sessions of a bus, kept by the server that lists them, so that a poll costs only what changed.

The first request reads the heads of all sessions. Later ones read the change notices, and the heads and new entries of
the sessions that these name. Each request folds for a bounded time; a session that was not read yet is listed without
what only its entries tell.
"""

from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal

import anyio

from lanebus.bus.bus import Bus
from lanebus.bus.errors import (
    ArchiveDamaged,
    CursorTrimmed,
    LogRolledBack,
    Refused,
    SessionErased,
    StreamError,
    check_bounds,
    is_of_session,
)
from lanebus.bus.groups.activity import Activity
from lanebus.bus.log.batches import batched
from lanebus.bus.log.head import SessionHead
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import START
from lanebus.handlers.projections.all_sessions import names_all
from lanebus.handlers.projections.cards import CARD, CallToDecide, Card, CardState, card_start, card_state, card_waits
from lanebus.handlers.projections.projection import Projected, fold
from lanebus.handlers.projections.sessions import SESSIONS, SessionLine
from lanebus.handlers.recent import RecentSessions

__all__ = ("DEFAULT_INDEX_BOUNDS", "IndexBounds", "IndexRow", "SessionIndex")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexBounds:
    """Bounds and periods of a `SessionIndex`. Times are in seconds."""

    fold_seconds: float = 0.3
    """time after which a request reads no further session"""
    entries: int = 2_000
    """maximum number of entries of a session that are read at once"""
    at_once: int = 8
    """number of sessions that are read at the same time"""
    states: int = 2_000
    """maximum number of sessions whose states are kept, so that only their new entries are read"""
    state_bytes: int = 16 * 1_048_576
    """maximum number of bytes of these states, as JSON"""
    sweep_seconds: float = 60.0
    """pause between two reads of all heads. Only these find erased and trimmed sessions"""

    def __post_init__(self) -> None:
        check_bounds(self)


DEFAULT_INDEX_BOUNDS = IndexBounds()


@dataclass(frozen=True, slots=True)
class IndexRow:
    """A session in the index. Fields that its entries tell are None until they were read."""

    head: SessionHead
    is_read: bool = False
    """whether all entries that `head` counts were read"""
    title: str | None = None
    cost: Decimal | None = None
    """US dollars; None also if no call has a known cost"""
    turns: int | None = None
    state: CardState | None = None
    waits: tuple[CallToDecide, ...] = ()


class SessionIndex:
    """The sessions of one bus. Concurrent callers share one refresh."""

    def __init__(self, bus: Bus, bounds: IndexBounds = DEFAULT_INDEX_BOUNDS) -> None:
        """
        Args:
            bus: the bus.
            bounds: bounds and periods.
        """
        self._bus, self._bounds = bus, bounds
        self._rows: dict[str, IndexRow] = {}
        self._states = RecentSessions[Projected[Card]](bounds.states, bounds.state_bytes)
        self._shared_titles: dict[str, str | None] = {}
        self._stale: set[str] = set()
        self._activity: Activity | None = None
        self._swept_at, self._refreshed_at = 0.0, 0.0
        self._lock = anyio.Lock()

    @property
    def rows(self) -> Mapping[str, IndexRow]:
        """The sessions by id, as of the last refresh."""
        return self._rows

    def is_stale(self, session: str) -> bool:
        """Return whether a session has entries that were not read yet."""
        return session in self._stale

    def is_read(self, sessions: Container[str]) -> bool:
        """Return whether all entries of these sessions were read."""
        return not any(session in sessions for session in self._stale)

    async def refresh(self, wanted: Iterable[str] = (), *, heads_only: bool = False) -> None:
        """Read what changed: the heads of all changed sessions, and entries for at most `IndexBounds.fold_seconds`.

        Args:
            wanted: sessions whose entries are read first; then the most recently changed.
            heads_only: read no entries.

        Raises:
            Unavailable: the server cannot be reached.
        """
        asked_at, first = anyio.current_time(), tuple(wanted)
        async with self._lock:
            if self._refreshed_at < asked_at:
                started = anyio.current_time()
                await self._read_heads()
                self._refreshed_at = started
            if not heads_only:
                await self._read_entries(first)

    async def _read_heads(self) -> None:
        now, before = anyio.current_time(), self._activity
        is_due = before is None or now - self._swept_at >= self._bounds.sweep_seconds
        # The activity is read before the heads. So the next activity names the sessions that change meanwhile.
        latest = await self._bus.activity(before)
        if is_due or before is None or not names_all(before, latest):
            heads = await self._bus.sessions()
            gone = self._rows.keys() - {head.session for head in heads}
            self._swept_at = now
        else:
            heads, gone = await self._bus.log.heads(sorted(latest.sessions)), set[str]()
        for head in heads:
            self._note(head)
        for session in gone:
            self._forget(session)
        self._activity = latest

    def _note(self, head: SessionHead) -> None:
        known = self._rows.get(head.session)
        if head.is_erased:
            self._forget(head.session)
        elif known is None:
            self._rows[head.session] = IndexRow(head)
            self._stale.add(head.session)
        elif known.head != head:
            is_same = known.is_read and known.head.fingerprint == head.fingerprint
            self._rows[head.session] = replace(known, head=head, is_read=is_same)
            if not is_same:
                self._stale.add(head.session)

    def _forget(self, session: str) -> None:
        self._rows.pop(session, None)
        self._states.pop(session)
        self._shared_titles.pop(session, None)
        self._stale.discard(session)

    async def _read_entries(self, first: tuple[str, ...]) -> None:
        if not self._stale:
            return
        until = anyio.current_time() + self._bounds.fold_seconds
        wanted = [session for session in dict.fromkeys(first) if session in self._stale]
        others = sorted(self._stale - {*wanted}, key=lambda session: self._rows[session].head.updated, reverse=True)
        for some in batched([*wanted, *others], self._bounds.at_once):
            failures: list[Exception] = []

            async def read(session: str, failures: list[Exception] = failures) -> None:
                try:
                    await self._read(session)
                except Exception as error:  # noqa: BLE001  # raised after the task group, which would wrap the error
                    failures.append(error)

            async with anyio.create_task_group() as tasks:
                for session in some:
                    tasks.start_soon(read, session)
            if failures:
                raise failures[0]
            if anyio.current_time() >= until:
                return

    async def _read(self, name: str) -> None:
        """Read the next entries of a session, and change its row."""
        head, session = self._rows[name].head, self._bus.session(name, grouped=True)
        try:
            now = await self._fold(session, head)
            title = now.state.line.title or await self._shared_title(session, head)
        except SessionErased:
            self._forget(name)
            return
        except (StreamError, Refused) as error:
            if not is_of_session(error):
                raise
            self._stale.discard(name)  # damaged, or a fork of an erased parent: listed without what its entries tell
            return
        is_read = now.position >= head.position
        card, usage = now.state, now.state.line.usage
        self._rows[name] = IndexRow(
            self._rows[name].head,
            is_read,
            title,
            None if usage.cost is None else usage.cost.total,
            card.line.turns,
            card_state(head, card),
            card_waits(name, card),
        )
        if is_read:
            self._stale.discard(name)
        self._states.keep(name, now, len(CARD.dump(now.state)))

    async def _fold(self, session: Session, head: SessionHead) -> Projected[Card]:
        known = self._states.get(session.id)
        if known is not None:
            with suppress(LogRolledBack, CursorTrimmed, ArchiveDamaged):
                return await self._fold_from(session, head, known)
        return await self._fold_from(session, head, await card_start(session, head))

    async def _fold_from(self, session: Session, head: SessionHead, start: Projected[Card]) -> Projected[Card]:
        return await fold(session, CARD, start, until=min(start.position + self._bounds.entries, head.position))

    async def _shared_title(self, session: Session, head: SessionHead) -> str | None:
        """Return the title of the entries that a fork shares with its origin: its card covers only its own entries."""
        if head.origin is None:
            return None
        if session.id not in self._shared_titles:
            until, line = min(head.origin.position, self._bounds.entries), None
            with suppress(CursorTrimmed, ArchiveDamaged):
                line = await fold(session, SESSIONS, Projected(SessionLine(), START), until=until)
            self._shared_titles[session.id] = None if line is None else line.state.title
        return self._shared_titles[session.id]
