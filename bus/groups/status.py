"""Read the state of groups and agents, for monitoring: consumers, waiting work, leases, and recent publishes."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self, cast

from lanebus.bus.errors import (
    GroupInUse,
    InvalidSessionId,
    Refused,
    check_bounds,
    is_of_session,
    require_all,
)
from lanebus.bus.log.log import Script, batched, count_in, run_script, run_scripts, send_scripts
from lanebus.bus.servers.calls import answered, call_all
from lanebus.bus.wire.keys import DEFAULT_AGENT, AgentBucket, check_session_id, is_name, is_session_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lanebus.bus.log.log import Log, WorkBounds
    from lanebus.bus.servers.calls import Argument, Calling, Reply
    from lanebus.bus.servers.connection import Pool
    from lanebus.bus.wire.keys import Keys


_STATUS, _SEEN = Script("group_status", shares=("damage", "work")), Script("group_seen")
_SEEN_FIELD = ":seen"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStatus:
    """State of one consumer in a group."""

    name: str
    seen: float | None
    """seconds since the consumer's last heartbeat, by the server's clock. None if it sent no heartbeat for
    `WorkBounds.forget_seconds`. A live consumer sends three or more heartbeats in `heartbeat` seconds"""
    heartbeat: float
    """seconds without a heartbeat after which other consumers claim this consumer's work; 0 if it never sent a
    heartbeat"""
    is_alive: bool
    """whether `seen` is below `heartbeat`. For monitoring only: each other consumer decides by its own clock whether to
    claim this consumer's work"""
    held: int
    """number of sessions that the consumer held at its last heartbeat, by its own count"""
    pending: int
    """number of sessions delivered to the consumer and not finished"""
    sessions: tuple[str, ...]
    """ids of the sessions that are pending with the consumer, sorted; at most `WorkBounds.status_sessions` of each
    bucket and agent"""
    agents: tuple[str, ...] = ()
    """the agents that the consumer serves, as reported in its last heartbeat"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentWork:
    """A group's work for one agent, over all buckets."""

    agent: str
    lag: int
    """number of sessions that wait for a consumer"""
    pending: int
    """number of sessions delivered to a consumer and not finished"""
    retries: int
    """number of waiting sessions that `nack` delayed"""
    longest_wait: float | None
    """as `GroupStatus.longest_wait`"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """State of one group over all buckets. `Bus.group_status` reads it."""

    name: str
    consumers: tuple[ConsumerStatus, ...]
    """the state of each consumer, sorted by name"""
    lag: int
    """number of sessions that wait for a consumer"""
    is_lag_more: bool
    """whether the true lag may be higher than `lag`: counting stopped at `WorkBounds.lag_sessions` in a bucket"""
    pending: int
    """number of sessions delivered to a consumer and not finished"""
    retries: int
    """number of waiting sessions that `nack` delayed"""
    next_retry: float | None
    """seconds until the first delayed session is due, by the server's clock; 0 or less if it is due. None if no session
    is delayed"""
    dead: int
    """number of dead letters"""
    dropped: int
    """number of dead letters dropped because a bucket was full"""
    seen: float | None = None
    """seconds since the last heartbeat of any consumer, by the server's clock; None if there never was a heartbeat"""
    longest_wait: float | None = None
    """seconds since the last append to the session that has waited longest for a consumer; None if no session waits"""
    agents: tuple[AgentWork, ...] = ()
    """the group's counts for each agent, sorted by name; only agents whose work the group has ever fetched"""
    is_away: bool = False
    """whether no consumer sent a heartbeat for `WorkBounds.away_seconds`. The group's open work still blocks trims: see
    `Bus.remove_group`"""


class PlaceStatus(NamedTuple):
    """State of a group's work for one agent in one bucket. Source: scripts/group_status.lua."""

    waiting: int
    is_more: int
    delayed: int
    due: int
    pending: list[bytes]
    held_sessions: list[bytes]
    longest: bytes
    """id of the waiting session that was woken first; empty if no session waits"""


