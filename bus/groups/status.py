"""Read the state of consumer groups, for monitoring: consumers, the sessions of each consumer, and waiting work."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

from lanebus.bus.errors import GroupInUse, Refused, is_of_session
from lanebus.bus.groups.names import parts_of
from lanebus.bus.log.batches import batched
from lanebus.bus.log.log import count_in
from lanebus.bus.log.script import Script, run_script, send_scripts
from lanebus.bus.servers.replies import answered, call_all
from lanebus.bus.wire.keys import AgentBucket, is_session_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lanebus.bus.log.log import Log
    from lanebus.bus.log.work_bounds import WorkBounds
    from lanebus.bus.servers.replies import Argument, Calling
    from lanebus.bus.wire.keys import Keys

__all__ = (
    "AgentWork",
    "ConsumerStatus",
    "GroupStatus",
    "PlaceStatus",
    "SeenConsumer",
    "read_group",
    "read_heartbeats",
    "read_places",
    "remove_group",
    "work_by_agent",
)

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
