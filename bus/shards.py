"""The shards of a bus. Each shard has its own publisher and readers, created on first use of one of its sessions.

A single server is one shard. In a cluster each bucket is a shard, because the keys of one publish, or of one blocking
read, must all be in one slot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import anyio

from lanebus.bus.errors import Closed
from lanebus.bus.origin import BusOrigin

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from anyio.abc import TaskGroup

    from lanebus.bus.following.hub import Hub
    from lanebus.bus.groups.wake_ups import WakeUps
    from lanebus.bus.publishing.publisher import Publisher
    from lanebus.bus.servers.connection import Route
    from lanebus.bus.servers.topology import Topology
    from lanebus.bus.wire.keys import Keys

__all__ = ("Shard", "Shards")


class Shard(NamedTuple):
    """The publisher and the readers of a part of the sessions: all sessions of one server, or a bucket of a cluster."""

    publisher: Publisher
    hub: Hub
    wake_ups: WakeUps


class Shards:
    """The shards in use. A shard is created when one of its sessions is first used."""

    def __init__(
        self,
        topology: Topology,
        keys: Keys,
        publisher: Callable[[Route], Publisher],
        hub: Callable[[Route], Hub],
        wake_ups: Callable[[Route, Sequence[int]], WakeUps],
    ) -> None:
        """Store the factories of a shard's parts.

        Args:
            topology: the servers of the bus.
            keys: maps sessions to buckets.
            publisher: creates a shard's publisher from the route to its server.
            hub: creates a shard's hub from the route to its server.
            wake_ups: creates a shard's reader of wake-ups from the route to its server and the shard's buckets.
        """
        self._topology, self._keys = topology, keys
        self._new_publisher, self._new_hub, self._new_wake_ups = publisher, hub, wake_ups
        self._shards: dict[int, Shard] = {}
        self._origin = BusOrigin()
        self._tasks: TaskGroup | None = None
        # One scope per task. Cancelling the task group would also cancel the task that owns the group. An outside
        # cancellation in the same turn of the event loop would then be taken for the group's own, and be lost.
        self._scopes: list[anyio.CancelScope] = []

    def start(self, tasks: TaskGroup) -> None:
        """Run shards in the task group `tasks` from now on."""
        self._tasks = tasks
        self._run(tasks, self._topology.watch)
        if self._topology.is_one:  # always used; created now so that calls after the bus is closed raise its `Closed`
            self._create(0)

    def of(self, session: str) -> Shard:
        """Return the shard of a session.

        Raises:
            Closed: the bus is closed.
            OpenedElsewhere: this is another process or event loop, and the shard is not in use yet.
        """
        number = 0 if self._topology.is_one else self._keys.bucket(session)
        return self._shards.get(number) or self._create(number)

    @property
    def all(self) -> tuple[Shard, ...]:
        """The shards used so far."""
        return tuple(self._shards.values())

    def _create(self, number: int) -> Shard:
        if self._tasks is None:
            raise Closed("bus")
        self._origin.check_running()
        route = self._topology.route(self._keys.index(number))
        buckets = range(self._keys.buckets) if self._topology.is_one else (number,)
        shard = Shard(self._new_publisher(route), self._new_hub(route), self._new_wake_ups(route, buckets))
        self._shards[number] = shard
        for run in (shard.publisher.run, shard.hub.run, shard.wake_ups.run):
            self._run(self._tasks, run)
        return shard

    def _run(self, tasks: TaskGroup, run: Callable[[], Awaitable[None]]) -> None:
        scope = anyio.CancelScope()
        self._scopes.append(scope)
        tasks.start_soon(_run_within, scope, run)

    async def drain(self, seconds: float) -> None:
        """Accept no new publishes, and wait at most `seconds` for the publishes in flight."""
        self._tasks = None
        async with anyio.create_task_group() as draining:
            for shard in self._shards.values():
                draining.start_soon(shard.publisher.drain, seconds)

    def stop(self) -> None:
        """Stop all shards."""
        for scope in self._scopes:
            scope.cancel()


async def _run_within(scope: anyio.CancelScope, run: Callable[[], Awaitable[None]]) -> None:
    with scope:
        await run()
