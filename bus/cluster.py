"""A cluster: which server holds a key now, and what its servers say when that has changed.

Own routing, as the client's sends ASKING apart from its command. Only the very command that was answered with ASK goes
to the server that takes the slot over, together with ASKING in one write on a link that is not kept: a session's keys
go over one by one, and who stayed there would see a part of them.
"""

from collections.abc import Sequence
from typing import cast

import anyio

from bus.errors import LoginRefused, Redirected, Refused, SetupError, Unavailable
from bus.links import Argument, Link, Reply
from bus.place import Server
from bus.slots import SLOTS, slot_of

__all__ = ("Cluster", "NodeRoute", "SlotFinding", "SlotRoute")


class Cluster:
    """The servers of a cluster, and the map of its slots. Making it does no I/O."""

    def __init__(self, seeds: Sequence[Server]) -> None:
        """Takes servers to ask for the map at first; one that is down is no harm while another answers."""
        self._seeds = list(seeds)
        self.bounds = self._seeds[0].bounds
        """how long connections are waited for"""
        self._servers: dict[tuple[str, int], Server] = {}
        self._owners: list[Server | None] = [None] * SLOTS
        self._findings: dict[int, SlotFinding] = {}
        self._reading = anyio.Lock()
        self._is_stale = True
        self._read_at = -self.bounds.lookup_pause_seconds
        self._turn = 0

    def route(self, key: str) -> "SlotRoute":
        """The way to the server that holds a key."""
        return SlotRoute(self, slot_of(key))

    async def owner(self, slot: int) -> Server:
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

    async def primaries(self) -> list[Server]:
        """Every server that holds a slot; raises as `owner` does."""
        if self._is_stale:
            await self._read_map()
        return list({(owner.host, owner.port): owner for owner in self._owners if owner is not None}.values())

    def finding(self, slot: int, server: Server) -> "SlotFinding":
        """What the links of one slot have in common, as long as its owner is this one."""
        known = self._findings.get(slot)
        if known is None or known.is_over or known.server is not server:
            if known is not None:
                known.is_over = True
            known = self._findings[slot] = SlotFinding(self, server)
        return known

    def moved(self, slot: int, host: str, port: int) -> None:
        """A server has said where a slot is now; it knows best."""
        self._owners[slot] = self.server(host, port)

    def doubt(self) -> None:
        """The map is wrong somewhere: read it again before it is used."""
        self._is_stale = True

    def server(self, host: str, port: int) -> Server:
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
                    with anyio.fail_after(server.bounds.lookup_seconds):
                        ranges = await _ask_map(server)
                except LoginRefused as refusal:
                    fault = refusal
                    continue
                except (Unavailable, TimeoutError):
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


async def _ask_map(server: Server) -> list[tuple[int, int, str, int]]:
    """The ranges of slots with the address of each one's primary, as one server knows them."""
    link = await server.connect()
    try:
        reply = await link.call("CLUSTER", "SLOTS")
    except Refused as refusal:
        if refusal.code in {"NOAUTH", "NOPERM", "WRONGPASS"}:
            raise LoginRefused(refusal.code) from None
        if refusal.code == "ERR":
            raise SetupError(f"server URL: {server.host}:{server.port} is no server of a cluster") from None
        raise
    finally:
        await link.close()
    ranges: list[tuple[int, int, str, int]] = []
    for first, last, primary, *_ in cast("list[tuple[int, int, tuple[bytes | None, int]]]", reply):
        ranges.append((first, last, (primary[0] or b"").decode().strip("?") or server.host, primary[1]))
    return ranges


class SlotFinding:
    """See `Finding`: that a server holds a slot, or several."""

    def __init__(self, cluster: Cluster, server: Server) -> None:
        self._cluster, self.server = cluster, server
        self.is_over = False

    def refute(self, refusal: Refused) -> None:
        """See `Finding`."""
        self.is_over = True
        if isinstance(refusal, Redirected):
            # A server that does not know its own name means the host it was asked at.
            self._cluster.moved(refusal.slot, refusal.host or self.server.host, refusal.port)
        else:
            self._cluster.doubt()

    async def ask(self, redirect: Redirected, command: Sequence[Argument]) -> Reply | Refused:
        """See `Finding`."""
        link = await self._cluster.server(redirect.host or self.server.host, redirect.port).connect()
        try:
            return (await link.call_many((("ASKING",), command)))[1]
        finally:
            await link.close()


class SlotRoute:
    """The `Route` to the server that holds a slot."""

    def __init__(self, cluster: Cluster, slot: int) -> None:
        self._cluster, self._slot = cluster, slot

    async def connect(self) -> Link:
        """See `Route`; raises as `Cluster.owner` does too."""
        server = await self._cluster.owner(self._slot)
        try:
            return await server.connect(self._cluster.finding(self._slot, server))
        except Unavailable:
            self._cluster.doubt()
            raise


class NodeRoute:
    """The `Route` to one server of a cluster, whatever it holds."""

    def __init__(self, cluster: Cluster, server: Server) -> None:
        self._cluster, self._server = cluster, server

    async def connect(self) -> Link:
        """See `Route`."""
        try:
            return await self._server.connect(SlotFinding(self._cluster, self._server))
        except Unavailable:
            self._cluster.doubt()
            raise
