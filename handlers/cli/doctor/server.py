"""Check a server: version, settings that lose data, replicas, and its clock. Pure, from what the server said."""

from collections.abc import Mapping
from typing import NamedTuple

from lanebus.bus.servers.advisories import known_holes
from lanebus.bus.servers.durability import ServerVersion
from lanebus.handlers.cli.doctor.finding import Finding, error, ok, warning

__all__ = ("ServerFacts", "check_clock", "check_server")


class ServerFacts(NamedTuple):
    """What a server reports about itself."""

    info: Mapping[str, str]
    """the fields of INFO"""
    settings: Mapping[str, str] | None
    """settings by CONFIG GET; None if the user may not read them"""


def check_server(facts: ServerFacts) -> list[Finding]:
    """Return the findings on version, append-only file, memory and replicas of one server."""
    info = facts.info
    version = ServerVersion.of(info)
    if version.name == "Redis" and version.number < (7, 0):
        return [error("server", f"{version} is too old", "use Valkey 8 or Redis 7.0, or newer")]
    holes = [warning("security", *hole) for hole in known_holes(version)]
    holes = holes or [ok("security", "no security hole of this version is known to lanebus")]
    return [ok("server", str(version)), *holes, *_file(version, facts), _memory(info), _replicas(info, facts.settings)]


def check_clock(before: float, server: float, after: float, *, allowed: float = 1.0) -> Finding:
    """Compare the clocks of this machine and of the server.

    Args:
        before, after: time of this machine, seconds UTC, before the question and after the answer.
        server: time of the server, seconds UTC.
        allowed: largest difference in seconds without a warning. A larger difference misleads people when they compare
            times.
    """
    skew = max(before - server, server - after, 0.0)  # what the journey of the question cannot explain
    if skew < allowed:
        return ok("clock", f"the clocks of this machine and of the server differ by less than {allowed:g} s")
    side = "behind" if server < before else "ahead of"
    return warning(
        "clock",
        f"the server's clock is {skew:,.1f} s {side} this machine's",
        "set both with NTP; times in the log are the server's",
    )


def _file(version: ServerVersion, facts: ServerFacts) -> list[Finding]:
    if facts.info.get("aof_enabled") == "0":
        return [
            error(
                "appendonly",
                "the server keeps no append-only file: a crash loses acknowledged messages",
                "CONFIG SET appendonly yes, and appendonly yes in the server's file",
            )
        ]
    findings: list[Finding] = []
    if facts.settings is None:
        return [
            warning(
                "appendfsync",
                "the server's settings could not be read",
                "allow the user CONFIG GET, or look at appendfsync and aof-load-truncated yourself",
            )
        ]
    match facts.settings.get("appendfsync"):
        case "always":
            findings.append(ok("appendfsync", "each message is on disk before it is acknowledged"))
        case "everysec":
            text = "appendfsync is everysec: a crash loses the messages of the last second, of more if the disk is slow"
            findings.append(warning("appendfsync", text, "CONFIG SET appendfsync always, and in the server's file"))
        case other:
            text = f"appendfsync is {other}: a crash loses messages of many seconds"
            findings.append(error("appendfsync", text, "CONFIG SET appendfsync always, and in the server's file"))
    if version.keeps_torn_groups and facts.settings.get("aof-load-truncated") != "no":
        text = f"{version} may lose acknowledged messages after a power cut that tears its append-only file"
        remedy = "use Valkey 9.1.2 or newer, or CONFIG SET aof-load-truncated no, and in the server's file"
        findings.append(error("aof-load-truncated", text, remedy))
    else:
        findings.append(ok("aof-load-truncated", "a torn append-only file loses no acknowledged message"))
    return findings


def _memory(info: Mapping[str, str]) -> Finding:
    policy = info.get("maxmemory_policy", "noeviction")
    if policy == "noeviction":
        return ok("maxmemory-policy", "full memory refuses messages and deletes none")
    text = f"maxmemory-policy is {policy}: full memory deletes whole sessions"
    return error("maxmemory-policy", text, "CONFIG SET maxmemory-policy noeviction, and in the server's file")


def _replicas(info: Mapping[str, str], settings: Mapping[str, str] | None) -> Finding:
    if info.get("role") == "slave":
        text = f"the server is a replica of {info.get('master_host')}:{info.get('master_port')}"
        return error("replicas", text, "name the primary, or a Sentinel with redis+sentinel://")
    replicas = int(info.get("connected_slaves", "0"))
    if not replicas or (settings or {}).get("min-replicas-to-write", "0") != "0":
        return ok("replicas", f"{replicas} replicas")
    return warning(
        "replicas",
        f"{replicas} replicas, and messages are acknowledged before one has them: a failover may lose the last ones",
        "CONFIG SET min-replicas-to-write 1 refuses messages while no replica is connected",
    )
