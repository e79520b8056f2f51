"""Find the servers that a bus URL names, and the routes to these servers.

    redis://host:port/db        rediss://…        unix:///path     one server
    redis+sentinel://host:port,host:port/service                  the primary that Sentinels watch over
    redis+cluster://host:port,host:port/          rediss+cluster   a cluster

A *shard* is the part of a bus that one publisher, one hub and one reader of a consumer serve. On a single server it is
the whole bus, on a cluster one bucket.
"""

import re
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

from lanebus.bus.errors import SetupError
from lanebus.bus.servers.calls import ConnectionBounds
from lanebus.bus.servers.connection import ConnectionPool, Pool, Route
from lanebus.bus.servers.discovery import Cluster, ClusterPool, SentinelRoute
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
