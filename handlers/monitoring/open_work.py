"""Find the oldest run and the oldest question to a person, over all sessions of a bus, for metrics.

The log tells both, so a run counts whether a worker, a framework or a program of the user records it, and a question
counts although no process works on its session. The first readings go through all sessions; later ones read what
changed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import anyio

from lanebus.bus.bus import Bus
from lanebus.bus.errors import ArchiveDamaged, CursorTrimmed, LogRolledBack, Refused, StreamError, is_of_session
from lanebus.bus.groups.activity import Activity
from lanebus.bus.log.batches import batched
from lanebus.bus.log.head import SessionHead
from lanebus.bus.messages.base import Frozen
from lanebus.bus.messages.events import ToolWaiting, parse_event
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import Cursor, Envelope
from lanebus.handlers.monitoring.bounds import MonitorBounds
from lanebus.handlers.projections.agent_activity import doing, own_loop
from lanebus.handlers.projections.agent_status import STATUS, STATUS_KINDS
from lanebus.handlers.projections.all_sessions import names_all
from lanebus.handlers.projections.cards import Asked, Card, card_waits, with_status
from lanebus.handlers.projections.definition import projection
from lanebus.handlers.projections.projection import Projected, fold, load_stored, start_of
from lanebus.handlers.recent import RecentSessions

__all__ = ("OpenWork", "OpenWorkReader")


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


class _State(Frozen):
    """What a session's events tell. Only `status` and `asked` of the card are used."""

    card: Card = Card()
    resumed: float = 0.0
    """when the newest approval or denial was applied, in seconds UTC; 0 if none was"""


def _evolve(state: _State, envelope: Envelope) -> _State:
    card = with_status(state.card, envelope)
    before, now = state.card.status.loop, card.status.loop
    is_answered = before is not None and now is not None and before.calls_answered != now.calls_answered
    return _State(card=card, resumed=envelope.time if is_answered else state.resumed)


_STATE = projection("lanebus.open_work", version=1, forked=_State(), lanes={Lane.EXTENSION}, kinds=STATUS_KINDS)(
    _evolve
)


class _Row(NamedTuple):
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
        self._rows: dict[str, _Row] = {}
        self._states = RecentSessions[Projected[_State]](bounds.open_sessions, bounds.open_bytes)

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
        self._states.keep(head.session, now, len(_STATE.dump(now.state)))
        status = now.state.card.status
        calls = card_waits(head.session, now.state.card)
        asked = tuple(call.since or head.updated for call in calls if call.decision is None)
        loop, is_run = own_loop(head.session, status), doing(head.session, status) in {"model", "tools"}
        began = max(loop.started, now.state.resumed) if loop is not None and is_run else None
        self._rows.pop(head.session, None)
        if asked or began is not None:
            self._rows[head.session] = _Row(head.agent, now.cursor, asked, began)
        return now.position >= head.position

    async def _fold(self, session: Session, head: SessionHead, until: float) -> Projected[_State]:
        known = self._states.get(session.id)
        if known is not None:
            with suppress(LogRolledBack, CursorTrimmed, ArchiveDamaged):
                return await self._fold_from(session, head, known, until)
        return await self._fold_from(session, head, await _start(session, head), until)

    async def _fold_from(
        self, session: Session, head: SessionHead, start: Projected[_State], until: float
    ) -> Projected[_State]:
        """Fold some entries at a time, once or until the time `until`."""
        while True:
            end = min(start.position + self._bounds.open_entries, head.position)
            now = await fold(session, _STATE, start, until=end)
            if not start.position < now.position < head.position or anyio.current_time() >= until:
                return now
            start = now

    async def _with_times(self, session: Session, now: Projected[_State]) -> Projected[_State]:
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


async def _start(session: Session, head: SessionHead) -> Projected[_State]:
    """Return the state from which a session is folded: the status that a worker has stored, or the first entry."""
    if (stored := await load_stored(session, STATUS)) is not None:
        return Projected(_State(card=Card(status=stored.state)), stored.cursor)
    start = await start_of(session, _STATE)
    kept = head.cursor_at(head.trimmed)
    return Projected(start.state, kept, head.first_kept) if kept > start.cursor else start
