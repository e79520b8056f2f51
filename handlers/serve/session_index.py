"""An index of all sessions of a bus, kept by the server that lists them, so that a poll costs only what changed.

The first request reads the heads of all sessions. Later ones read the change notices, the failed work, and the heads
and new entries of the sessions that changed. Each request folds for a bounded time; a session that was not read yet is
listed without what only its entries tell. The states of sessions with many entries are stored, so that a later server
reads only the entries after them.
"""

from collections.abc import Container, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from decimal import Decimal

import anyio

from lanebus.bus import Activity, Bus, FailedWork, Session, SessionHead, batched
from lanebus.bus.errors import (
    ArchiveDamaged,
    BusError,
    CursorTrimmed,
    LogRolledBack,
    Refused,
    SessionErased,
    StreamError,
    check_bounds,
    is_of_session,
)
from lanebus.bus.messages import Lane
from lanebus.bus.wire import Cursor
from lanebus.handlers.context import RecentSessions
from lanebus.handlers.projections import (
    CARD,
    SESSIONS,
    CallToDecide,
    Card,
    CardState,
    Logged,
    Projected,
    SessionLine,
    card_start,
    card_waits,
    fold,
    load_stored,
    logged,
    names_all,
    session_state,
    store_newer,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexBounds:
    """Bounds and periods of a `SessionIndex`. Times are in seconds."""

    fold_seconds: float = 0.3
    """time after which a request reads no further session"""
    entries: int = 2_000
    """maximum number of entries of a session that are read at once, and that are searched for a fork's title"""
    at_once: int = 8
    """number of sessions that are read at the same time"""
    read_bytes: int = 1_048_576
    """Bytes of entries that are read at once of a session. Of the sessions that are larger, one is read at a time."""
    read_entries: int = 12
    """Maximum number of entries of a larger session that are read at once: entries after small ones may be large. Fewer
    than the first page of a read may have, so that one page has them."""
    store_entries: int = 500
    """number of entries of a session after its stored state from which on a newer state is stored"""
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
    log: Logged | None = None
    waits: tuple[CallToDecide, ...] = ()
    work: FailedWork | None = None
    """its failed work; None if it has none"""
    is_left: bool = False
    """whether its last lease is over; read only of a session with an open loop"""

    @property
    def state(self) -> CardState | None:
        """What the session does."""
        return None if self.log is None else session_state(self.head, self.log, self.work, is_left=self.is_left)


@dataclass(frozen=True, slots=True)
class _Search:
    """How far the entries that a session holds itself were searched for a title."""

    cursor: Cursor
    """cursor of the message with the title, or of the last searched entry"""
    title: str | None = None


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
        self._stored: dict[str, int] = {}
        """position of the stored state of a session, if one was loaded or stored"""
        self._searches: dict[str, _Search] = {}
        self._large = anyio.Lock()
        self._stale: set[str] = set()
        self._activity: Activity | None = None
        self._failed_works = bus.failed_work()
        self._swept_at, self._refreshed_at = 0.0, 0.0
        self._lock = anyio.Lock()

    @property
    def rows(self) -> Mapping[str, IndexRow]:
        """The sessions by id, as of the last refresh."""
        return self._rows

    def is_stale(self, session: str) -> bool:
        """Return whether a session has entries that were not read yet."""
        return session in self._stale

    def unread(self, sessions: Container[str]) -> int:
        """Return how many of these sessions have entries that were not read yet."""
        return sum(session in sessions for session in self._stale)

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
                await self._read_leases()

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
        failed = await self._failed_works.read()
        for head in heads:
            self._note(head)
        for session in gone:
            self._forget(session)
        for session, row in self._rows.items():
            if row.work != (work := failed.get(session)):
                self._rows[session] = replace(row, work=work)
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
        self._stored.pop(session, None)
        self._searches.pop(session, None)
        self._stale.discard(session)

    async def _read_entries(self, first: tuple[str, ...]) -> None:
        if not self._stale:
            return
        until = anyio.current_time() + self._bounds.fold_seconds
        # Small sessions first, then the larger ones by size: a huge one delays only those that are larger.
        ordered = sorted(self._stale, key=lambda session: self._rows[session].head.updated, reverse=True)
        wanted = frozenset(first)
        ordered.sort(key=lambda session: (session not in wanted, self._weight(self._rows[session].head)))
        for some in batched(ordered, self._bounds.at_once):
            failures: list[Exception] = []

            async def read(session: str, failures: list[Exception] = failures) -> None:
                try:
                    await self._read(session, until)
                except Exception as error:  # noqa: BLE001  # raised after the task group, which would wrap the error
                    failures.append(error)

            async with anyio.create_task_group() as tasks:
                for session in some:
                    tasks.start_soon(read, session)
            if failures:
                raise failures[0]
            if anyio.current_time() >= until:
                return

    async def _read_leases(self) -> None:
        """Read the leases of the sessions with an open loop. A lease that expires appends nothing."""
        working = [name for name, row in self._rows.items() if row.log is not None and row.log.state == "working"]
        for lease in await self._bus.lease_status(working):
            row = self._rows[lease.session]
            if row.is_left != lease.is_over:
                self._rows[lease.session] = replace(row, is_left=lease.is_over)

    def _weight(self, head: SessionHead) -> int:
        """Return the bytes of a session that is too large to be read at once; 0 for another."""
        return head.size_bytes if head.size_bytes > self._bounds.read_bytes else 0

    async def _read(self, name: str, until: float) -> None:
        """Read the next entries of a session until the time `until`, and change its row."""
        head, session = self._rows[name].head, self._bus.session(name, grouped=True)
        try:
            if self._weight(head):
                async with self._large:
                    now = await self._fold(session, head, until)
            else:
                now = await self._fold(session, head, until)
            title, is_searched = now.state.line.title, True
            if title is None:
                title, is_searched = await self._shared_title(head, until)
        except SessionErased:
            self._forget(name)
            return
        except (StreamError, Refused) as error:
            if not is_of_session(error):
                raise
            self._stale.discard(name)  # damaged: listed without what its entries tell
            return
        is_read = is_searched and now.position >= head.position
        card, usage = now.state, now.state.line.usage
        self._rows[name] = replace(
            self._rows[name],
            is_read=is_read,
            title=title,
            cost=None if usage.cost is None else usage.cost.total,
            turns=card.line.turns,
            log=logged(name, card.status, card.signs),
            waits=card_waits(name, card),
        )
        if is_read:
            self._stale.discard(name)
        self._states.keep(name, now, len(CARD.dump(now.state)))
        await self._store(session, head, now)

    async def _store(self, session: Session, head: SessionHead, now: Projected[Card]) -> None:
        """Store the state if it has many entries that the stored one lacks. One that lacks trimmed entries is not."""
        stored = self._stored.get(session.id, head.own_start.position)
        if now.counted_from is not None or now.position - stored < self._bounds.store_entries:
            return
        self._stored[session.id] = now.position
        with suppress(BusError):  # such as a user of the server that may only read: the next start reads these again
            await store_newer(session, CARD, now)

    async def _fold(self, session: Session, head: SessionHead, until: float) -> Projected[Card]:
        known = self._states.get(session.id)
        if known is None and head.position - head.own_start.position >= self._bounds.store_entries:
            known = await load_stored(session, CARD)
            if known is not None:
                self._stored[session.id] = known.position
        if known is not None:
            try:
                if known.position >= head.position:  # only a read checks whether the log holds the state's cursor
                    return await fold(session, CARD, known, until=known.position + 1)
                return await self._fold_from(session, head, known, until)
            except (LogRolledBack, CursorTrimmed, ArchiveDamaged):
                self._stored.pop(session.id, None)
                with suppress(BusError):
                    await session.drop_projection(CARD.name, CARD.version)
        return await self._fold_from(session, head, await card_start(session, head), until)

    async def _fold_from(
        self, session: Session, head: SessionHead, start: Projected[Card], until: float
    ) -> Projected[Card]:
        """Fold a bounded number of bytes at a time, once or until the time `until`."""
        while True:
            now = await fold(session, CARD, start, until=min(start.position + self._count(head), head.position))
            if not start.position < now.position < head.position or anyio.current_time() >= until:
                return now
            start = now

    def _count(self, head: SessionHead) -> int:
        """Return how many positions of a session to read at once."""
        if not (size := self._weight(head)):
            return self._bounds.entries
        entries = head.position - max(head.trimmed, head.own_start.position)
        return min(max(self._bounds.read_bytes * entries // size, 1), self._bounds.read_entries, self._bounds.entries)

    async def _shared_title(self, head: SessionHead, until: float) -> tuple[str | None, bool]:
        """Return the title of the entries that a fork shares with its origin, and whether it is known: the fork's card
        covers only its own entries.

        Each ancestor is searched once for all its forks, from the entries that it holds itself.
        """
        holders, child, end = dict[str, tuple[SessionHead, int]](), head, self._bounds.entries
        while child.origin is not None and child.origin.session not in holders:
            row = self._rows.get(child.origin.session)
            if row is None:
                break  # erased or damaged
            common = row.head.common_position(child.origin.cursor)
            end = min(end, child.origin.position if common is None else common)
            child = row.head
            holders[child.session] = child, end
        for holder, last in reversed(holders.values()):
            found = await self._search(holder, last, until)
            if found.cursor.position <= last and found.title is not None:
                return found.title, True
            if found.cursor.position < last and found.title is None:
                return None, False
        return None, True

    async def _search(self, head: SessionHead, end: int, until: float) -> _Search:
        """Search the entries that a session holds for a title, up to the position `end` or until the time `until`."""
        found = self._searched(head)
        if found.title is not None or found.cursor.position >= end:
            return found
        session = self._bus.session(head.session, grouped=True)
        async with self._large:
            found = self._searched(head)  # another fork's request may have searched meanwhile
            while found.title is None and (position := found.cursor.position) < end:
                is_archived = position < head.trimmed  # a segment is read as a whole
                count = self._bounds.entries if is_archived else min(self._count(head), self._bounds.read_entries)
                try:
                    found = await _next_title(session, found.cursor, min(position + count, end))
                except (StreamError, Refused) as error:
                    if not is_of_session(error):
                        raise
                if found.cursor.position <= position:
                    found = _Search(head.cursor_at(end))  # these entries cannot be read
                self._searches[head.session] = found
                if anyio.current_time() >= until:
                    break
        return found

    def _searched(self, head: SessionHead) -> _Search:
        found = self._searches.get(head.session)
        if found is None or head.common_position(found.cursor) not in {None, found.cursor.position}:
            return _Search(head.own_start)  # also after the log went back
        return found


async def _next_title(session: Session, after: Cursor, until: int) -> _Search:
    """Search some entries of a session for a title."""
    reading = session.pages(lanes={Lane.LLM}, kinds={"user"}, after=after, until=until)
    async with aclosing(reading) as pages:
        async for page in pages:
            for envelope in page.envelopes:
                if title := SESSIONS.evolve(SessionLine(), envelope).title:
                    return _Search(envelope.cursor, title)
            after = page.cursor
    return _Search(after)
