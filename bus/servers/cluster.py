"""Find the server of a cluster that holds a key, and follow the redirects of the cluster's servers.

The client library's routing is not used, because it sends ASKING and the redirected command separately. Here an ASK
redirect sends only one command to the importing server, with ASKING in the same write, on a connection that is closed
afterwards. A session's keys migrate one by one, so a connection that stayed open would see only some of the keys.
"""

from collections.abc import Sequence
from typing import cast

import anyio

from lanebus.bus.errors import LoginRefused, Redirected, Refused, SetupError, Unavailable, Unconnectable
from lanebus.bus.origin import BusOrigin
from lanebus.bus.servers.connection import Connection
from lanebus.bus.servers.endpoint import Endpoint
from lanebus.bus.servers.replies import Argument, Reply
from lanebus.bus.servers.slots import SLOTS, slot_of

__all__ = ("Cluster", "NodeRoute", "SlotRoute")


class Cluster:
    """The servers of a cluster and its slot map. Creating it does no I/O."""

    def __init__(self, seeds: Sequence[Endpoint]) -> None:
        """
        Args:
            seeds: servers to ask for the first slot map. At least one of them has to answer.
        """
        self._seeds = list(seeds)
        self.bounds = self._seeds[0].bounds
        """timeouts and numbers of connections"""
        self._servers: dict[tuple[str, int], Endpoint] = {}
        self._owners: list[Endpoint | None] = [None] * SLOTS
        self._states: dict[int, ClusterRouteState] = {}
        self._reading, self._origin = anyio.Lock(), BusOrigin()
        self._is_stale = True
        self._read_at = -self.bounds.lookup_pause_seconds
        self._turn = 0

    def route(self, key: str) -> "SlotRoute":
        """Return the route to the server that holds a key."""
        return SlotRoute(self, slot_of(key))

    async def owner(self, slot: int) -> Endpoint:
        """Return the server that holds a slot.

        Raises:
            Refused: no server holds the slot, according to the slot map. The code is CLUSTERDOWN.
            Unavailable: no server returned the slot map.
            LoginRefused: the servers refused the user or password.
            SetupError: the server is not part of a cluster.
            OpenedElsewhere: this is another process or event loop than that of the bus.
        """
        self._origin.check_running()
        if self._is_stale:
            await self._read_map()
        owner = self._owners[slot]
        if owner is None:
            self._is_stale = True
            raise Refused("CLUSTERDOWN")
        return owner

    async def primaries(self) -> list[Endpoint]:
        """Return every server that holds a slot. Raises the errors of `owner`."""
        self._origin.check_running()
        if self._is_stale:
            await self._read_map()
        return list({(owner.host, owner.port): owner for owner in self._owners if owner is not None}.values())

    async def connect(self, server: Endpoint, slot: int | None = None) -> Connection:
        """Open a connection to a server.

        Args:
            server: the server to connect to.
            slot: the only slot that the connection is used for. All connections for a slot share its routing state.
                None means a connection for any slot.

        Raises:
            Unavailable: as for `Endpoint.connect`.
            LoginRefused: as for `Endpoint.connect`.
        """
        state = ClusterRouteState(self, server) if slot is None else self._state(slot, server)
        try:
            return await server.connect(state)
        except Unavailable:
            self.doubt()
            raise

    def _state(self, slot: int, server: Endpoint) -> "ClusterRouteState":
        """Return the routing state that the connections of a slot share; a new state if the owner has changed."""
        known = self._states.get(slot)
        if known is None or known.is_over or known.server is not server:
            if known is not None:
                known.is_over = True
            known = self._states[slot] = ClusterRouteState(self, server)
        return known

    def moved(self, slot: int, host: str, port: int) -> None:
        """Record the new owner of a slot. A MOVED redirect named this owner."""
        self._owners[slot] = self.server(host, port)

    def doubt(self) -> None:
        """Mark the slot map as stale, so that it is read again before its next use."""
        self._is_stale = True

    def server(self, host: str, port: int) -> Endpoint:
        """Return the server at an address. The same address always returns the same object."""
        return self._servers.setdefault((host, port), self._seeds[0].at(host, port))

    async def _read_map(self) -> None:
        async with self._reading:
            if not self._is_stale:
                return  # a concurrent caller has read the slot map
            await anyio.sleep(max(0.0, self._read_at + self.bounds.lookup_pause_seconds - anyio.current_time()))
            self._turn += 1  # start with another server each time, because a partitioned server has an old map
            known = list({server: None for server in self._owners if server is not None})
            turn = self._turn % len(known) if known else 0
            fault: LoginRefused | Unconnectable | None = None
            for server in [*known[turn:], *known[:turn], *self._seeds]:
                try:
                    ranges = await _ask_map(server)
                except (LoginRefused, Unconnectable) as lasting:
                    fault = lasting
                    continue
                except Unavailable:
                    continue
                except SetupError:
                    if not known:
                        raise
                    continue  # a server that is in no cluster has taken over this address
                self._owners = [None] * SLOTS
                for first, last, host, port in ranges:
                    self._owners[first : last + 1] = [self.server(host, port)] * (last + 1 - first)
                self._is_stale, self._read_at = False, anyio.current_time()
                return
            raise fault or Unavailable(f"cluster: none of {len(self._seeds)} servers answers", "check that they run")


async def _ask_map(server: Endpoint) -> list[tuple[int, int, str, int]]:
    """Return the slot ranges that one server knows, each with the address of its primary."""
    try:
        reply = await server.look_up("CLUSTER", "SLOTS")
    except Refused as refusal:
        if refusal.code == "ERR":
            raise SetupError(
                f"server URL: {server.host}:{server.port} is not in a cluster", "use redis:// for it"
            ) from None
        raise
    ranges: list[tuple[int, int, str, int]] = []
    for first, last, primary, *_ in cast("list[tuple[int, int, tuple[bytes | None, int]]]", reply):
        ranges.append((first, last, (primary[0] or b"").decode().strip("?") or server.host, primary[1]))
    return ranges


class ClusterRouteState:
    """The `RouteState` of a server that holds some slots."""

    def __init__(self, cluster: Cluster, server: Endpoint) -> None:
        self._cluster, self.server = cluster, server
        self.is_over = False

    def invalidate(self, refusal: Refused) -> None:
        """See `RouteState`."""
        self.is_over = True
        if isinstance(refusal, Redirected):
            # The host is empty if the server does not know its own address.
            self._cluster.moved(refusal.slot, refusal.host or self.server.host, refusal.port)
        else:
            self._cluster.doubt()

    async def ask(self, redirect: Redirected, command: Sequence[Argument]) -> Reply | Refused:
        """See `RouteState`."""
        server = self._cluster.server(redirect.host or self.server.host, redirect.port)
        return (await server.ask(("ASKING",), command))[1]


class SlotRoute:
    """The `Route` to the server that holds a slot."""

    def __init__(self, cluster: Cluster, slot: int) -> None:
        self._cluster, self._slot = cluster, slot

    async def connect(self) -> Connection:
        """See `Route`. Also raises the errors of `Cluster.owner`."""
        return await self._cluster.connect(await self._cluster.owner(self._slot), self._slot)


class NodeRoute:
    """The `Route` to one server of a cluster, regardless of the server's slots."""

    def __init__(self, cluster: Cluster, server: Endpoint) -> None:
        self._cluster, self._server = cluster, server

    @property
    def address(self) -> str:
        """See `ServerRoute`."""
        return self._server.address

    async def connect(self) -> Connection:
        """See `Route`."""
        return await self._cluster.connect(self._server)
