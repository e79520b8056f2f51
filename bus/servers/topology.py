"""Find the servers that a bus URL names, also those of a cluster and of Sentinels, and the routes to these servers.

    redis://host:port/db        rediss://…        unix:///path     one server
    redis+sentinel://host:port,host:port/service                  the primary that Sentinels watch over
    redis+cluster://host:port,host:port/          rediss+cluster   a cluster

A *shard* is the part of a bus that one publisher, one hub and one reader of a consumer serve. On a single server it is
the whole bus, on a cluster one bucket.

A cluster's server is found by the slot of a key, and redirects are followed. A primary is looked up for each
connection, because a failover changes it.
"""

from __future__ import annotations

import re
from binascii import crc_hqx
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Protocol, cast
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit
from weakref import WeakSet

import anyio

from lanebus.bus.concurrency import BusOrigin
from lanebus.bus.errors import (
    BusError,
    Closed,
    LoginRefused,
    Redirected,
    Refused,
    SetupError,
    Unavailable,
    Unconnectable,
)
from lanebus.bus.servers.calls import Argument, ConnectionBounds, Reply, answered
from lanebus.bus.servers.connection import (
    Connection,
    ConnectionPool,
    FixedRouteState,
    Pool,
    Route,
    is_settled,
    patient_backoff,
)
from lanebus.bus.servers.endpoint import Endpoint, check_login

SENTINEL_PORT = 26_379

SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")


class Topology(Protocol):
    """The servers of one bus."""

    @property
    def is_one(self) -> bool:
        """Whether a single server holds all keys, so that the whole bus is one shard."""
        ...

    def route(self, key: str) -> Route:
        """Return the route to the server that holds a key."""
        ...

    def pool(self, limit: int = 8) -> Pool:
        """Return a pool of connections for short calls to all servers, with at most `limit` connections to each."""
        ...

    async def primaries(self) -> list[Endpoint]:
        """Return the present primary of each part of the bus, for questions to one server.

        Raises:
            Unavailable: the servers did not name them.
            SetupError: the URL names no such service or cluster.
        """
        ...

    async def watch(self) -> None:
        """Leave servers that no longer serve their keys, until cancelled. Return at once if the servers say so
        themselves."""
        ...


class OneServer:
    """The `Topology` of a single server, or of the current primary that Sentinels name."""

    is_one = True

    def __init__(self, route: Endpoint | SentinelRoute, bounds: ConnectionBounds | None = None) -> None:
        self._route, self._bounds = route, bounds

    def route(self, key: str) -> Route:
        """See `Topology`."""
        del key
        return self._route

    def pool(self, limit: int = 8) -> Pool:
        """See `Topology`."""
        return ConnectionPool(self._route, limit, self._bounds)

    async def primaries(self) -> list[Endpoint]:
        """See `Topology`."""
        return [await self._route.primary() if isinstance(self._route, SentinelRoute) else self._route]

    async def watch(self) -> None:
        """See `Topology`."""
        if isinstance(self._route, SentinelRoute):
            await self._route.watch()


class ManyServers:
    """The `Topology` of a cluster."""

    is_one = False

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def route(self, key: str) -> Route:
        """See `Topology`."""
        return self._cluster.route(key)

    def pool(self, limit: int = 8) -> Pool:
        """See `Topology`."""
        return ClusterPool(self._cluster, limit)

    async def primaries(self) -> list[Endpoint]:
        """See `Topology`."""
        return await self._cluster.primaries()

    async def watch(self) -> None:
        """See `Topology`."""


def topology_at(url: str, bounds: ConnectionBounds | None = None) -> Topology:
    """Return the servers that a URL names. Does no I/O.

    Args:
        url: the URL, in one of the forms that `Bus.open` describes.
        bounds: timeouts of connections; None means the defaults.

    Raises:
        SetupError: the URL is invalid.
    """
    scheme, slashes, _ = url.partition("://")
    if not slashes or scheme.lower() not in SCHEMES:
        raise SetupError(
            "server URL: unknown scheme", f"begin with one of {', '.join(f'{each}://' for each in SCHEMES)}"
        )
    check_login(url)
    match scheme.lower():
        case "redis+cluster" | "rediss+cluster":
            return ManyServers(_cluster(url, bounds))
        case "redis+sentinel" | "rediss+sentinel":
            return OneServer(_sentinel(url, bounds), bounds)
        case _:
            return OneServer(Endpoint(url, bounds), bounds)


def _cluster(url: str, bounds: ConnectionBounds | None) -> Cluster:
    parts = _split(url)
    seeds = _servers(parts, 6379, _query(parts), bounds)
    if parts.path.strip("/") not in {"", "0"} or seeds[0].database:
        raise SetupError("server URL: a cluster has only database 0", "leave out what follows the hosts")
    return Cluster(seeds)


