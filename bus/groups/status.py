"""Read the state of consumer groups, for monitoring: consumers, the sessions of each consumer, and waiting work."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

from lanebus.bus.errors import GroupInUse
from lanebus.bus.log.batches import batched
from lanebus.bus.log.script import Script, run_script, run_scripts
from lanebus.bus.servers.replies import call_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lanebus.bus.log.log import Log
    from lanebus.bus.log.work_bounds import WorkBounds
    from lanebus.bus.servers.topology import Argument

__all__ = ("ConsumerStatus", "GroupStatus", "read_group", "remove_group")

_STATUS, _SEEN = Script("group_status", shares=("work",)), Script("group_seen")
_SEEN_FIELD = ":seen"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStatus:
    """State of one consumer in a group."""

    name: str
    seen: float | None
    """seconds since the consumer's last heartbeat, by the server's clock. None if it sent no heartbeat for
    `WorkBounds.forget` seconds. A consumer sends a heartbeat four times in `heartbeat` seconds"""
    heartbeat: float
    """seconds without a heartbeat after which other consumers claim this consumer's work; 0 if it never sent one"""
    is_alive: bool
    """whether `seen` is below `heartbeat`. For monitoring only: each other consumer decides by its own clock whether to
    claim this consumer's work"""
    held: int
    """number of sessions that the consumer held at its last heartbeat, by its own count"""
    pending: int
    """number of sessions delivered to the consumer and not finished"""
    sessions: tuple[str, ...]
    """the pending sessions, sorted; at most `WorkBounds.named_works` of each bucket"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """State of one group over all buckets. `Bus.group_status` reads it."""

    name: str
    consumers: tuple[ConsumerStatus, ...]
    """sorted by name"""
    lag: int
    """number of sessions that wait for a consumer"""
    is_lag_more: bool
    """whether the true lag is higher than `lag`, because counting stopped at `WorkBounds.lag_counted` in a bucket"""
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
    """seconds since the last append to the session that waits for a consumer for longest; None if none waits"""
    is_away: bool = False
    """whether no consumer sent a heartbeat for `WorkBounds.away` seconds. The group's open work still blocks trims: see
    `Bus.remove_group`"""


class _Bucket(NamedTuple):
    waiting: int
    is_more: int
    delayed: int
    due: int
    dead: int
    dropped: int
    pending: list[bytes]
    held_sessions: list[bytes]
    longest: bytes
    """the session that was woken first, of those that wait; empty if none waits"""


async def read_group(log: Log, group: str, bounds: WorkBounds) -> GroupStatus:
    """Read the state of a group. If the group does not exist, the state has only zeros.

    Raises:
        Unavailable: the server did not answer.
    """
    keys = log.keys
    words = (group, "", *bounds.wake_up_trim, bounds.lag_counted, bounds.named_works)
    calls: list[tuple[tuple[str, ...], tuple[Argument, ...]]] = [
        ((*keys.group_work(bucket, group), keys.dead(bucket, group)), words) for bucket in range(keys.buckets)
    ]
    replies = await run_scripts(log, _STATUS, calls)
    seen = await run_script(log, _SEEN, (keys.consumers(group),), ())
    buckets = [
        _Bucket(*cast("tuple[int, int, int, int, int, int, list[bytes], list[bytes], bytes]", r)) for r in replies
    ]
    time, *fields = cast("list[bytes]", seen)
    now, heartbeats = int(time), dict(_pairs(fields))
    newest = heartbeats.pop(_SEEN_FIELD, None)
    consumers = _consumers(buckets, heartbeats, now)
    due = min((bucket.due for bucket in buckets if bucket.due), default=None)
    heads = await log.heads([bucket.longest.decode() for bucket in buckets if bucket.longest])
    oldest = min((head.updated for head in heads if not head.is_erased), default=None)
    since = None if newest is None else max(now - int(newest), 0) / 1000
    return GroupStatus(
        name=group,
        consumers=consumers,
        lag=sum(bucket.waiting for bucket in buckets),
        is_lag_more=any(bucket.is_more for bucket in buckets),
        pending=sum(each.pending for each in consumers),
        retries=sum(bucket.delayed for bucket in buckets),
        next_retry=None if due is None else (due - now) / 1000,
        dead=sum(bucket.dead for bucket in buckets),
        dropped=sum(bucket.dropped for bucket in buckets),
        seen=since,
        is_away=since is not None and since >= bounds.away,
        longest_wait=None if oldest is None else max(now / 1000 - oldest, 0.0),
    )


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
        places = [("HDEL", keys.groups(each), group, f"{group}:dropped", f"{group}:clock") for each in buckets]
        works = [("UNLINK", keys.open(each, group), keys.due(each, group), keys.dead(each, group)) for each in buckets]
        was_there = any(await call_all(log, [*places, *works])) or was_there
        orders = await call_all(log, [("ZRANGE", keys.order(each), 0, -1) for each in buckets])
        names = [name.decode() for order in orders for name in cast("list[bytes]", order)]
        for sessions in batched(names, log.bounds.heads):
            await call_all(log, [("HDEL", keys.head(session), f"g:{group}") for session in sessions])
    return bool(await log.call("UNLINK", keys.consumers(group))) or was_there


def _consumers(buckets: Iterable[_Bucket], heartbeats: Mapping[str, str], now: int) -> tuple[ConsumerStatus, ...]:
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
    name: str, pending: Mapping[str, int], sessions: Mapping[str, set[str]], heartbeats: Mapping[str, str], now: int
) -> ConsumerStatus:
    heartbeat_text = heartbeats.get(name)
    _, seen, heartbeat, held = (int(word) for word in heartbeat_text.split(" ")) if heartbeat_text else (0, None, 0, 0)
    since = None if seen is None else max(now - seen, 0)
    return ConsumerStatus(
        name=name,
        seen=None if since is None else since / 1000,
        heartbeat=heartbeat / 1000,
        is_alive=since is not None and since < heartbeat,
        held=held,
        pending=pending.get(name, 0),
        sessions=tuple(sorted(sessions.get(name, ()))),
    )


def _pairs(words: list[bytes]) -> list[tuple[str, str]]:
    texts = [word.decode(errors="replace") for word in words]
    return list(zip(texts[::2], texts[1::2], strict=True))
