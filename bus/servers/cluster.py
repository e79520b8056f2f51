"""A cluster: which server holds a key now, and what its servers say when that has changed.

Own routing, as the client's sends ASKING apart from its command. Only the very command that was answered with ASK goes
to the server that takes the slot over, together with ASKING in one write on a link that is not kept: a session's keys
go over one by one, and who stayed there would see a part of them.
"""

from collections.abc import Sequence
from typing import cast

import anyio

from lanebus.bus.errors import LoginRefused, Redirected, Refused, SetupError, Unavailable
from lanebus.bus.servers.connection import Connection
from lanebus.bus.servers.endpoint import Endpoint
from lanebus.bus.servers.replies import Argument, Reply
from lanebus.bus.servers.slots import SLOTS, slot_of

__all__ = ("Cluster", "NodeRoute", "SlotRoute")


class Cluster:
    """The servers of a cluster, and the map of its slots. Making it does no I/O."""

    def __init__(self, seeds: Sequence[Endpoint]) -> None:
        """Takes servers to ask for the map at first; one that is down is no harm while another answers."""
        self._seeds = list(seeds)
        self.bounds = self._seeds[0].bounds
        """how long connections are waited for"""
        self._servers: dict[tuple[str, int], Endpoint] = {}
        self._owners: list[Endpoint | None] = [None] * SLOTS
        self._states: dict[int, ClusterRouteState] = {}
        self._reading = anyio.Lock()
        self._is_stale = True
        self._read_at = -self.bounds.lookup_pause_seconds
        self._turn = 0

    def route(self, key: str) -> "SlotRoute":
        """The way to the server that holds a key."""
        return SlotRoute(self, slot_of(key))

    async def owner(self, slot: int) -> Endpoint:
        """The server that holds a slot.

        Raises:
            Refused: none does, by the map; code CLUSTERDOWN.
            Unavailable: no server tells the map.
            LoginRefused: they want another user or password.
            SetupError: there is no cluster.
        """
        if self._is_stale:
            await self._read_map()
        owner = self._owners[slot]
        if owner is None:
            self._is_stale = True
            raise Refused("CLUSTERDOWN")
        return owner

    async def primaries(self) -> list[Endpoint]:
        """Every server that holds a slot; raises as `owner` does."""
        if self._is_stale:
            await self._read_map()
        return list({(owner.host, owner.port): owner for owner in self._owners if owner is not None}.values())

    async def connect(self, server: Endpoint, slot: int | None = None) -> Connection:
        """A new link to a server.

        Args:
            slot: the one that the link is for: it shares the slot's state with the others. None is any.

        Raises:
            Unavailable, LoginRefused: as for `Endpoint.connect`.
        """
        state = ClusterRouteState(self, server) if slot is None else self._state(slot, server)
        try:
            return await server.connect(state)
        except Unavailable:
            self.doubt()
            raise

    def _state(self, slot: int, server: Endpoint) -> "ClusterRouteState":
        """What the links of one slot share, as long as its owner is this one."""
        known = self._states.get(slot)
        if known is None or known.is_over or known.server is not server:
            if known is not None:
                known.is_over = True
            known = self._states[slot] = ClusterRouteState(self, server)
        return known

    def moved(self, slot: int, host: str, port: int) -> None:
        """A server has said where a slot is now; it knows best."""
        self._owners[slot] = self.server(host, port)

    def doubt(self) -> None:
        """The map is wrong somewhere: read it again before it is used."""
        self._is_stale = True

    def server(self, host: str, port: int) -> Endpoint:
        """The server at an address; the same object each time."""
        return self._servers.setdefault((host, port), self._seeds[0].at(host, port))

    async def _read_map(self) -> None:
        async with self._reading:
            if not self._is_stale:
                return  # another one has, meanwhile
            await anyio.sleep(max(0.0, self._read_at + self.bounds.lookup_pause_seconds - anyio.current_time()))
            self._turn += 1  # each time another one first: one that is cut off from the others has an old map
            known = list({server: None for server in self._owners if server is not None})
            turn = self._turn % len(known) if known else 0
            fault: LoginRefused | None = None
            for server in [*known[turn:], *known[:turn], *self._seeds]:
                try:
                    ranges = await _ask_map(server)
                except LoginRefused as refusal:
                    fault = refusal
                    continue
                except Unavailable:
                    continue
                except SetupError:
                    if not known:
                        raise
                    continue  # it was one, and has been replaced by something else
                self._owners = [None] * SLOTS
                for first, last, host, port in ranges:
                    self._owners[first : last + 1] = [self.server(host, port)] * (last + 1 - first)
                self._is_stale, self._read_at = False, anyio.current_time()
                return
            raise fault or Unavailable(f"cluster: none of {len(self._seeds)} servers answers")


async def _ask_map(server: Endpoint) -> list[tuple[int, int, str, int]]:
    """The ranges of slots with the address of each one's primary, as one server knows them."""
    try:
        reply = await server.look_up("CLUSTER", "SLOTS")
    except Refused as refusal:
        if refusal.code == "ERR":
            raise SetupError(f"server URL: {server.host}:{server.port} is no server of a cluster") from None
        raise
    ranges: list[tuple[int, int, str, int]] = []
    for first, last, primary, *_ in cast("list[tuple[int, int, tuple[bytes | None, int]]]", reply):
        ranges.append((first, last, (primary[0] or b"").decode().strip("?") or server.host, primary[1]))
    return ranges


class ClusterRouteState:
    """See `RouteState`: that a server holds a slot, or several."""

    def __init__(self, cluster: Cluster, server: Endpoint) -> None:
        self._cluster, self.server = cluster, server
        self.is_over = False

    def invalidate(self, refusal: Refused) -> None:
        """See `RouteState`."""
        self.is_over = True
        if isinstance(refusal, Redirected):
            # A server that does not know its own name means the host it was asked at.
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
        """See `Route`; raises as `Cluster.owner` does too."""
        return await self._cluster.connect(await self._cluster.owner(self._slot), self._slot)


class NodeRoute:
    """The `Route` to one server of a cluster, whatever it holds."""

    def __init__(self, cluster: Cluster, server: Endpoint) -> None:
        self._cluster, self._server = cluster, server

    async def connect(self) -> Connection:
        """See `Route`."""
        return await self._cluster.connect(self._server)