class SeenConsumer(NamedTuple):
    """The last heartbeat of a consumer, by the server's clock."""

    seen: int
    """time of the consumer's last heartbeat in milliseconds, by the server's clock"""
    period: int
    """milliseconds without a heartbeat after which the consumer is silent"""
    held: int
    """number of sessions that the consumer held"""
    agents: tuple[str, ...]
    """the agents that the consumer served"""


async def read_heartbeats(pool: Calling, keys: Keys, group: str) -> tuple[int, dict[str, SeenConsumer]]:
    """Return the server's clock in milliseconds, and the last heartbeat of each consumer of a group.

    The name ":seen" has the time of the last heartbeat of any consumer. Raises Unavailable.
    """
    time, *fields = cast("list[bytes]", await run_script(pool, _SEEN, (keys.consumers(group),), ()))
    return int(time), {name: _heartbeat(text) for name, text in _pairs(fields)}


def _heartbeat(text: str) -> SeenConsumer:
    """Return the heartbeat in a field of the consumers hash, see scripts/group_beat.lua. A damaged number is 0."""
    words = text.encode().split(b" ")
    if len(words) < 4:
        return SeenConsumer(count_in(words[0]), 0, 0, ())
    seen, period, held = map(count_in, words[1:4])
    return SeenConsumer(seen, period, held, tuple(name for each in text.split(" ")[4:] for name in each.split(",")))


async def read_places(
    pool: Calling,
    keys: Keys,
    group: str,
    places: Sequence[AgentBucket],
    bounds: WorkBounds,
    *,
    begun: bool = True,
) -> dict[AgentBucket, PlaceStatus]:
    """Read the state of a group's work per agent and bucket, in one round trip.

    Args:
        begun: True reads only the pairs of agent and bucket from which the group has fetched. False also counts the
            waiting sessions of the other pairs.

    Raises:
        Unavailable: the server did not answer.
    """
    words = ("", *bounds.wake_up_trim, bounds.lag_sessions, bounds.status_sessions, "" if begun else "1")
    calls: list[tuple[tuple[str, ...], tuple[Argument, ...]]] = [
        (keys.group_work(*place, group), (f"{place.agent}:{group}", *words)) for place in places
    ]
    commands = [(_STATUS, _STATUS.command(names, arguments)) for names, arguments in calls]
    found: dict[AgentBucket, PlaceStatus] = {}
    for place, reply in zip(places, await send_scripts(pool, commands) if calls else [], strict=True):
        if isinstance(reply, Refused) and is_of_session(reply):  # a foreign client has replaced a key of this bucket
            found[place] = PlaceStatus(0, 0, 0, 0, [], [], b"")
        else:
            row = cast("tuple[int, int, int, int, list[bytes], list[bytes], bytes]", answered(reply))
            found[place] = PlaceStatus(*row)
    return found


async def read_group(log: Log, group: str, bounds: WorkBounds) -> GroupStatus:
    """Read the state of a group. If the group does not exist, the state has only zeros.

    Raises:
        Unavailable: the server did not answer.
    """
    keys = log.keys
    fields = await log.call_shared([("HKEYS", keys.groups(bucket)) for bucket in range(keys.buckets)])
    places = [
        AgentBucket(bucket, agent)
        for bucket, reply in enumerate(fields)
        for agent, name in parts_of(reply)
        if name == group
    ]
    replies = await read_places(log, keys, group, places, bounds)
    letters = [("XLEN", keys.dead(bucket, group)) for bucket in range(keys.buckets)]
    drops = [("HGET", keys.groups(bucket), f":dropped:{group}") for bucket in range(keys.buckets)]
    lengths = cast("list[int | None]", await log.call_shared(letters))
    dropped = sum(map(count_in, cast("list[bytes | None]", await log.call_shared(drops))))
    buckets = list(replies.values())
    now, heartbeats = await read_heartbeats(log, keys, group)
    newest = heartbeats.pop(_SEEN_FIELD, None)
    consumers = _consumers(buckets, heartbeats, now)
    due = min((bucket.due for bucket in buckets if bucket.due), default=None)
    agents = await work_by_agent(log, replies, now)
    since = None if newest is None else max(now - newest.seen, 0) / 1000
    return GroupStatus(
        name=group,
        consumers=consumers,
        lag=sum(bucket.waiting for bucket in buckets),
        is_lag_more=any(bucket.is_more for bucket in buckets),
        pending=sum(each.pending for each in consumers),
        retries=sum(bucket.delayed for bucket in buckets),
        next_retry=None if due is None else (due - now) / 1000,
        dead=sum(length or 0 for length in lengths),
        dropped=dropped,
        seen=since,
        is_away=since is not None and since >= bounds.away_seconds,
        longest_wait=max((each.longest_wait for each in agents if each.longest_wait is not None), default=None),
        agents=agents,
    )


