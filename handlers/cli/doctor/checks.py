"""Run all checks of `lanebus doctor`."""

import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple, cast
from urllib.parse import unquote, urlsplit

import anyio

from lanebus.bus.embedded.server import open_server
from lanebus.bus.errors import BusError, Refused, UnsafeServer
from lanebus.bus.log.log import Log
from lanebus.bus.log.namespace import NamespaceLog
from lanebus.bus.resources import check_stored_form
from lanebus.bus.servers.durability import check_durability, read_info
from lanebus.bus.servers.endpoint import Endpoint
from lanebus.bus.servers.pool import Pool
from lanebus.bus.servers.replies import Reply, answered
from lanebus.bus.servers.topology import OneServer, Topology, topology_at
from lanebus.bus.servers.transport import transport_risk
from lanebus.bus.wire.keys import Keys, check_namespace
from lanebus.handlers.cli.access import remember
from lanebus.handlers.cli.doctor.finding import Finding, error, ok, warning
from lanebus.handlers.cli.doctor.installation import check_imports, check_versions
from lanebus.handlers.cli.doctor.rights import check_rights
from lanebus.handlers.cli.doctor.server import SETTINGS, ServerFacts, check_clock, check_replica, check_server
from lanebus.handlers.cli.doctor.trial import try_store, try_write
from lanebus.handlers.cli.errors import ServerSilent
from lanebus.handlers.cli.next_step import next_step
from lanebus.handlers.cli.options import Settings

__all__ = ("run_checks",)


async def run_checks(
    settings: Settings, *, seconds: float, writes: bool = False, node_seconds: float = 3.0
) -> list[Finding]:
    """Return the findings on the installation, and on the servers and stores that the settings name.

    Args:
        settings: which bus to look at. The embedded server is started if it does not run.
        seconds: longest time for all questions to the servers, for each store, and for the write.
        writes: whether to publish, read and erase in a namespace of its own, and to write to object stores.
        node_seconds: longest time for all questions to one replica.
    """
    findings = [*check_versions(), *check_imports(Path.cwd())]
    for what, place in (("archive", settings.archive), ("media", settings.media)):
        if place is not None:
            findings.append(await try_store(what, place, seconds=seconds, writes=writes))
    try:
        async with AsyncExitStack() as stack:
            if settings.url is None:
                embedded = await stack.enter_async_context(open_server(settings.data_dir))
                topology: Topology = OneServer(Endpoint.at_socket(str(embedded.socket)))
            else:
                topology = topology_at(settings.url)
            pool = topology.pool(1)
            stack.push_async_callback(pool.close)
            is_reached = False
            with anyio.move_on_after(seconds) as timeout:
                is_reached = await _servers(settings, topology, pool, findings, node_seconds)
            if timeout.cancelled_caught:
                raise ServerSilent(seconds)
            if writes and is_reached:
                findings.append(await try_write(settings, pool, seconds=seconds))
    except BusError as fault:
        findings.append(_fault(fault))
    return findings


def _fault(fault: BusError, node: str = "") -> Finding:
    return error("server", fault.fault, next_step(fault))._replace(node=node)


class _Node(NamedTuple):
    """What one server said."""

    endpoint: Endpoint
    facts: ServerFacts
    replicas: tuple[tuple[str, int], ...]
    """the addresses of its replicas, as it sees them"""
    before: float
    """time of this machine before it was asked for its time, in seconds UTC"""
    moment: float
    """its time"""
    after: float


async def _servers(
    settings: Settings, topology: Topology, pool: Pool, findings: list[Finding], node_seconds: float
) -> bool:
    """Add the findings on the servers. An error leaves those that were made before it.

    Returns:
        Whether all primaries answered.
    """
    findings.append(_transport(settings.url))
    keys = Keys(check_namespace(settings.namespace))
    nodes = list[_Node]()
    endpoints = await topology.primaries()
    for endpoint in endpoints:
        try:
            nodes.append(await _ask(endpoint))
        except BusError as fault:  # the others are told too
            findings.append(_fault(fault, endpoint.address))
    if len(nodes) == len(endpoints):
        longest = max(node.after - node.before for node in nodes)
        findings.append(ok("server", f"{len(nodes)} reached, answered in {longest * 1000:.0f} ms"))
    page_bytes = None if settings.bounds is None else settings.bounds.log.page_bytes
    for node in nodes:
        found = check_server(node.facts, page_bytes=page_bytes)
        found.append(check_clock(node.before, node.moment, node.after))
        findings += [each._replace(node=node.endpoint.address) for each in found]
    await _replicas(nodes, findings, node_seconds)
    if len(nodes) < len(endpoints):
        return False
    try:
        findings += await _losses(pool, keys, settings)
    except Refused as refusal:
        if refusal.code != "NOPERM":
            raise
        if not refusal.command:  # all keys of the namespace are refused
            findings.append(_of_other_namespace(keys, _user(settings.url)))
            return False
    findings += await _rights(topology, keys, _user(settings.url))
    findings += await _default_user(pool, [node.facts.info for node in nodes], keys)
    findings.append(await _namespace(pool, keys))
    return True


