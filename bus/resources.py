"""Start or join the server of a bus, connect, check its settings, and open the media store."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import anyio

from lanebus.bus.bounds import Bounds
from lanebus.bus.embedded.server import open_server
from lanebus.bus.errors import (
    InvalidArgument,
    LoginRefused,
    OldNamespace,
    Refused,
    SetupError,
    Unavailable,
    UnsafeServer,
    require_count,
    require_instance,
    require_methods,
    require_text,
)
from lanebus.bus.log.namespace import SCHEMA, begin_namespace
from lanebus.bus.media.redis_media import RedisMedia
from lanebus.bus.media.store import SharedStore
from lanebus.bus.publishing.limits import Limits
from lanebus.bus.servers.advisories import warn_of_advisories
from lanebus.bus.servers.durability import check_durability, server_infos
from lanebus.bus.servers.transport import warn_of_transport
from lanebus.bus.wire.keys import DEFAULT_AGENT, Keys, check_namespace, is_name

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from lanebus.bus.media.store import MediaStore
    from lanebus.bus.servers.bounds import ConnectionBounds
    from lanebus.bus.servers.pool import Pool
    from lanebus.bus.servers.topology import Topology

__all__ = ("BusResources", "check_options", "check_stored_form", "open_resources")

_OLDEST_REDIS = (7, 0)

_MEDIA = ("put_if_absent", "get", "head", "delete")
_ARCHIVE = ("put_if_absent", "get", "names", "delete", "clear")
_TRACING = ("is_recording", "sending", "received", "processing", "settling")


class BusResources(NamedTuple):
    """The connections, keys and media store of a bus. `open_resources` opens and closes them."""

    topology: Topology
    pool: Pool
    keys: Keys
    media: MediaStore
    agent: str
    """the namespace's default agent"""
    fault: Callable[[], Unavailable | None] | None
    """returns why the embedded server ended, if it is known; None for another server"""


def check_options(
    media: object, archive: object, inline_limit_bytes: object, *, limits: object, bounds: object, tracing: object
) -> None:
    """Raise InvalidArgument if an argument of `Bus.open` has a wrong type, such as a path in place of a store."""
    require_count("inline_limit_bytes", inline_limit_bytes, is_optional=True)
    require_instance("limits", limits, Limits, "pass Limits(…)", is_optional=True)
    require_instance("bounds", bounds, Bounds, "pass Bounds(…)", is_optional=True)
    for name, store, methods in (("media", media, _MEDIA), ("archive", archive, _ARCHIVE)):
        require_methods(name, store, methods, f"pass a store, such as one of `lanebus.{name}`", is_optional=True)
    require_methods(
        "tracing", tracing, _TRACING, "pass what `lanebus.telemetry.otel_tracing()` returns, or leave it out"
    )


@asynccontextmanager
async def open_resources(
    url: str | None, data_dir: Path | str | None, namespace: str, media: MediaStore | None, bounds: Bounds
) -> AsyncGenerator[BusResources, None]:
    """Start or join the server, connect, check the server, and open the media store. Close all in reverse order.

    See `Bus.open` for the arguments and errors.
    """
    # Imported here because the Redis client takes as long to import as the rest of the bus. A program that only needs
    # a message type, or the help of a command, does not load it.
    from lanebus.bus.servers.endpoint import Endpoint  # noqa: PLC0415
    from lanebus.bus.servers.topology import OneServer, topology_at  # noqa: PLC0415

    check_namespace(namespace)
    require_instance("data_dir", data_dir, (str, Path), "pass a path", is_optional=True)
    if data_dir == "":
        raise InvalidArgument("data_dir", data_dir, "pass a path, or None for the default directory")
    require_text("url", url, is_optional=True)
    connection = bounds.connection
    if url is None and data_dir is None:
        url = os.environ.get("LANEBUS_URL") or None
    async with AsyncExitStack() as stack:
        fault = None
        if url is None:
            embedded = await stack.enter_async_context(open_server(None if data_dir is None else Path(data_dir)))
            fault = embedded.fault
            topology: Topology = OneServer(Endpoint.at_socket(str(embedded.socket), connection, fault), connection)
        else:
            topology = topology_at(url, connection)
            warn_of_transport(url)
        pool = topology.pool(connection.pool_connections)
        stack.push_async_callback(pool.close)
        buckets, agent = await _prepare(topology, pool, namespace, connection)
        keys = Keys(namespace, buckets)
        if media is None:
            media_pool = topology.pool(connection.media_connections)
            stack.push_async_callback(media_pool.close)
            media = RedisMedia(media_pool, keys, bounds=bounds.media)
        elif isinstance(media, SharedStore):
            media = media.in_namespace(namespace)
        yield BusResources(topology, pool, keys, media, agent, fault)