async def work_by_agent(log: Log, places: Mapping[AgentBucket, PlaceStatus], now: int) -> tuple[AgentWork, ...]:
    """Sum the work over the buckets of each agent. `now` is the server's clock in milliseconds. Raises Unavailable."""
    heads = await log.heads([place.longest.decode() for place in places.values() if is_session_id(place.longest)])
    updated = {head.session: head.updated for head in heads if not head.is_erased}
    by_agent: dict[str, list[PlaceStatus]] = defaultdict(list)
    for key, place in places.items():
        by_agent[key.agent].append(place)
    works: list[AgentWork] = []
    for agent, found in sorted(by_agent.items()):
        longest = [place.longest.decode(errors="replace") for place in found]
        oldest = min((updated[name] for name in longest if name in updated), default=None)
        works.append(
            AgentWork(
                agent=agent,
                lag=sum(place.waiting for place in found),
                pending=sum(int(count) for place in found for _, count in _pairs(place.pending)),
                retries=sum(place.delayed for place in found),
                longest_wait=None if oldest is None else max(now / 1000 - oldest, 0.0),
            )
        )
    return tuple(works)


async def remove_group(log: Log, group: str, *, force: bool) -> bool:
    """See `Bus.remove_group`."""
    keys = log.keys
    status = await read_group(log, group, log.work)
    alive = tuple(each.name for each in status.consumers if each.is_alive)
    if alive and not force:
        raise GroupInUse(group, alive)
    was_there = False
    for buckets in batched(range(keys.buckets), log.bounds.buckets):
        # The group's position is deleted first: a group without a position blocks no trims.
        fields = await call_all(log, [("HKEYS", keys.groups(each)) for each in buckets])
        found = [(each, parts_of(reply)) for each, reply in zip(buckets, fields, strict=True)]
        pairs = [AgentBucket(each, agent) for each, parts in found for agent, name in parts if name == group]
        places = [
            *(("HDEL", keys.groups(each), f"{agent}:{group}", f"{agent}:{group}:clock") for each, agent in pairs),
            *(("HDEL", keys.groups(each), f":dropped:{group}") for each in buckets),
        ]
        works = [
            *(("UNLINK", keys.open(*pair, group), keys.due(*pair, group)) for pair in pairs),
            *(("UNLINK", keys.dead(each, group)) for each in buckets),
        ]
        was_there = any(await call_all(log, [*places, *works])) or was_there
        orders = await call_all(log, [("ZRANGE", keys.order(*pair), 0, -1) for pair in pairs])
        names = [name.decode() for order in orders for name in cast("list[bytes]", order) if is_session_id(name)]
        for sessions in batched(names, log.bounds.heads):
            await log.call_many([("HDEL", keys.head(session), f"g:{group}") for session in sessions])
    return bool(await log.call("UNLINK", keys.consumers(group))) or was_there


def _consumers(
    buckets: Iterable[PlaceStatus], heartbeats: Mapping[str, SeenConsumer], now: int
) -> tuple[ConsumerStatus, ...]:
    pending: Counter[str] = Counter()
    sessions: dict[str, set[str]] = defaultdict(set)
    for bucket in buckets:
        for name, count in _pairs(bucket.pending):
            pending[name] += int(count)
        for name, session in _pairs(bucket.held_sessions):
            sessions[name].add(session)
    return tuple(
        _consumer(name, pending, sessions, heartbeats, now) for name in sorted({*pending, *heartbeats, *sessions})
    )


