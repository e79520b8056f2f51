"""Look at a bus repeatedly, for `lanebus top`: groups, sessions with workers, and rates."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import NamedTuple

import anyio

from lanebus.bus import Activity, AgentWork, Bus, GroupStatus, LeaseStatus
from lanebus.bus.errors import (
    CursorTrimmed,
    MessageError,
    Refused,
    StreamError,
    Unavailable,
    check_bounds,
    is_of_session,
)
from lanebus.bus.messages import ExtensionMessage, Lane, TurnEnded, TurnStarted, Usage, parse_event
from lanebus.bus.wire import Cursor, Envelope
from lanebus.handlers.context import RecentSessions
from lanebus.handlers.projections import STATUS, STATUS_KINDS, Doing, LoopStatus, Status, doing, own_loop

# The values that `lanebus top` shows: groups, sessions with workers, and rates; also as JSON.


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Rates of publishes, turns, tokens and cost, averaged over the last `seconds`."""

    seconds: float
    """length of the period that the rates are averaged over, in seconds"""
    publishes: float
    """publishes per second"""
    turns: float
    """ended turns per second"""
    tokens: float
    """tokens per minute"""
    dollars: Decimal | None
    """US dollars per minute; None if no turn has a known cost"""
    is_estimate: bool
    """whether `turns`, `tokens` and `dollars` are extrapolated, because some sessions with publishes were not read"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStatus:
    """A session that a worker works on, or that waits for a person."""

    session: str
    group: str | None
    """consumer group of `worker`; None if no consumer has the session's work"""
    worker: str | None
    """the consumer that has the session's work; None if no consumer has it"""
    owner: str | None
    """owner of the session's lease; None if there is no lease"""
    epoch: int
    """epoch of the last lease"""
    seconds_left: float | None
    """seconds until the lease expires; 0 or less if the lease has expired, None if there is no lease"""
    position: int
    """last position of the session"""
    doing: Doing
    loop_id: str | None
    """id of the session's loop; None if no loop runs"""
    turn: int | None
    """index of the current turn; None outside a turn"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The state of a bus's groups and sessions at one time, as `Watcher.look` returns it."""

    time: float
    """seconds UTC, by the server's clock"""
    groups: tuple[GroupStatus, ...]
    without_worker: tuple[AgentWork, ...]
    """the work of each agent that has waiting sessions but no live worker"""
    sessions: tuple[SessionStatus, ...]
    left_out: int
    """number of sessions that are not in `sessions`, because of `WatcherBounds.sessions`"""
    pace: Pace | None
    """the rates over the last seconds; None in the first overview of a `Watcher`"""


def overview_json(overview: Overview) -> dict[str, object]:
    """Return the overview as a JSON object. US dollars are texts, as in the JSON of other commands."""
    pace = overview.pace
    dollars = None if pace is None or pace.dollars is None else format(pace.dollars, ".6f")
    return {
        "time": overview.time,
        "groups": [asdict(group) for group in overview.groups],
        "without_worker": [asdict(work) for work in overview.without_worker],
        "sessions": [asdict(session) for session in overview.sessions],
        "sessions_left_out": overview.left_out,
        "pace": None if pace is None else {**asdict(pace), "dollars": dollars},
    }


# Look at a bus repeatedly. The cost of a look does not grow with the number of stored sessions.
#
# A look reads the status of the groups and the leases of the sessions that workers run. It also reads the newest
# entries of sessions with publishes since the last look. It never lists all sessions.

_KINDS = STATUS_KINDS | {TurnEnded.KIND}


@dataclass(frozen=True, slots=True, kw_only=True)
class WatcherBounds:
    """How much one call of `Watcher.look` reads, and how much the watcher keeps in memory."""

    sessions: int = 100
    """maximum number of sessions in an overview"""
    changed_sessions: int = 64
    """maximum number of sessions with new publishes that one call reads"""
    reads_at_once: int = 8
    """maximum number of sessions that are read concurrently"""
    entries_before_end: int = 400
    """number of positions to read before the session's last position, when a session is read for the first time"""
    entries_before_publish: int = 32
    """number of positions to read before a session's first new position in the bucket's index. The index names only the
    last entry of a publish, which may have several"""
    agents: int = 20
    """maximum number of agents that no worker has ever served; agents with the most sessions come first"""
    cached_sessions: int = 500
    """maximum number of sessions whose status the watcher keeps in memory between two calls"""
    cached_bytes: int = 16 * 1_048_576
    """maximum number of bytes of these statuses, as JSON"""

    def __post_init__(self) -> None:
        check_bounds(self, zero=("entries_before_end", "entries_before_publish"))


@dataclass(slots=True)
class _Watched:
    """The known state of one session."""

    status: Status = STATUS.initial
    position: int = 0
    """the last position read"""
    turns: list[Usage] = field(default_factory=list[Usage])
    """usage of the turns that ended since the previous look"""