def _sentinel(url: str, bounds: ConnectionBounds | None) -> SentinelRoute:
    parts = _split(url)
    query = _query(parts)
    service = parts.path.strip("/")
    if not service or "/" in service:
        raise SetupError(
            "server URL: one service has to follow the hosts", "write redis+sentinel://host:port,host:port/service"
        )
    user, password = (query.pop(f"sentinel_{part}", "") for part in ("username", "password"))
    file = query.pop("sentinel_password_file", None)
    primary = _servers(parts, SENTINEL_PORT, query, bounds)[0]
    for name in ("db", "username", "password", "password_file"):  # a Sentinel has no databases, and users of its own
        query.pop(name, None)
    if file is not None:
        query["password_file"] = file
    login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user or password else ""
    return SentinelRoute(_servers(parts, SENTINEL_PORT, query, bounds, login), service, primary)


def _split(url: str) -> SplitResult:
    """Split a URL with several hosts. Newer versions of `urlsplit` alone refuse such a URL with IPv6 addresses."""
    scheme, _, rest = url.partition("://")
    hosts = re.split("[/?#]", rest, maxsplit=1)[0]
    return urlsplit(f"{scheme}://hosts{rest[len(hosts) :]}")._replace(netloc=hosts)


def _query(parts: SplitResult) -> dict[str, str]:
    return dict(parse_qsl(parts.query, keep_blank_values=True))


def _servers(
    parts: SplitResult,
    port: int,
    query: Mapping[str, str],
    bounds: ConnectionBounds | None,
    login: str | None = None,
) -> list[Endpoint]:
    """Return the endpoint of each host in a URL.

    Args:
        parts: the URL.
        port: port of a host for which the URL gives no port.
        query: options of the endpoints.
        bounds: timeouts of the endpoints.
        login: `user:password@` to use instead of the URL's. None uses the URL's.
    """
    scheme = parts.scheme.partition("+")[0]
    own, at, hosts = parts.netloc.rpartition("@")
    found: list[Endpoint] = []
    for host in hosts.split(","):
        if not host.partition(":")[0]:
            raise SetupError("server URL: a host is missing", "write host:port, separated by commas")
        address = host if ":" in host.rpartition("]")[2] else f"{host}:{port}"
        found.append(
            Endpoint(f"{scheme}://{own + at if login is None else login}{address}/?{urlencode(query)}", bounds)
        )
    return found


# Find servers that change: those of a cluster, and the primary that Sentinels name.


# Find the server of a cluster that holds a key, and follow the redirects of the cluster's servers.
#
# The client library's routing is not used, because it sends ASKING and the redirected command separately. Here an ASK
# redirect sends only one command to the importing server, with ASKING in the same write, on a connection that is closed
# afterwards. A session's keys migrate one by one, so a connection that stayed open would see only some of the keys.


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

    def route(self, key: str) -> SlotRoute:
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

    def _state(self, slot: int, server: Endpoint) -> ClusterRouteState:
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


# Find the cluster slot of a command. Pure. Source: the Redis Cluster specification.

SLOTS = 16_384

_KEY_PLACES = {"EVAL": 3, "EVALSHA": 3, "MEMORY": 2, "OBJECT": 2, "XGROUP": 2, "XINFO": 2}
_KEYLESS = frozenset({"ACL", "BGREWRITEAOF", "CLIENT", "CONFIG", "INFO", "PING", "SCRIPT", "TIME", "WAIT", "WAITAOF"})


def key_of(command: Sequence[Argument]) -> str:
    """Return the first key of a command; "" if the command has no key, so that any server can execute it."""
    name = command[0]
    if name in _KEYLESS:
        return ""
    if name in {"XREAD", "XREADGROUP"}:
        return str(command[command.index("STREAMS") + 1])
    return str(command[_KEY_PLACES.get(str(name), 1)])


def slot_of(key: str) -> int:
    """Return the slot of a key: CRC-16/XMODEM of the text between its first braces, or of the whole key."""
    start = key.find("{")
    end = key.find("}", start + 1)
    tag = key[start + 1 : end] if start >= 0 and end > start + 1 else key
    return crc_hqx(tag.encode(), 0) % SLOTS


# Connect to the primary that Sentinels name. It is looked up for each connection, because a failover changes it.
#
# A former primary that Sentinels cannot reach goes on answering its clients. So a bus also watches the Sentinels, and
# leaves the old primary as soon as one of them has learned of a new one. Entries that the old primary has acknowledged
# meanwhile are lost: the next publish, and each follower, raises `LogRolledBack`.


