"""Where the servers of a bus are: what a URL names, and how each part of the bus finds its own.

    redis://host:port/db        rediss://…        unix:///path     one server
    redis+sentinel://host:port,host:port/service                  the primary that Sentinels watch over
    redis+cluster://host:port,host:port/          rediss+cluster   a cluster

A *shard* is what one publisher, one hub and one consumer's reader work on: everything, where one server holds all; one
bucket, in a cluster.
"""

import re
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

from lanebus.bus.errors import SetupError
from lanebus.bus.servers.bounds import ConnectionBounds
from lanebus.bus.servers.cluster import Cluster
from lanebus.bus.servers.cluster_pool import ClusterPool
from lanebus.bus.servers.connection import Connection, Route
from lanebus.bus.servers.endpoint import Endpoint
from lanebus.bus.servers.pool import ConnectionPool, Pool
from lanebus.bus.servers.replies import Argument, Reply
from lanebus.bus.servers.sentinel import SentinelRoute

__all__ = (
    "Argument",
    "Connection",
    "ConnectionPool",
    "Endpoint",
    "OneServer",
    "Pool",
    "Reply",
    "Route",
    "Topology",
    "topology_at",
)

SENTINEL_PORT = 26_379


class Topology(Protocol):
    """The servers of one bus."""

    @property
    def is_one(self) -> bool:
        """One server holds all keys at a time: the whole bus is one shard."""
        ...

    def route(self, key: str) -> Route:
        """The way to the server that holds a key."""
        ...

    def pool(self, limit: int = 8) -> Pool:
        """Links for short calls, to all servers that there are; `limit` to each."""
        ...


class OneServer:
    """The `Topology` of one server: always the same, or whichever is the primary now."""

    is_one = True

    def __init__(self, route: Route, bounds: ConnectionBounds | None = None) -> None:
        self._route, self._bounds = route, bounds

    def route(self, key: str) -> Route:
        """See `Topology`."""
        del key
        return self._route

    def pool(self, limit: int = 8) -> Pool:
        """See `Topology`."""
        return ConnectionPool(self._route, limit, self._bounds)


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


def topology_at(url: str, bounds: ConnectionBounds | None = None) -> Topology:
    """The servers that a URL names; no I/O.

    Args:
        bounds: how long connections are waited for; None is the defaults.

    Raises:
        SetupError: it names none, and what is wrong with it.
    """
    match url.partition("://")[0].lower():
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
        raise SetupError("server URL: a cluster has no database but 0, and nothing else stands behind its hosts")
    return Cluster(seeds)


def _sentinel(url: str, bounds: ConnectionBounds | None) -> SentinelRoute:
    parts = _split(url)
    query = _query(parts)
    service = parts.path.strip("/")
    if not service or "/" in service:
        raise SetupError("server URL: redis+sentinel:// needs the name of one service behind its hosts")
    user, password = (query.pop(f"sentinel_{part}", "") for part in ("username", "password"))
    primary = _servers(parts, SENTINEL_PORT, query, bounds)[0]
    query.pop("db", None)  # a Sentinel has none
    login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user or password else ""
    return SentinelRoute(_servers(parts, SENTINEL_PORT, query, bounds, login), service, primary)


def _split(url: str) -> SplitResult:
    """Split a URL of several hosts. `urlsplit` of newer Pythons refuses an IPv6 address among them."""
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
    """Each host of a URL as a server by itself; `port` is for one that names none, `login` instead of the URL's own."""
    scheme = parts.scheme.partition("+")[0]
    own, at, hosts = parts.netloc.rpartition("@")
    found: list[Endpoint] = []
    for host in hosts.split(","):
        if not host.partition(":")[0]:
            raise SetupError("server URL: a host is missing")
        address = host if ":" in host.rpartition("]")[2] else f"{host}:{port}"
        found.append(
            Endpoint(f"{scheme}://{own + at if login is None else login}{address}/?{urlencode(query)}", bounds)
        )
    return found
