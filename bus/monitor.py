"""Counters of one process's bus and the state of its servers, for monitoring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lanebus.bus.servers.primary_status import PrimaryStatus, read_primaries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lanebus.bus.log.namespace import LossKind
    from lanebus.bus.publishing.publish_counts import PublishCounts
    from lanebus.bus.servers.pool import Pool
    from lanebus.bus.shards import Shards

__all__ = ("BusCounts", "BusMonitor")


@dataclass(frozen=True, slots=True, kw_only=True)
class BusCounts:
    """Counters of the bus in this process."""

    publishes: PublishCounts
    """outcomes, times and batches of publishes. The object belongs to the bus, so its counts continue to grow"""
    in_flight: int
    """publishes that were sent and not answered"""
    waiting: int
    """publishes that wait to be sent"""
    followers: int
    """open subscriptions"""
    follower_lag: int
    """entries that the slowest follower has not taken yet"""
    follower_bytes: int
    """bytes of JSON that wait for followers"""
    fell_behind: int
    """how often a follower was too slow, and read the log again"""
    losses: Mapping[LossKind, int]
    """how often a worker or server of the page in this process found that the log was emptied, or rolled back"""


class BusMonitor:
    """Reads the counters of a bus and the state of its servers. It writes nothing."""

    def __init__(self, pool: Pool, shards: Shards, counts: PublishCounts, losses: Mapping[LossKind, int]) -> None:
        self._pool, self._shards, self._counts, self._losses = pool, shards, counts, losses

    def counts(self) -> BusCounts:
        """Return the counters of this process. No I/O."""
        shards = self._shards.all
        opened = [shard.publisher.open for shard in shards]
        lags = [lag for shard in shards for lag in shard.hub.lags]
        return BusCounts(
            publishes=self._counts,
            in_flight=sum(sent for sent, _ in opened),
            waiting=sum(queued for _, queued in opened),
            followers=len(lags),
            follower_lag=max((entries for entries, _ in lags), default=0),
            follower_bytes=sum(size for _, size in lags),
            fell_behind=sum(shard.hub.fell_behind for shard in shards),
            losses=self._losses,
        )

    async def ping(self) -> None:
        """Check that each server answers.

        Raises:
            Unavailable: a server did not answer, or refused the command.
        """
        await self._pool.call_each("PING")

    async def servers(self) -> tuple[PrimaryStatus, ...]:
        """Return the state of each primary.

        Raises:
            Refused: the user may not run INFO.
            Unavailable: a server did not answer.
        """
        return await read_primaries(self._pool)