_LOGIN = "correct both in the URL: redis://user:password@host:port"


async def _prepare(topology: Topology, pool: Pool, namespace: str, bounds: ConnectionBounds) -> tuple[int, str]:
    """Check the servers, and return the namespace's number of buckets and its default agent.

    If a server answered before, a lost connection is retried with backoff. If no server ever answered, raise at once.
    """
    from lanebus.bus.servers.pool import patient_backoff  # noqa: PLC0415  # imports the client, which is slow

    backoff = patient_backoff(bounds)
    while True:
        try:
            return await _try_prepare(topology, pool, namespace, bounds.loading_pause_seconds)
        except LoginRefused as refusal:
            file = refusal.password_file
            remedy = f"correct the password in {file}, or the user in the URL" if file else _LOGIN
            raise SetupError(refusal.fault, remedy) from None
        except Refused as refusal:
            if refusal.code in {"NOAUTH", "WRONGPASS"}:
                raise SetupError(f"the server refused the user or password: {refusal.code}", _LOGIN) from None
            if refusal.code == "NOPERM":
                remedy = f"log in as a user of namespace {namespace!r}, or name the namespace that the user is for; "
                users = f"`lanebus acl --namespace {namespace}` prints users with all rights that are needed"
                raise SetupError(refusal.fault, remedy + users) from None
            raise
        except Unavailable:
            if not pool.has_connected or not await backoff.wait():
                raise


async def _try_prepare(topology: Topology, pool: Pool, namespace: str, loading_pause: float) -> tuple[int, str]:
    """Check the servers, and return the number of buckets and the default agent.

    The number of buckets is written once per namespace and never changes.
    """
    infos = await _loaded(pool, loading_pause)
    for info in infos:
        _check(info, is_one=topology.is_one)
    await check_durability(pool, infos, Keys(namespace))
    warn_of_advisories(infos)
    buckets, schema, agent = await begin_namespace(pool, Keys(namespace))
    check_stored_form(namespace, buckets=buckets, schema=schema)
    name = DEFAULT_AGENT if agent is None else agent.decode(errors="replace")
    return int(buckets), name if is_name(name) else DEFAULT_AGENT


def check_stored_form(namespace: str, *, buckets: bytes, schema: bytes) -> None:
    """Check that this package reads and writes a namespace with this number of buckets and this schema.

    Raises:
        OldNamespace: an older package wrote the namespace.
        UnsafeServer: a newer package wrote it, or another client has written one of the values.
    """
    for name, value in (("schema", schema), ("buckets", buckets)):
        if not (value.isdigit() and len(value) < 7):
            wanted = "a number: another client has written the namespace's config"
            raise UnsafeServer(name, value.decode(errors="replace")[:80], wanted)
    if int(schema) < SCHEMA:
        raise OldNamespace(namespace, int(schema), SCHEMA)
    if int(schema) > SCHEMA:
        raise UnsafeServer("schema", schema.decode(), f"{SCHEMA}: a newer package wrote this namespace")


async def _loaded(pool: Pool, pause: float) -> list[dict[str, str]]:
    """Wait until every server has loaded its data, and return the `INFO` fields of each."""
    while True:
        infos = [*(await server_infos(pool)).values()]
        if all(info.get("loading", "0") == "0" for info in infos):
            return infos
        await anyio.sleep(pause)


def _check(info: dict[str, str], *, is_one: bool) -> None:
    """Raise UnsafeServer if the bus cannot rely on a server with these `INFO` fields."""
    if is_one and info.get("cluster_enabled") == "1":
        raise UnsafeServer("cluster-enabled", "yes", "a URL redis+cluster://host:port for a cluster")
    version = info.get("valkey_version") or info.get("redis_version", "0.0")
    if tuple(int(part) for part in info.get("redis_version", "0.0").split(".")[:2]) < _OLDEST_REDIS:
        raise UnsafeServer("version", version, "Redis 7.0 or Valkey 8 and newer")
    if (policy := info.get("maxmemory_policy", "noeviction")) != "noeviction":
        raise UnsafeServer("maxmemory-policy", policy, "noeviction: another policy deletes whole sessions")