class _Place(NamedTuple):
    group: str
    worker: str


class Watcher:
    """Reads overviews of a bus. Writes nothing to the bus."""

    def __init__(self, bus: Bus, groups: Sequence[str] = (), bounds: WatcherBounds | None = None) -> None:
        """Watch a bus.

        Args:
            bus: the bus.
            groups: names of the groups to show; empty means all.
            bounds: how much one look reads. None means the defaults.
        """
        self._bus, self._groups, self._bounds = bus, tuple(groups), bounds or WatcherBounds()
        self._activity: Activity | None = None
        self._pacer = Pacer()
        self._watched = RecentSessions[_Watched](self._bounds.cached_sessions, self._bounds.cached_bytes)

    async def look(self) -> Overview:
        """Return the current overview, with the rates over the last seconds.

        Raises:
            InvalidName: a group's name does not match `[A-Za-z0-9_.-]{1,64}`.
            Unavailable: the server cannot be reached. The next call covers the missed time too.
        """
        groups = tuple([await self._bus.group_status(name) for name in self._groups or await self._bus.groups()])
        unfetched = () if self._groups else await self._bus.unfetched_work(self._bounds.agents)
        # The first look reads the newest publishes: a session that waits for a person publishes nothing more.
        await self._watched.sweep(self._bus.log)
        before, since = self._activity, self._activity or Activity.recent(self._bus.buckets)
        activity = await self._bus.activity(since)
        in_hand = _in_hand(groups)
        changed = sorted(activity.sessions, key=lambda name: activity.sessions[name].publishes, reverse=True)
        changed = changed[: self._bounds.changed_sessions]
        shown = [*in_hand, *self._kept(in_hand)][: self._bounds.sessions]
        leases = {lease.session: lease for lease in await self._bus.lease_status({*shown, *changed})}
        await self._read(leases.values(), activity, 0.0 if before is None else before.time)
        named = [*in_hand, *self._kept(in_hand)]  # once more: sessions just read may now wait for a person
        shown = [name for name in named if name in leases][: self._bounds.sessions]
        pace = None if before is None else self._pace(before, activity, changed)
        self._activity = activity
        return Overview(
            time=activity.time,
            groups=groups,
            without_worker=_without_worker(groups, unfetched),
            sessions=tuple(self._line(leases[name], in_hand.get(name)) for name in shown),
            left_out=len(named) - len(shown),
            pace=pace,
        )

    def _pace(self, before: Activity, activity: Activity, looked_into: Collection[str]) -> Pace:
        turns = [usage for name in looked_into if (watched := self._watched.get(name)) for usage in watched.turns]
        step = Step(
            seconds=max(activity.time - before.time, 0.001),
            publishes=max(activity.published - before.published, 0),
            looked_into=sum(activity.sessions[name].publishes for name in looked_into),
            turns=tuple(turns),
        )
        return self._pacer.add(step)

    def _kept(self, in_hand: Collection[str]) -> list[str]:
        """Return sessions that wait for a person and have no worker, the newest first."""
        waiting = {"waiting", "paused", "handoff"}
        kept = [name for name in self._watched if name not in in_hand][::-1]
        return [name for name in kept if (known := self._watched.get(name)) and doing(name, known.status) in waiting]

    async def _read(self, leases: Iterable[LeaseStatus], activity: Activity, since: float) -> None:
        """Read the session of each lease, up to the lease's position."""
        limit = anyio.CapacityLimiter(self._bounds.reads_at_once)
        failures: list[Unavailable] = []

        async def read(lease: LeaseStatus) -> None:
            try:
                async with limit:
                    await self._read_one(lease, activity, since)
            except Unavailable as error:  # raised below; the task group would wrap it in an exception group
                failures.append(error)
                tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for lease in leases:
                tasks.start_soon(read, lease)
        if failures:
            raise failures[0]

    async def _read_one(self, lease: LeaseStatus, activity: Activity, since: float) -> None:
        name, last = lease.session, lease.position
        watched = self._watched.pop(name) or _Watched()
        watched.turns.clear()
        span = activity.sessions.get(name)
        since = 0.0 if watched.position else since  # a known session's unread entries are all new
        # A pointer names the last position of a publish, which may have begun earlier.
        wanted = last - self._bounds.entries_before_end
        if span is not None:
            wanted = min(wanted, span.first - self._bounds.entries_before_publish)
        start = max(watched.position, min(wanted, last), 0)
        if last < watched.position:
            return  # the log was rolled back; the next look starts anew
        try:
            await self._fold(name, watched, start, last, since)
        except CursorTrimmed as gap:
            with suppress(StreamError):
                await self._fold(name, watched, gap.first_kept - 1, last, since)
        except (StreamError, Refused) as error:
            if is_of_session(error):
                return  # erased meanwhile, or damaged
            raise
        watched.position = last
        self._watched.keep(name, watched, len(STATUS.dump(watched.status)))

    async def _fold(self, session: str, watched: _Watched, start: int, last: int, since: float) -> None:
        entries = self._bus.session(session).read(lanes={Lane.EXTENSION}, kinds=_KINDS, after=Cursor(start), until=last)
        async with aclosing(entries):
            async for envelope in entries:
                _evolve(watched, envelope, since)

    def _line(self, lease: LeaseStatus, place: _Place | None) -> SessionStatus:
        watched = self._watched.get(lease.session)
        status = watched.status if watched is not None else STATUS.initial
        loop = own_loop(lease.session, status)
        return SessionStatus(
            session=lease.session,
            group=place.group if place is not None else None,
            worker=place.worker if place is not None else None,
            owner=lease.owner,
            epoch=lease.epoch,
            seconds_left=lease.seconds_left,
            position=lease.position,
            doing=doing(lease.session, status),
            loop_id=loop.loop_id if loop is not None else None,
            turn=loop.turn.turn_index if loop is not None and loop.turn is not None else None,
        )


