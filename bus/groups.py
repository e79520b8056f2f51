"""How consumer groups stand: who works, on what, and what waits. For who looks on; nobody needs it to work."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

from bus.group_log import run_scripts
from bus.log import Script

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bus.connection import Argument, Pool
    from bus.keys import Keys

__all__ = ("ConsumerStatus", "GroupStatus", "read_group")

LAG_LOOKED_AT = 2_000
"""Entries of a bucket's index that are looked at to count what was not given yet."""

NAMED_WORKS = 50
"""Works in hand that are named, of each bucket."""

_STATUS, _SEEN = Script("group_status"), Script("group_seen")


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
    held: int
    """sessions it has in hand, by its own last word"""
    pending: int
    """pointers that were given to it and are not done with; some may ring nobody"""
    sessions: tuple[str, ...]
    """of its works, sorted; not all where there are many"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """One group, over all buckets."""

    name: str
    consumers: tuple[ConsumerStatus, ...]
    """sorted by name"""
    lag: int
    """works that were not given to anybody yet"""
    is_lag_more: bool
    """there are more, which were not counted"""
    pending: int
    """pointers that were given and are not done with"""
    retries: int
    """works that were put off and wait"""
    next_retry: float | None
    """seconds until the next of them is due, by the server's clock; 0 or less if it is. None where none waits"""
    dead: int
    """dead letters"""
    dropped: int
    """dead letters that are gone because there were too many"""


class _Bucket(NamedTuple):
    waiting: int
    is_more: int
    put_off: int
    due: int
    taken: int
    dead: int
    dropped: int
    pending: list[bytes]
    in_hand: list[bytes]


async def read_group(pool: Pool, keys: Keys, group: str) -> GroupStatus:
    """How a group stands; of one that does not exist all zeros.

    Raises:
        Unavailable: the server cannot be reached.
    """
    calls: list[tuple[tuple[str, ...], tuple[Argument, ...]]] = []
    for bucket in range(keys.buckets):
        names = (keys.index(bucket), keys.retry(bucket, group), keys.retries(bucket))
        calls.append(((*names, keys.dead(bucket, group), keys.groups(bucket)), (group, LAG_LOOKED_AT, NAMED_WORKS)))
    replies = await run_scripts(pool, _STATUS, calls)
    (seen,) = await run_scripts(pool, _SEEN, [((keys.alive(group), keys.consumers(group)), ())])
    buckets = [_Bucket(*cast("tuple[int, int, int, int, int, int, int, list[bytes], list[bytes]]", r)) for r in replies]
    now, *signs = cast("list[bytes]", seen)
    consumers = _consumers(buckets, signs, int(now))
    due = min((bucket.due for bucket in buckets if bucket.due), default=None)
    return GroupStatus(
        name=group,
        consumers=consumers,
        lag=sum(bucket.waiting for bucket in buckets),
        is_lag_more=any(bucket.is_more for bucket in buckets),
        pending=sum(each.pending for each in consumers),
        retries=sum(bucket.put_off - bucket.taken for bucket in buckets),
        next_retry=None if due is None else (due - int(now)) / 1000,
        dead=sum(bucket.dead for bucket in buckets),
        dropped=sum(bucket.dropped for bucket in buckets),
    )


def _consumers(buckets: Iterable[_Bucket], signs: list[bytes], now: int) -> tuple[ConsumerStatus, ...]:
    pending: Counter[str] = Counter()
    sessions: dict[str, set[str]] = defaultdict(set)
    for bucket in buckets:
        for name, count in _pairs(bucket.pending):
            pending[name] += int(count)
        for name, session in _pairs(bucket.in_hand):
            sessions[name].add(session)
    told = dict(_pairs(signs))
    return tuple(_consumer(name, pending, sessions, told, now) for name in sorted({*pending, *told, *sessions}))


def _consumer(
    name: str, pending: Mapping[str, int], sessions: Mapping[str, set[str]], told: Mapping[str, str], now: int
) -> ConsumerStatus:
    sign = told.get(name)
    seen, heartbeat, held, silent_at = (int(word) for word in sign.split(" ")) if sign else (None, 0, 0, 0)
    return ConsumerStatus(
        name=name,
        seen=None if seen is None else (now - seen) / 1000,
        heartbeat=heartbeat / 1000,
        is_alive=silent_at > now,
        held=held,
        pending=pending.get(name, 0),
        sessions=tuple(sorted(sessions.get(name, ()))),
    )


def _pairs(words: list[bytes]) -> list[tuple[str, str]]:
    texts = [word.decode(errors="replace") for word in words]
    return list(zip(texts[::2], texts[1::2], strict=True))
