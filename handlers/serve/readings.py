"""Read the state of a bus's server for one scrape: groups, memory, settings, and the oldest open work."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import anyio

from lanebus.bus import Activity, AgentWork, Bus, GroupStatus, PrimaryStatus, Session, SessionHead, batched
from lanebus.bus.errors import (
    ArchiveDamaged,
    BusError,
    CursorTrimmed,
    LogRolledBack,
    Refused,
    StreamError,
    check_bounds,
    is_of_session,
)
from lanebus.bus.messages import ExtensionMessage, Frozen, Lane, ToolWaiting, parse_event
from lanebus.bus.wire import Cursor, Envelope
from lanebus.handlers.context import RecentSessions
from lanebus.handlers.projections import (
    STATUS,
    STATUS_KINDS,
    Asked,
    Card,
    Projected,
    card_waits,
    doing,
    fold,
    load_stored,
    names_all,
    own_loop,
    projection,
    start_of,
    with_status,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorBounds:
    """Bounds of one monitor."""

    ping_pause_seconds: float = 1.0
    """pause between two checks of whether the bus's server answers, for `/readyz` of `lanebus serve`"""
    ping_seconds: float = 3.0
    """how long one check for `/readyz` of `lanebus serve` waits for the bus's server"""
    look_seconds: float = 5.0
    """pause between two looks of `lanebus serve` at whether the log was emptied or went back"""
    read_seconds: float = 3.0
    """longest time to read the server's state for one scrape; after that, the scrape has only this process's metrics"""
    cached_seconds: float = 1.0
    """scrapes within this time share one reading of the server, so that frequent scrapes do not load the server"""
    groups: int = 20
    """maximum number of consumer groups in one scrape, in the order of their names"""
    agents: int = 100
    """maximum number of agents in one scrape. Agents with the most sessions come first"""
    open_seconds: float = 0.3
    """time after which one scrape reads no further session to find runs and questions to people"""
    open_entries: int = 2_000
    """maximum number of entries of a session that are read at once for that"""
    open_heads: int = 64
    """maximum number of sessions whose heads are read at once for that"""
    open_sessions: int = 5_000
    """maximum number of sessions whose states are kept for that, so that only their new entries are read"""
    open_bytes: int = 8 * 1_048_576
    """maximum number of bytes of these states, as JSON"""
    connections: int = 64
    """maximum number of open connections; a further one gets 503. Probes and scrapes need few, and no token"""
    grace_seconds: int = 1
    """longest wait for running requests when the monitor ends"""

    def __post_init__(self) -> None:
        check_bounds(self, zero=("cached_seconds", "groups", "agents", "grace_seconds"))


DEFAULT_MONITOR_BOUNDS = MonitorBounds()


# Find the oldest run and the oldest question to a person, over all sessions of a bus, for metrics.
#
# The log tells both, so a run counts whether a worker, a framework or a program of the user records it, and a question
# counts although no process works on its session. The first readings go through all sessions; later ones read what
# changed.


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWork:
    """Work that is not finished, by agent."""

    runs: Mapping[str, float] = field(default_factory=dict[str, float])
    """seconds since the oldest run began, or went on after a person's answer. A run is an open loop of a session whose
    lease is held"""
    approvals: Mapping[str, int] = field(default_factory=dict[str, int])
    """number of tool calls that a person has yet to approve or deny"""
    approval_ages: Mapping[str, float] = field(default_factory=dict[str, float])
    """seconds since the oldest of these calls began to wait"""


class _OpenState(Frozen):
    """What a session's events tell. Only `status` and `asked` of the card are used."""

    card: Card = Card()
    resumed: float = 0.0
    """when the newest approval or denial was applied, in seconds UTC; 0 if none was"""


def _evolve_open(state: _OpenState, envelope: Envelope) -> _OpenState:
    card = with_status(state.card, envelope)
    before, now = state.card.status.loop, card.status.loop
    is_answered = before is not None and now is not None and before.calls_answered != now.calls_answered
    return _OpenState(card=card, resumed=envelope.time if is_answered else state.resumed)


_OPEN_STATE = projection(
    "lanebus.open_work", version=2, forked=_OpenState(), lanes={Lane.EXTENSION}, kinds=STATUS_KINDS
)(_evolve_open)


class _OpenRow(NamedTuple):
    """A session with open work."""

    agent: str
    cursor: Cursor
    """where it was read to"""
    asked: tuple[float, ...]
    """when each of its questions was asked, in seconds UTC"""
    began: float | None
    """when its run began, if its loop is open and waits for no person"""