async def _ask(endpoint: Endpoint) -> _Node:
    """Ask one server for its time, state, replicas and settings.

    Raises:
        Refused: the user may not run INFO or TIME.
        Unavailable: as for `Endpoint.connect`.
    """
    connection = await endpoint.connect()
    try:
        before = time.time()
        moment = cast("Sequence[bytes]", await connection.call("TIME"))
        after = time.time()
        info, role, config = await connection.call_many([("INFO",), ("ROLE",), ("CONFIG", "GET", *SETTINGS)])
    finally:
        await connection.close()
    settings = None
    if not isinstance(config, Refused):
        words = [word.decode(errors="replace") for word in cast("Sequence[bytes]", config)]
        settings = dict(zip(words[::2], words[1::2], strict=True))
    facts = ServerFacts(read_info(cast("bytes", answered(info))), settings)
    return _Node(endpoint, facts, _addresses(role), before, int(moment[0]) + int(moment[1]) / 1e6, after)


def _addresses(role: Reply | Refused) -> tuple[tuple[str, int], ...]:
    """Return the addresses of the replicas that a primary names in its ROLE."""
    match role:
        case [b"master", _, list(replicas)]:
            return tuple((host.decode(), int(port)) for host, port, *_ in cast("list[list[bytes]]", replicas))
        case _:
            return ()


async def _replicas(nodes: Sequence[_Node], findings: list[Finding], seconds: float) -> None:
    """Add the findings on the replicas. They are asked at the same time, with the login of their primaries."""

    async def ask(endpoint: Endpoint) -> None:
        try:
            with anyio.fail_after(seconds):
                found = check_replica((await _ask(endpoint)).facts)
        except (BusError, TimeoutError) as fault:
            why = fault.fault if isinstance(fault, BusError) else f"no answer within {seconds:g} s"
            remedy = (
                "look at appendonly and maxmemory-policy of it: a failover may promote it. Users are not replicated"
            )
            found = [warning("replica", f"the replica could not be asked, so its settings are unknown: {why}", remedy)]
        findings.extend(each._replace(node=endpoint.address) for each in found)

    async with anyio.create_task_group() as tasks:
        for node in nodes:
            for address in node.replicas:
                tasks.start_soon(ask, node.endpoint.at(*address))


async def _losses(pool: Pool, keys: Keys, settings: Settings) -> list[Finding]:
    """Tell of an emptied or older log that a process has seen and no person has accepted."""
    namespace = NamespaceLog(Log(pool, keys))
    await remember(namespace, settings)
    losses = await namespace.unaccepted()
    return [error("log", loss.text, loss.remedy(namespace.name)) for loss in losses] or [
        ok("log", "no process has found that the log was emptied or is an older copy")
    ]


def _of_other_namespace(keys: Keys, user: str) -> Finding:
    name = keys.namespace
    remedy = f"name the namespace that the user is for with --namespace, or run `lanebus acl --namespace {name}`"
    return error("rights", f"the user {user!r} may not use the keys of namespace {name!r}", remedy)


def _transport(url: str | None) -> Finding:
    risk = transport_risk(url) if url else None
    return (
        ok("encryption", "no other machine can read the connection") if risk is None else warning("encryption", *risk)
    )


def _user(url: str | None) -> str:
    """Return the user that a URL names; "default" if the URL names no user, because the server uses this name."""
    return unquote((url and urlsplit(url).username) or "default")


async def _rights(topology: Topology, keys: Keys, user: str) -> list[Finding]:
    connection = await topology.route(keys.sessions(0)).connect()
    try:
        return await check_rights(connection, keys, user)
    finally:
        await connection.close()


async def _default_user(pool: Pool, infos: Sequence[Mapping[str, str]], keys: Keys) -> list[Finding]:
    """Check that a server that loads its file as the default user lets that user write."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the other risks have findings of their own
            await check_durability(pool, infos, keys)
    except UnsafeServer as fault:
        return [error("default user", fault.fault, fault.remedy)]
    return [ok("default user", "a restart of the server loses no message because of the default user's rights")]


async def _namespace(pool: Pool, keys: Keys) -> Finding:
    """Check that this version of lanebus reads what the namespace holds."""
    try:
        buckets, schema = cast("list[bytes | None]", await pool.call("HMGET", keys.config, "buckets", "schema"))
        if buckets is None or schema is None:
            return ok("namespace", f"{keys.namespace!r} holds nothing yet")
        check_stored_form(keys.namespace, buckets=buckets, schema=schema)
    except Refused as refusal:
        text = f"it is unknown which schema {keys.namespace!r} has: the server refused to read it with {refusal.code}"
        return warning("namespace", text, next_step(refusal))
    except BusError as fault:
        return error("namespace", fault.fault, next_step(fault))
    return ok("namespace", f"{keys.namespace!r} has the schema that this version reads")
