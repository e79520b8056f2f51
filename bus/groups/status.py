"""How consumer groups stand: who works, on what, and what waits. For who looks on; nobody needs it to work."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

from lanebus.bus.errors import GroupInUse
from lanebus.bus.log.batches import batched
from lanebus.bus.log.log import Log
from lanebus.bus.log.script import Script, run_script, run_scripts
from lanebus.bus.servers.replies import call_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lanebus.bus.log.log import Log
    from lanebus.bus.log.work_bounds import WorkBounds
    from lanebus.bus.servers.replies import Calling
    from lanebus.bus.servers.topology import Argument
    from lanebus.bus.wire.keys import Keys

__all__ = ("ConsumerStatus", "GroupStatus", "read_group", "remove_group")

_STATUS, _SEEN = Script("group_status", shares=("work",)), Script("group_seen")
_SEEN_FIELD = ":seen"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStatus:
    """One consumer of a group."""

    name: str
    seen: float | None
    """seconds since its last sign of life, by the server's clock; it is written each quarter of a heartbeat. None where
    it never gave one, or has not for a day"""
    heartbeat: float
    """seconds without a sign of life after which its work is given to others; 0 where it never gave one"""
    is_alive: bool
    """as far as that clock tells: whether its work is given to others is decided by those who see it give no sign"""
    held: int
    """sessions it has in hand, by its own last word"""
    pending: int
    """sessions that were given to it and are not done with"""
    sessions: tuple[str, ...]
    """of its works, sorted; not all where there are many"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """One group, over all buckets."""

    name: str
    consumers: tuple[ConsumerStatus, ...]
    """sorted by name"""
    lag: int
    """sessions that wait to be given to somebody"""
    is_lag_more: bool
    """there are more, which were not counted"""
    pending: int
    """sessions that were given and are not done with"""
    retries: int
    """sessions that were put off and wait"""
    next_retry: float | None
    """seconds until the next of them is due, by the server's clock; 0 or less if it is. None where none waits"""
    dead: int
    """dead letters"""
    dropped: int
    """dead letters that are gone because there were too many"""
    seen: float | None = None
    """seconds since the last sign of life of any consumer, by the server's clock; None where none ever gave one"""
    is_away: bool = False
    """nobody has worked in it for a week, and it still keeps what its open work needs: `Bus.remove_group` ends that"""


class _Bucket(NamedTuple):
    waiting: int
    is_more: int
    put_off: int
    due: int
    dead: int
    dropped: int
    pending: list[bytes]
    in_hand: list[bytes]


async def read_group(pool: Calling, keys: Keys, group: str, bounds: WorkBounds) -> GroupStatus:
    """How a group stands; of one that does not exist all zeros.

    Raises:
        Unavailable: the server cannot be reached.
    """
    words = (group, "", *bounds.wake_up_trim, bounds.lag_counted, bounds.named_works)
    calls: list[tuple[tuple[str, ...], tuple[Argument, ...]]] = [
        ((*keys.group_work(bucket, group), keys.dead(bucket, group)), words) for bucket in range(keys.buckets)
    ]
    replies = await run_scripts(pool, _STATUS, calls)
    seen = await run_script(pool, _SEEN, (keys.consumers(group),), ())
    buckets = [_Bucket(*cast("tuple[int, int, int, int, int, int, list[bytes], list[bytes]]", r)) for r in replies]
    time, *signs = cast("list[bytes]", seen)
    now, told = int(time), dict(_pairs(signs))
    newest = told.pop(_SEEN_FIELD, None)
    consumers = _consumers(buckets, told, now)
    due = min((bucket.due for bucket in buckets if bucket.due), default=None)
    since = None if newest is None else max(now - int(newest), 0) / 1000
    return GroupStatus(
        name=group,
        consumers=consumers,
        lag=sum(bucket.waiting for bucket in buckets),
        is_lag_more=any(bucket.is_more for bucket in buckets),
        pending=sum(each.pending for each in consumers),
        retries=sum(bucket.put_off for bucket in buckets),
        next_retry=None if due is None else (due - now) / 1000,
        dead=sum(bucket.dead for bucket in buckets),
        dropped=sum(bucket.dropped for bucket in buckets),
        seen=since,
        is_away=since is not None and since >= bounds.away,
    )


async def remove_group(log: Log, group: str, *, force: bool) -> bool:
    """See `Bus.remove_group`."""
    keys = log.keys
    status = await read_group(log, keys, group, log.work)
    alive = tuple(each.name for each in status.consumers if each.is_alive)
    if alive and not force:
        raise GroupInUse(group, alive)
    was_there = False
    for buckets in batched(range(keys.buckets), log.bounds.buckets):
        # First its place: from then on it holds nothing.
        places = [("HDEL", keys.groups(each), group, f"{group}:dropped", f"{group}:clock") for each in buckets]
        works = [("UNLINK", keys.open(each, group), keys.due(each, group), keys.dead(each, group)) for each in buckets]
        was_there = any(await call_all(log, [*places, *works])) or was_there
        orders = await call_all(log, [("ZRANGE", keys.order(each), 0, -1) for each in buckets])
        names = [name.decode() for order in orders for name in cast("list[bytes]", order)]
        for some in batched(names, log.bounds.heads):
            await call_all(log, [("HDEL", keys.head(session), f"g:{group}") for session in some])
    return bool(await log.call("UNLINK", keys.consumers(group))) or was_there


def _consumers(buckets: Iterable[_Bucket], told: Mapping[str, str], now: int) -> tuple[ConsumerStatus, ...]:
    pending: Counter[str] = Counter()
    sessions: dict[str, set[str]] = defaultdict(set)
    for bucket in buckets:
        for name, count in _pairs(bucket.pending):
            pending[name] += int(count)
        for name, session in _pairs(bucket.in_hand):
            sessions[name].add(session)
    return tuple(_consumer(name, pending, sessions, told, now) for name in sorted({*pending, *told, *sessions}))


def _consumer(
    name: str, pending: Mapping[str, int], sessions: Mapping[str, set[str]], told: Mapping[str, str], now: int
) -> ConsumerStatus:
    sign = told.get(name)
    _, seen, heartbeat, held = (int(word) for word in sign.split(" ")) if sign else (0, None, 0, 0)
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
