"""The shards of a bus: each has a publisher and its readers of its own, made when the first of its sessions is used.

One server is one shard. In a cluster every bucket is one, as what a publisher sends in one step, and what a hub waits
for in one read, must be in one slot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import anyio

from lanebus.bus.errors import Closed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from anyio.abc import TaskGroup

    from lanebus.bus.following.hub import Hub
    from lanebus.bus.groups.wake_ups import WakeUps
    from lanebus.bus.publishing.publisher import Publisher
    from lanebus.bus.servers.topology import Route, Topology
    from lanebus.bus.wire.keys import Keys

__all__ = ("Shard", "Shards")


class Shard(NamedTuple):
    """What works on the sessions of one shard."""

    publisher: Publisher
    hub: Hub
    ringing: WakeUps


class Shards:
    """All that were needed so far, and the way to the next."""

    def __init__(
        self,
        topology: Topology,
        keys: Keys,
        publisher: Callable[[Route], Publisher],
        hub: Callable[[Route], Hub],
        ringing: Callable[[Route, Sequence[int]], WakeUps],
    ) -> None:
        """Takes what makes a publisher and readers, given the way to a shard's server, and its buckets."""
        self._topology, self._keys = topology, keys
        self._publisher, self._hub, self._ringing = publisher, hub, ringing
        self._made: dict[int, Shard] = {}
        self._tasks: TaskGroup | None = None
        # One a task: to cancel their group would cancel its owner too, and a cancellation from outside that comes in
        # the same turn of the event loop would be taken for that one and be lost.
        self._scopes: list[anyio.CancelScope] = []

    def start(self, tasks: TaskGroup) -> None:
        """Let shards run in a task group from now on."""
        self._tasks = tasks
        if self._topology.is_one:  # it will be needed, and calls should fail by it once the bus is closed
            self._make(0)

    def of(self, session: str) -> Shard:
        """The shard of a session.

        Raises:
            Closed: the bus is closed.
        """
        number = 0 if self._topology.is_one else self._keys.bucket(session)
        return self._made.get(number) or self._make(number)

    def _make(self, number: int) -> Shard:
        if self._tasks is None:
            raise Closed("bus")
        route = self._topology.route(self._keys.index(number))
        buckets = range(self._keys.buckets) if self._topology.is_one else (number,)
        shard = Shard(self._publisher(route), self._hub(route), self._ringing(route, buckets))
        self._made[number] = shard
        for run in (shard.publisher.run, shard.hub.run, shard.ringing.run):
            scope = anyio.CancelScope()
            self._scopes.append(scope)
            self._tasks.start_soon(_run_within, scope, run)
        return shard

    async def drain(self, seconds: float) -> None:
        """Take nothing new and wait for the publishes that are on their way, `seconds` at most."""
        self._tasks = None
        async with anyio.create_task_group() as draining:
            for shard in self._made.values():
                draining.start_soon(shard.publisher.drain, seconds)

    def stop(self) -> None:
        """End all of them."""
        for scope in self._scopes:
            scope.cancel()


async def _run_within(scope: anyio.CancelScope, run: Callable[[], Awaitable[None]]) -> None:
    with scope:
        await run()