def _consumer(
    name: str,
    pending: Mapping[str, int],
    sessions: Mapping[str, set[str]],
    heartbeats: Mapping[str, SeenConsumer],
    now: int,
) -> ConsumerStatus:
    heartbeat = heartbeats.get(name)
    since = None if heartbeat is None else max(now - heartbeat.seen, 0)
    period = 0 if heartbeat is None else heartbeat.period
    return ConsumerStatus(
        name=name,
        seen=None if since is None else since / 1000,
        heartbeat=period / 1000,
        is_alive=since is not None and since < period,
        held=0 if heartbeat is None else heartbeat.held,
        pending=pending.get(name, 0),
        sessions=tuple(sorted(sessions.get(name, ()))),
        agents=() if heartbeat is None else heartbeat.agents,
    )


def _pairs(words: list[bytes]) -> list[tuple[str, str]]:
    texts = [word.decode(errors="replace") for word in words]
    return list(zip(texts[::2], texts[1::2], strict=True))


# The agents of a bus: how many sessions belong to each, how many wait, and how many workers serve it.

DEFAULT_GROUP = "agents"
"""the group of a worker that is started without a group"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStatus:
    """State of one agent over all buckets. `Bus.agents` reads it."""

    name: str
    sessions: int
    """number of sessions that belong to the agent"""
    waiting: int
    """number of the agent's sessions that wait for a worker. If no worker ever served the agent, all sessions that ever
    woke a worker are counted, except those whose work a `Recorder` has done. If several groups serve the agent, this is
    the largest of their numbers"""
    is_waiting_more: bool
    """whether more sessions may wait than `waiting`: counting stopped at `WorkBounds.lag_sessions` in a bucket"""
    workers: int
    """number of live workers that serve the agent, by the server's clock"""
    is_default: bool
    """whether the agent is the namespace's default agent"""


async def read_agents(log: Log, group: str | None, default: str) -> list[AgentStatus]:
    """See `Bus.agents`."""
    sessions, workers = await log.agents(), await read_live_workers(log, group)
    fetching = await _fetching_groups(log)
    statuses: list[AgentStatus] = []
    for name in sorted(
        {*sessions, *workers, default, *(each for each, by in fetching.items() if group in {None, *by})}
    ):
        groups = fetching.get(name, ()) if group is None else (group,)
        waiting, has_more = 0, False
        for each in groups or (DEFAULT_GROUP,):
            places = (await _read_agent(log, each, name)).values()
            waiting = max(waiting, sum(place.waiting for place in places))
            has_more = has_more or any(place.is_more for place in places)
        statuses.append(
            AgentStatus(
                name=name,
                sessions=sessions.get(name, 0),
                waiting=waiting,
                is_waiting_more=has_more,
                workers=workers[name],
                is_default=name == default,
            )
        )
    return statuses


async def is_known_agent(log: Log, name: str) -> bool:
    """See `Bus.is_known_agent`."""
    if name == (await read_default_agent(log) or DEFAULT_AGENT) or name in await read_live_workers(log, None):
        return True
    return name in await log.agents() or name in await _fetching_groups(log)


async def read_unfetched_work(log: Log, limit: int) -> tuple[AgentWork, ...]:
    """See `Bus.unfetched_work`."""
    fetching = await _fetching_groups(log)
    names = [name for name, _ in Counter(await log.agents()).most_common() if name not in fetching]
    places: dict[AgentBucket, PlaceStatus] = {}
    for name in names[:limit]:
        places |= await _read_agent(log, DEFAULT_GROUP, name)
    if not places:
        return ()
    now, _ = await read_heartbeats(log.pool, log.keys, DEFAULT_GROUP)
    return tuple(work for work in await work_by_agent(log, places, now) if work.lag)


