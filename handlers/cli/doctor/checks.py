"""Run all checks of `lanebus doctor`."""

import time
import warnings
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import cast
from urllib.parse import unquote, urlsplit

import anyio

from lanebus.bus.embedded.server import open_server
from lanebus.bus.errors import BusError, Refused, UnsafeServer
from lanebus.bus.log.log import Log
from lanebus.bus.log.namespace import NamespaceLog
from lanebus.bus.servers.durability import check_durability, server_infos
from lanebus.bus.servers.topology import Endpoint, OneServer, Pool, Topology, topology_at
from lanebus.bus.servers.transport import transport_risk
from lanebus.bus.wire.keys import Keys, check_namespace
from lanebus.handlers.cli.access import remember
from lanebus.handlers.cli.doctor.finding import Finding, error, ok, warning
from lanebus.handlers.cli.doctor.installation import check_imports, check_versions
from lanebus.handlers.cli.doctor.rights import check_rights
from lanebus.handlers.cli.doctor.server import ServerFacts, check_clock, check_server
from lanebus.handlers.cli.errors import ServerSilent
from lanebus.handlers.cli.next_step import next_step
from lanebus.handlers.cli.options import Settings

__all__ = ("run_checks",)


async def run_checks(settings: Settings, *, seconds: float) -> list[Finding]:
    """Return the findings on the installation and on the servers that the settings name.

    Args:
        settings: which bus to look at. The embedded server is started if it does not run.
        seconds: longest time for all questions to the servers.
    """
    findings = [*check_versions(), *check_imports(Path.cwd())]
    try:
        with anyio.move_on_after(seconds) as timeout:
            await _servers(settings, findings)
        if timeout.cancelled_caught:
            raise ServerSilent(seconds)
    except BusError as fault:
        findings.append(error("server", fault.fault, next_step(fault)))
    return findings


async def _servers(settings: Settings, findings: list[Finding]) -> None:
    """Add the findings on the servers. An error leaves those that were made before it."""
    keys = Keys(check_namespace(settings.namespace))
    async with AsyncExitStack() as stack:
        if settings.url is None:
            embedded = await stack.enter_async_context(open_server(settings.data_dir))
            topology: Topology = OneServer(Endpoint.at_socket(str(embedded.socket)))
        else:
            topology = topology_at(settings.url)
        pool = topology.pool(1)
        stack.push_async_callback(pool.close)
        before = time.time()
        moments = [cast("Sequence[bytes]", reply) for reply in await pool.call_each("TIME")]
        after = time.time()
        findings += [ok("server", f"{len(moments)} reached, answered in {(after - before) * 1000:.0f} ms")]
        findings.append(_transport(settings.url))
        findings += await _losses(pool, keys, settings)
        findings += await _rights(topology, keys, _user(settings.url))
        infos = await server_infos(pool)
        for info, config in zip(infos, await _settings(pool, len(infos)), strict=True):
            findings += check_server(ServerFacts(info, config))
        findings += await _default_user(pool, infos, keys)
        clocks = {check_clock(before, int(moment[0]) + int(moment[1]) / 1e6, after): None for moment in moments}
        findings += clocks


async def _losses(pool: Pool, keys: Keys, settings: Settings) -> list[Finding]:
    """Tell of an emptied or older log that a process has seen and no person has accepted."""
    namespace = NamespaceLog(Log(pool, keys))
    await remember(namespace, settings)
    losses = await namespace.unaccepted()
    return [error("log", loss.text, loss.remedy(namespace.name)) for loss in losses] or [
        ok("log", "no process has found that the log was emptied or is an older copy")
    ]


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


async def _settings(pool: Pool, servers: int) -> list[dict[str, str] | None]:
    """Return the settings of each server that decide what a crash loses; None if the user may not read them."""
    found: list[dict[str, str]] = [{} for _ in range(servers)]
    try:
        for name in ("appendfsync", "aof-load-truncated", "min-replicas-to-write"):
            for settings, reply in zip(found, await pool.call_each("CONFIG", "GET", name), strict=True):
                words = [word.decode() for word in cast("Sequence[bytes]", reply)]
                settings.update(zip(words[::2], words[1::2], strict=True))
    except Refused:
        return [None] * servers
    return [*found]


async def _default_user(pool: Pool, infos: Sequence[dict[str, str]], keys: Keys) -> list[Finding]:
    """Check that a server that loads its file as the default user lets that user write."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the other risks have findings of their own
            await check_durability(pool, infos, keys)
    except UnsafeServer as fault:
        return [error("default user", fault.fault, fault.remedy)]
    return [ok("default user", "a restart of the server loses no message because of the default user's rights")]