class OpenWorkReader:
    """Reads the open work of a bus. Writes nothing. One caller at a time."""

    def __init__(self, bus: Bus, bounds: MonitorBounds) -> None:
        """
        Args:
            bus: the bus.
            bounds: how long one reading may take, and how much is kept in memory.
        """
        self._bus, self._bounds = bus, bounds
        self._activity: Activity | None = None
        self._unlisted: list[int] = []
        """buckets whose sessions are still to be listed"""
        self._due: dict[str, None] = {}
        """sessions that are still to be read"""
        self._rows: dict[str, _OpenRow] = {}
        self._states = RecentSessions[Projected[_OpenState]](bounds.open_sessions, bounds.open_bytes)

    @property
    def is_complete(self) -> bool:
        """Whether all sessions were read that the last call of `read` knew of."""
        return not (self._due or self._unlisted)

    async def read(self) -> OpenWork:
        """Return the open work, as far as it is known after `MonitorBounds.open_seconds` of reading.

        Raises:
            Unavailable: the server cannot be reached. The next call continues.
        """
        until = anyio.current_time() + self._bounds.open_seconds
        before = self._activity
        latest = await self._bus.activity(before)
        if before is None or not names_all(before, latest):
            self._unlisted = list(range(self._bus.buckets))
        self._activity = latest
        self._due |= dict.fromkeys(latest.sessions)
        await self._check_rows()
        await self._states.sweep(self._bus.log)
        while not self.is_complete:
            if not self._due:
                heads = await self._bus.sessions(bucket=self._unlisted[-1])
                self._due = dict.fromkeys(head.session for head in heads if head.position)
                self._unlisted.pop()
            for some in batched([*self._due], self._bounds.open_heads):
                if not await self._read_some(some, until):
                    return await self._found(latest.time)
            if anyio.current_time() >= until:
                break
        return await self._found(latest.time)

    async def _check_rows(self) -> None:
        """Find the sessions with open work that have changed. Only their heads tell of an erasure or a rollback."""
        heads = {head.session: head for head in await self._bus.log.heads([*self._rows])}
        for session, row in tuple(self._rows.items()):
            if (head := heads.get(session)) is None:
                self._forget(session)  # damaged, or missing
            elif head.cursor != row.cursor or head.is_erased or head.is_closed:
                self._due[session] = None

    async def _read_some(self, sessions: Sequence[str], until: float) -> bool:
        """Read sessions, and return whether there is time for more. At least one is read."""
        heads = {head.session: head for head in await self._bus.log.heads(sessions)}
        for session in sessions:
            head = heads.get(session)
            if head is None or head.is_erased or head.is_closed or not head.is_there:
                self._forget(session)
            elif not await self._read(head, until):
                return False
            del self._due[session]
            if anyio.current_time() >= until:
                return False
        return True

    def _forget(self, session: str) -> None:
        self._rows.pop(session, None)
        self._states.pop(session)

    async def _read(self, head: SessionHead, until: float) -> bool:
        """Read the new events of a session, and return whether they were read to the end."""
        session = self._bus.session(head.session, grouped=True)
        try:
            now = await self._fold(session, head, until)
            now = await self._with_times(session, now)
        except (StreamError, Refused) as error:
            if not is_of_session(error):
                raise
            self._forget(head.session)  # erased meanwhile, or damaged
            return True
        self._states.keep(head.session, now, len(_OPEN_STATE.dump(now.state)))
        status = now.state.card.status
        calls = card_waits(head.session, now.state.card)
        asked = tuple(call.since or head.updated for call in calls if call.decision is None)
        loop, is_run = own_loop(head.session, status), doing(head.session, status) in {"model", "tools"}
        began = max(loop.started, now.state.resumed) if loop is not None and is_run else None
        self._rows.pop(head.session, None)
        if asked or began is not None:
            self._rows[head.session] = _OpenRow(head.agent, now.cursor, asked, began)
        return now.position >= head.position

    async def _fold(self, session: Session, head: SessionHead, until: float) -> Projected[_OpenState]:
        known = self._states.get(session.id)
        if known is not None:
            with suppress(LogRolledBack, CursorTrimmed, ArchiveDamaged):
                return await self._fold_from(session, head, known, until)
        return await self._fold_from(session, head, await _open_start(session, head), until)

    async def _fold_from(
        self, session: Session, head: SessionHead, start: Projected[_OpenState], until: float
    ) -> Projected[_OpenState]:
        """Fold some entries at a time, once or until the time `until`."""
        while True:
            end = min(start.position + self._bounds.open_entries, head.position)
            now = await fold(session, _OPEN_STATE, start, until=end)
            if not start.position < now.position < head.position or anyio.current_time() >= until:
                return now
            start = now

    async def _with_times(self, session: Session, now: Projected[_OpenState]) -> Projected[_OpenState]:
        """Add when calls began to wait whose questions are older than the stored state that the fold began with."""
        card = now.state.card
        loop = own_loop(session.id, card.status)
        unknown = {call.event.tool_call_id for call in card_waits(session.id, card) if call.since is None}
        if loop is None or not unknown:
            return now
        asked = dict(card.asked)
        entries = session.read(
            lanes={Lane.EXTENSION}, kinds={ToolWaiting.KIND}, after=Cursor(loop.position), until=now.position
        )
        with suppress(CursorTrimmed, ArchiveDamaged):  # the time of the last append is the next best
            async with aclosing(entries):
                async for envelope in entries:
                    event = parse_event(envelope.message) if isinstance(envelope.message, ExtensionMessage) else None
                    if isinstance(event, ToolWaiting) and event.tool_call_id in unknown:
                        asked[event.tool_call_id] = Asked(position=envelope.position, time=envelope.time)
        card = card.model_copy(update={"asked": asked})
        return Projected(now.state.model_copy(update={"card": card}), now.cursor, now.counted_from, now.unreadable)

    async def _found(self, time: float) -> OpenWork:
        """Return the open work of the known sessions at a time of the server's clock."""
        begun = {session: row for session, row in self._rows.items() if row.began is not None}
        leases = await self._bus.lease_status(begun) if begun else []
        runs, ages, counts = dict[str, float](), dict[str, float](), Counter[str]()
        for lease in leases:
            row = begun[lease.session]
            if row.began is not None and (lease.seconds_left or 0.0) > 0:
                runs[row.agent] = max(runs.get(row.agent, 0.0), time - row.began)
        for row in self._rows.values():
            if row.asked:
                counts[row.agent] += len(row.asked)
                ages[row.agent] = max(ages.get(row.agent, 0.0), time - min(row.asked))
        return OpenWork(runs=runs, approvals=counts, approval_ages=ages)