async def read_live_workers(log: Log, group: str | None) -> Counter[str]:
    """Return the number of live consumers of a group, or of all groups, that serve each agent. Raises Unavailable."""
    workers: Counter[str] = Counter()
    for name in sorted({DEFAULT_GROUP, *await all_group_names(log)}) if group is None else (group,):
        now, heartbeats = await read_heartbeats(log.pool, log.keys, name)
        workers.update(_flat(each.agents for each in heartbeats.values() if now - each.seen < each.period))
    return workers


async def _fetching_groups(log: Log) -> dict[str, set[str]]:
    """Return, by agent, the groups that have ever fetched its work."""
    found: dict[str, set[str]] = defaultdict(set)
    for parts in await all_parts(log):
        for agent, group in parts:
            found[agent].add(group)
    return dict(found)


async def _read_agent(log: Log, group: str, agent: str) -> dict[AgentBucket, PlaceStatus]:
    places = [AgentBucket(bucket, agent) for bucket in range(log.keys.buckets)]
    return await read_places(log.pool, log.keys, group, places, log.work, begun=False)


async def read_default_agent(log: Log) -> str | None:
    """Return the default agent that is stored for the namespace; None if there is none. Raises Unavailable."""
    stored = cast("bytes | None", await log.call("HGET", log.keys.config, "agent"))
    return None if stored is None else stored.decode()


async def store_default_agent(log: Log, name: str) -> None:
    """Store the default agent of the namespace. Raises Unavailable."""
    await log.call("HSET", log.keys.config, "agent", name)


def _flat(lists: Iterable[tuple[str, ...]]) -> Iterable[str]:
    return (name for names in lists for name in names)


# Read the owner of a session's lease and the time left, for monitoring. Only the epoch proves a lease.

_LEASE_STATUS = Script("lease_status", shares=("damage",))


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseStatus:
    """State of the lease of one session. `Bus.lease_status` reads it."""

    session: str
    owner: str | None
    """worker that acquired the lease last; None if the lease was released or never acquired"""
    epoch: int
    """epoch of the lease acquired last; 0 if the lease was never acquired"""
    seconds_left: float | None
    """seconds until the lease expires, by the server's clock; 0 or less if it has expired, None if it has no owner"""
    position: int
    """position of the session's last entry"""

    @property
    def is_over(self) -> bool:
        """Whether the lease acquired last was released or has expired; False if none was ever acquired."""
        return self.epoch > 0 and (self.seconds_left is None or self.seconds_left <= 0)


async def read_leases(pool: Pool, keys: Keys, sessions: Collection[str]) -> list[LeaseStatus]:
    """Read the leases of sessions in one round trip. The order of the result may differ from that of `sessions`.

    Raises:
        InvalidSessionId: an id does not match `[A-Za-z0-9_-]{1,64}`.
        Unavailable: the server did not answer.
    """
    require_all("sessions", sessions, str, "pass a list of session ids")
    shares: dict[int, list[str]] = defaultdict(list)
    for session in sessions:
        shares[keys.bucket(check_session_id(session))].append(session)
    calls = [(tuple(map(keys.head, share)), ()) for share in shares.values()]
    replies = await run_scripts(pool, _LEASE_STATUS, calls) if calls else []
    found: list[LeaseStatus] = []
    for share, reply in zip(shares.values(), replies, strict=True):
        rows = cast("list[list[bytes]]", reply)
        found += [_lease_status(session, row) for session, row in zip(share, rows, strict=True)]
    return found


def _lease_status(session: str, row: list[bytes]) -> LeaseStatus:
    owner, epoch, milliseconds_left, position = (word.decode(errors="replace") for word in row)
    return LeaseStatus(
        session=session,
        owner=owner or None,
        epoch=int(epoch),
        seconds_left=int(milliseconds_left) / 1000 if owner else None,
        position=int(position),
    )


# Read from the indexes how many publishes the whole bus had, and to which sessions. For monitoring.


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityBounds:
    """Bounds of one `Bus.activity` call."""

    publishes: int = 100
    """maximum number of publishes in each bucket for which the session is named; further publishes are only counted"""

    def __post_init__(self) -> None:
        check_bounds(self, "bounds.activity")