class SentinelRoute:
    """The `Route` to the primary of a service.

    If one connection shows that the primary was demoted, all connections of the route are broken.
    """

    def __init__(self, sentinels: Sequence[Endpoint], service: str, primary: Endpoint) -> None:
        """
        Args:
            sentinels: the Sentinels to ask.
            service: name of the service.
            primary: an endpoint with the user, password and settings of primaries. Its address is not used.
        """
        self._sentinels, self._service, self._primary = list(sentinels), service, primary
        self._address: tuple[str, int] | None = None
        self._state = FixedRouteState()
        self._connections = WeakSet[Connection]()
        self._answers: dict[Endpoint, tuple[str, int]] = {}
        """the last address that each Sentinel named to `watch`"""

    @property
    def address(self) -> str:
        """See `ServerRoute`. The address of the primary that the newest connection looked up."""
        return "" if self._address is None else self._primary.at(*self._address).address

    async def connect(self) -> Connection:
        """See `Route`.

        Raises:
            SetupError: no Sentinel knows the service, and no Sentinel ever knew it.
        """
        address = await self._look_up()
        if address != self._address or self._state.is_over:
            self._leave()
            self._address, self._state = address, FixedRouteState()
        connection = await self._primary.at(*address).connect(self._state)
        self._connections.add(connection)
        try:
            with anyio.fail_after(self._primary.bounds.lookup_seconds):
                (role, *_) = cast("Sequence[Reply]", await connection.call("ROLE"))
            if role != b"master":
                raise Unavailable("server: the Sentinels name a server that is not a primary yet")
        except TimeoutError:
            await connection.close()
            raise Unavailable("server: the primary did not answer") from None
        except BaseException:
            await connection.close()
            raise
        return connection

    async def primary(self) -> Endpoint:
        """Return the primary that the Sentinels name. Raises the errors of `connect`."""
        return self._primary.at(*await self._look_up())

    async def watch(self) -> None:
        """Ask each Sentinel for the primary every `ConnectionBounds.watch_seconds`, until cancelled.

        A Sentinel that does not answer is asked again. While none answers, the connections are kept.
        """
        async with anyio.create_task_group() as tasks:
            for sentinel in self._sentinels:
                tasks.start_soon(self._watch, sentinel)

    async def _watch(self, sentinel: Endpoint) -> None:
        connection: Connection | None = None
        bounds = self._primary.bounds
        try:
            while True:
                await anyio.sleep(bounds.watch_seconds)
                try:
                    with anyio.fail_after(bounds.lookup_seconds):
                        connection = await _open(sentinel, connection)
                        reply = await connection.call(*self._question)
                except (TimeoutError, Unavailable, SetupError):
                    continue
                if (address := _address(sentinel, reply)) is not None:
                    self._note(sentinel, address)
        finally:
            if connection is not None:
                await connection.close()

    def _note(self, sentinel: Endpoint, address: tuple[str, int]) -> None:
        """Leave the primary if a Sentinel has learned of another one since its last answer.

        A Sentinel changes its answer only for a newer configuration. One that is cut off from the others repeats its
        old answer, which does not count. Of first answers, those of most Sentinels count.
        """
        previous = self._answers.get(sentinel)
        self._answers[sentinel] = address
        if address in {previous, self._address} or self._address is None:
            return
        if previous is None and 2 * [*self._answers.values()].count(address) <= len(self._sentinels):
            return
        self._prefer(sentinel)
        self._leave()

    def _leave(self) -> None:
        """Break all connections to the present primary, also those that wait for an answer."""
        self._state.is_over = True
        for connection in tuple(self._connections):
            connection.leave()
        self._connections.clear()

    def _prefer(self, sentinel: Endpoint) -> None:
        """Ask this Sentinel first from now on."""
        self._sentinels.remove(sentinel)
        self._sentinels.insert(0, sentinel)

    @property
    def _question(self) -> tuple[str, str, str]:
        return ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service)

    async def _look_up(self) -> tuple[str, int]:
        """Return the primary's address from the first Sentinel that knows it. Later calls ask this Sentinel first."""
        unreachable = 0
        fault: LoginRefused | Unconnectable | None = None
        for sentinel in list(self._sentinels):
            try:
                reply = await sentinel.look_up(*self._question)
            except LoginRefused as refusal:
                fault = LoginRefused(refusal.code, "a Sentinel", password_file=refusal.password_file)
                continue
            except Unconnectable as lasting:
                fault = lasting
                continue
            except Unavailable:
                unreachable += 1
                continue
            if (address := _address(sentinel, reply)) is not None:
                self._prefer(sentinel)
                return address
        if fault is not None:
            raise fault
        if unreachable or self._address is not None:  # a known service that is gone: Sentinels are being reconfigured
            raise Unavailable(
                f"no Sentinel of {len(self._sentinels)} names the primary of {self._service!r}", "check that they run"
            )
        raise SetupError(f"the Sentinels know no service {self._service!r}", "check the name in the server URL")


def _address(sentinel: Endpoint, reply: Reply) -> tuple[str, int] | None:
    """Return the primary's address in a Sentinel's reply; None if the Sentinel does not know the service."""
    match reply:
        case [bytes() as host, bytes() as port]:
            return host.decode() or sentinel.host, int(port)
        case _:
            return None


async def _open(endpoint: Endpoint, connection: Connection | None) -> Connection:
    """Return the connection, or a new one if it is broken."""
    if connection is None or connection.is_broken:
        if connection is not None:
            await connection.close()
        return await endpoint.connect()
    return connection
