"""The connection pool of a cluster."""

from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from functools import partial

import anyio

from lanebus.bus.errors import BusError, Closed, Refused, Unavailable
from lanebus.bus.servers.cluster import Cluster, NodeRoute
from lanebus.bus.servers.endpoint import Endpoint
from lanebus.bus.servers.pool import ConnectionPool, is_settled, patient_backoff
from lanebus.bus.servers.replies import Argument, Reply, answered
from lanebus.bus.servers.slots import key_of, slot_of

__all__ = ("ClusterPool",)


class ClusterPool:
    """The `Pool` of a cluster: one pool for each server, because commands of many slots may share a connection."""

    def __init__(self, cluster: Cluster, limit: int = 8) -> None:
        self._cluster, self._limit, self._bounds = cluster, limit, cluster.bounds
        self._pools: dict[tuple[str, int], ConnectionPool] = {}
        self._is_closed = False

    @property
    def has_connected(self) -> bool:
        """See `Pool`."""
        return any(pool.has_connected for pool in self._pools.values())

    async def call(
        self, *command: Argument, at: str | None = None, more_seconds: float = 0.0, again: bool = True
    ) -> Reply:
        """See `Pool`."""
        slot = slot_of(at if at is not None else key_of(command))
        (reply,) = await self._patiently((command,), [slot], more_seconds, again=again)
        return answered(reply)

    async def call_many(
        self, commands: Sequence[Sequence[Argument]], *, more_seconds: float = 0.0
    ) -> list[Reply | Refused]:
        """See `Pool`."""
        slots = [slot_of(key_of(command)) for command in commands]
        return await self._patiently(commands, slots, more_seconds, again=True)

    async def call_each(self, *command: Argument) -> dict[str, Reply]:
        """See `Pool`."""
        return {server.address: await self._pool(server).call(*command) for server in await self._cluster.primaries()}

    async def scan(self, match: str) -> AsyncGenerator[list[bytes], None]:
        """See `Pool`."""
        for server in await self._cluster.primaries():
            async with aclosing(self._pool(server).scan(match)) as pages:
                async for page in pages:
                    yield page

    async def close(self) -> None:
        """See `Pool`."""
        self._is_closed = True
        for pool in self._pools.values():
            await pool.close()

    async def _patiently(
        self, commands: Sequence[Sequence[Argument]], slots: Sequence[int], more_seconds: float, *, again: bool
    ) -> list[Reply | Refused]:
        replies: list[Reply | Refused] = [None] * len(commands)
        unsettled: Iterable[int] = range(len(commands))
        backoff = patient_backoff(self._bounds)
        while True:
            for index, reply in await self._round(commands, slots, unsettled, more_seconds, again=again):
                replies[index] = reply
            if is_settled(replies) or not await backoff.wait():
                return replies
            # Send all commands of the slot again, because the reads of one session in one call keep their order.
            retried = {slot for slot, reply in zip(slots, replies, strict=True) if not is_settled((reply,))}
            unsettled = [index for index, slot in enumerate(slots) if slot in retried]

    async def _round(
        self,
        commands: Sequence[Sequence[Argument]],
        slots: Sequence[int],
        unsettled: Iterable[int],
        more_seconds: float,
        *,
        again: bool,
    ) -> list[tuple[int, Reply | Refused]]:
        """Send the unsettled commands, to all servers at the same time. Return each reply with the command's index."""
        shares: dict[Endpoint, list[int]] = defaultdict(list)
        found: list[tuple[int, Reply | Refused]] = []
        for index in unsettled:
            try:
                shares[await self._cluster.owner(slots[index])].append(index)
            except Refused as refusal:
                found.append((index, refusal))
        faults: list[BusError] = []

        async def send(server: Endpoint, share: list[int]) -> None:
            try:
                asked = [commands[index] for index in share]
                replies = await self._pool(server).attempt(asked, more_seconds, again=again)
                found.extend(zip(share, replies, strict=True))
            except Unavailable as fault:
                self._cluster.doubt()
                faults.append(fault)
            except BusError as fault:  # raised again below, outside of the task group
                faults.append(fault)

        if len(shares) == 1:
            await send(*shares.popitem())
        else:
            async with anyio.create_task_group() as tasks:
                for server, share in shares.items():
                    tasks.start_soon(partial(send, server, share))
        if faults:
            raise faults[0]
        return found

    def _pool(self, server: Endpoint) -> ConnectionPool:
        if self._is_closed:
            raise Closed("bus")
        address = server.host, server.port
        if address not in self._pools:
            self._pools[address] = ConnectionPool(NodeRoute(self._cluster, server), self._limit, self._bounds)
        return self._pools[address]