_ACTIVITY = Script("activity")


class Span(NamedTuple):
    """The publishes to one session since the previous reading."""

    first: int
    """position of the last message of the earliest publish"""
    last: int
    """position of the last message of the latest publish"""
    publishes: int
    """number of publishes"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """One reading of a bus's activity. Pass it to the next `Bus.activity` to get the publishes after this reading."""

    time: float
    """seconds since 1970 UTC, by the server's clock"""
    published: int
    """number of all publishes so far. Publishes of one process to one session that were sent in one batch count once. A
    wake-up without a message also counts once"""
    named: int
    """number of publishes that are counted in `sessions`; 0 in the first reading"""
    sessions: Mapping[str, Span]
    """the publishes since the previous reading, by session; at most `ActivityBounds.publishes` publishes of each
    bucket"""
    ends: tuple[str, ...]
    """for each bucket, the id of the last change notice. The next reading begins after it"""

    @classmethod
    def recent(cls, buckets: int) -> Self:
        """Return a value for the first `Bus.activity` call. With this value, the call also names the sessions of the
        newest publishes.

        Args:
            buckets: `Bus.buckets`.
        """
        return cls(time=0.0, published=0, named=0, sessions={}, ends=("newest",) * buckets)


async def read_activity(pool: Pool, keys: Keys, since: Activity | None, bounds: ActivityBounds) -> Activity:
    """Read the activity of all buckets in one round trip.

    Args:
        since: the previous reading; None names no sessions.

    Raises:
        Unavailable: the server did not answer.
    """
    ends = since.ends if since is not None else ("",) * keys.buckets
    calls: list[tuple[Sequence[str], Sequence[Argument]]] = [
        ((keys.index(bucket),), (end, bounds.publishes)) for bucket, end in enumerate(ends)
    ]
    replies = [cast("list[bytes | int]", reply) for reply in await run_scripts(pool, _ACTIVITY, calls)]
    sessions: dict[str, Span] = {}
    named = 0
    for reply in replies:
        words = [_decoded_word(word) for word in reply[3:]]
        named += len(words) // 2
        for session, position in zip(words[::2], words[1::2], strict=True):
            _note_span(sessions, session, position)
    return Activity(
        time=int(replies[0][0]) / 1000,
        published=sum(int(reply[1]) for reply in replies),
        named=named,
        sessions=sessions,
        ends=tuple(_decoded_word(reply[2]) for reply in replies),
    )


def _note_span(sessions: dict[str, Span], session: str, text: str) -> None:
    try:
        check_session_id(session)
        position = int(text)
    except (InvalidSessionId, ValueError):
        return  # a foreign client wrote this reference to a publish
    previous = sessions.get(session, Span(position, position, 0))
    sessions[session] = Span(min(previous.first, position), max(previous.last, position), previous.publishes + 1)


def _decoded_word(word: bytes | int) -> str:
    return word.decode(errors="replace") if isinstance(word, bytes) else str(word)


# The names of the consumer groups on a bus, and of the agents that they have fetched work for.


async def all_group_names(log: Log) -> tuple[str, ...]:
    """Return the sorted names of all groups that have fetched from any bucket. Raises Unavailable."""
    return tuple(sorted({group for parts in await all_parts(log) for _, group in parts}))


async def all_parts(log: Log) -> list[tuple[tuple[str, str], ...]]:
    """Return, for each bucket, each agent and group for which work was fetched. Raises Unavailable."""
    replies = await log.call_shared([("HKEYS", log.keys.groups(bucket)) for bucket in range(log.keys.buckets)])
    return [parts_of(reply) for reply in replies]


def parts_of(reply: Reply) -> tuple[tuple[str, str], ...]:
    """Return the sorted pairs of agent and group among the fields of a `groups` hash. Pure."""
    fields = (field.decode(errors="replace").split(":") for field in cast("list[bytes]", reply or []))
    return tuple(sorted((field[0], field[1]) for field in fields if len(field) == 2 and all(map(is_name, field))))