async def _open_start(session: Session, head: SessionHead) -> Projected[_OpenState]:
    """Return the state from which a session is folded: the status that a worker has stored, or the first entry."""
    if (stored := await load_stored(session, STATUS)) is not None:
        return Projected(_OpenState(card=Card(status=stored.state)), stored.cursor)
    start = await start_of(session, _OPEN_STATE)
    kept = head.cursor_at(head.trimmed)
    return Projected(start.state, kept, head.first_kept) if kept > start.cursor else start


# Read the state of a bus's server for one scrape: groups, memory and settings.


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The state of the server at one moment; empty if the server did not answer."""

    groups: tuple[GroupStatus, ...] = ()
    unfetched: tuple[AgentWork, ...] = ()
    """waiting sessions of agents that no worker has ever served"""
    sessions: Mapping[str, int] = field(default_factory=dict[str, int])
    """number of sessions by agent, for the `MonitorBounds.agents` agents with the most sessions"""
    workers: Mapping[str, Counter[str]] = field(default_factory=dict[str, "Counter[str]"])
    """number of live workers by group, then by agent"""
    servers: tuple[PrimaryStatus, ...] = ()
    open_work: OpenWork = field(default_factory=OpenWork)
    """runs and questions to people"""
    is_answered: bool = False


class ServerReader:
    """Reads the state of the server, at most once in `MonitorBounds.cached_seconds`.

    Calls within this time share one reading.
    """

    def __init__(self, bus: Bus, groups: Sequence[str], bounds: MonitorBounds) -> None:
        """
        Args:
            bus: the bus.
            groups: the groups to read; empty means all, at most `MonitorBounds.groups`.
            bounds: periods and limits.
        """
        self._bus, self._groups, self._bounds = bus, tuple(groups), bounds
        self._open_work = OpenWorkReader(bus, bounds)
        self._one_at_a_time = anyio.Lock()
        self._last = Reading()
        self._read_at: float | None = None

    async def read(self) -> Reading:
        """Return the newest reading. If the server does not answer, the reading is empty. Never raises."""
        async with self._one_at_a_time:
            if self._read_at is None or anyio.current_time() - self._read_at >= self._bounds.cached_seconds:
                self._last = await self._read()
                self._read_at = anyio.current_time()
        return self._last

    async def _read(self) -> Reading:
        try:
            with anyio.fail_after(self._bounds.read_seconds):
                names = self._groups or (await self._bus.groups())[: self._bounds.groups]
                groups = [await self._bus.group_status(name) for name in names]
                sessions = Counter(await self._bus.log.agents()).most_common(self._bounds.agents)
                workers = {name: Counter(await self._bus.live_workers(name)) for name in names}
                return Reading(
                    groups=tuple(groups),
                    unfetched=await self._bus.unfetched_work(self._bounds.agents),
                    sessions=dict(sessions),
                    workers=workers,
                    servers=await self._bus.monitor.servers(),
                    open_work=await self._read_open_work(),
                    is_answered=True,
                )
        except (BusError, TimeoutError):
            return Reading()

    async def _read_open_work(self) -> OpenWork:
        """Return the open work; nothing for a user who may not read the logs. All else does not need this right."""
        try:
            return await self._open_work.read()
        except Refused:
            return OpenWork()