def _evolve(watched: _Watched, envelope: Envelope, since: float) -> None:
    event = None
    if envelope.is_imported:
        return
    if isinstance(envelope.message, ExtensionMessage) and envelope.message.kind in {TurnEnded.KIND, TurnStarted.KIND}:
        try:
            event = parse_event(envelope.message)
        except MessageError:
            return
    if isinstance(event, TurnEnded):
        if envelope.time >= since:
            watched.turns.append(event.usage)
        return
    status = watched.status
    if isinstance(event, TurnStarted) and (status.loop is None or status.loop.loop_id != event.turn_id.loop_id):
        # The loop started before the first entry that was read.
        loop = LoopStatus(loop_id=event.turn_id.loop_id, started=envelope.time, position=envelope.position)
        status = status.model_copy(update={"loop": loop})
    watched.status = STATUS.evolve(status, envelope)


def _without_worker(groups: Sequence[GroupStatus], unfetched: Sequence[AgentWork]) -> tuple[AgentWork, ...]:
    """Return the work that waits for agents that no live worker of these groups serves."""
    consumers = [each for group in groups for each in group.consumers if each.is_alive]
    served = {agent for each in consumers for agent in each.agents}
    fetched = (work for group in groups for work in group.agents if work.lag + work.retries)
    return (*(work for work in fetched if work.agent not in served), *unfetched)


def _in_hand(groups: Iterable[GroupStatus]) -> Mapping[str, _Place]:
    places: dict[str, _Place] = {}
    for group in groups:
        for consumer in group.consumers:
            for session in consumer.sessions:
                places.setdefault(session, _Place(group.name, consumer.name))
    return dict(sorted(places.items()))


# Compute rates from successive looks at a bus. Pure.

WINDOW_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Step:
    """The publishes and ended turns between two calls of `Watcher.look`."""

    seconds: float
    publishes: int
    looked_into: int
    """number of those `publishes` that belong to sessions whose entries were read. Only these sessions give `turns`"""
    turns: tuple[Usage, ...]
    """usage of each ended turn, in the sessions whose entries were read"""

    @property
    def factor(self) -> float:
        """`publishes / looked_into`, at least 1. Multiply `turns` by it to estimate the turns of all sessions."""
        return max(self.publishes / self.looked_into, 1.0) if self.looked_into else 1.0


class Pacer:
    """Averages the rates over the steps that cover the last `WINDOW_SECONDS`."""

    def __init__(self) -> None:
        self._steps: deque[Step] = deque()

    def add(self, step: Step) -> Pace:
        """Add the newest step and return the rates."""
        self._steps.append(step)
        while sum(each.seconds for each in self._steps) - self._steps[0].seconds >= WINDOW_SECONDS:
            self._steps.popleft()
        return _pace(self._steps)


def _pace(steps: Iterable[Step]) -> Pace:
    seconds, publishes, turns, tokens, dollars = 0.0, 0, 0.0, 0.0, Decimal(0)
    is_priced = is_estimate = False
    for step in steps:
        seconds += step.seconds
        publishes += step.publishes
        turns += len(step.turns) * step.factor
        tokens += sum(usage.total_tokens for usage in step.turns) * step.factor
        costs = [usage.cost.total for usage in step.turns if usage.cost is not None]
        dollars += sum(costs, Decimal(0)) * Decimal(step.factor)
        is_priced = is_priced or bool(costs)
        is_estimate = is_estimate or step.factor > 1.0
    minutes = seconds / 60
    return Pace(
        seconds=seconds,
        publishes=publishes / seconds,
        turns=turns / seconds,
        tokens=tokens / minutes,
        dollars=dollars / Decimal(minutes) if is_priced or not turns else None,
        is_estimate=is_estimate,
    )
