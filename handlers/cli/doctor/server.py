"""Check a server: version, settings and states that lose data or refuse commands, and its clock. Pure, from what the
server said."""

from collections.abc import Mapping
from typing import NamedTuple

from lanebus.bus.log.bounds import LogBounds
from lanebus.bus.media.redis_media import REDIS_MEDIA_LIMIT_BYTES
from lanebus.bus.servers.advisories import known_holes
from lanebus.bus.servers.durability import ServerVersion
from lanebus.bus.wire.codec import MESSAGE_LIMIT_BYTES
from lanebus.handlers.cli.doctor.finding import Finding, error, ok, warning

__all__ = ("SETTINGS", "ServerFacts", "check_clock", "check_replica", "check_server")

SETTINGS = (
    "appendfsync",
    "aof-load-truncated",
    "client-output-buffer-limit",
    "min-replicas-to-write",
    "proto-max-bulk-len",
    "save",
    "stop-writes-on-bgsave-error",
    "timeout",
)
"""the settings of a server that are looked at"""


class ServerFacts(NamedTuple):
    """What a server reports about itself."""

    info: Mapping[str, str]
    """the fields of INFO"""
    settings: Mapping[str, str] | None
    """settings by CONFIG GET; None if the user may not read them"""


def check_server(
    facts: ServerFacts, *, page_bytes: int | None = None, bulk_bytes: int = REDIS_MEDIA_LIMIT_BYTES, near: float = 0.9
) -> list[Finding]:
    """Return the findings on one primary.

    Args:
        facts: what it reports.
        page_bytes: `LogBounds.page_bytes` of the bus; None means the default.
        bulk_bytes: the largest value that the bus sends to it.
        near: the share of a limit from which a warning is given.
    """
    info = facts.info
    version = ServerVersion.of(info)
    if version.name == "Redis" and version.number < (7, 0):
        return [error("server", f"{version} is too old", "use Valkey 8 or Redis 7.0, or newer")]
    holes = [warning("security", *hole) for hole in known_holes(version)]
    holes = holes or [ok("security", "no security hole of this version is known to lanebus")]
    page_bytes = LogBounds().page_bytes if page_bytes is None else page_bytes
    return [
        _loading(info) or ok("server", str(version)),
        *holes,
        *_file(version, facts),
        _policy(info),
        _memory(info, near),
        _disk(info, facts.settings or {}),
        _replicas(info, facts.settings),
        _clients(info, near),
        *_unread(facts),
        *([] if facts.settings is None else _connections(facts.settings, 2 * page_bytes, bulk_bytes)),
    ]


def check_replica(facts: ServerFacts) -> list[Finding]:
    """Return the findings on a replica that a failover may promote: what it would lose as a primary."""
    if facts.info.get("slave_priority") == "0":
        return [ok("replica", "a failover does not promote it: its priority is 0")]
    found = [*_file(ServerVersion.of(facts.info), facts), _policy(facts.info), *_unread(facts)]
    faults = [
        each._replace(text=f"a replica that a failover may promote: {each.text}")
        for each in found
        if each.level != "ok"
    ]
    return faults or [ok("replica", "its settings keep what a primary acknowledged")]


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
        return []
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


def _unread(facts: ServerFacts) -> list[Finding]:
    if facts.settings is not None:
        return []
    text = f"the server's settings could not be read: unknown are {', '.join(SETTINGS)}"
    return [warning("settings", text, "run it as an administrator too, or allow the user CONFIG GET")]


def _loading(info: Mapping[str, str]) -> Finding | None:
    if info.get("loading", "0") == "0":
        return None
    return error("server", "it loads its file, and refuses commands until then", "wait, and look at its log")


def _memory(info: Mapping[str, str], near: float) -> Finding:
    limit = _number(info, "maxmemory")
    used = _number(info, "used_memory") - _number(info, "mem_not_counted_for_evict")
    if not limit:
        return ok("memory", f"{used:,} bytes in use, and no limit")
    text = f"{used:,} of {limit:,} bytes (maxmemory) in use"
    remedy = "raise maxmemory, then archive and trim sessions; `lanebus erase` works at once"
    if used >= limit:
        return error("memory", f"{text}: messages are refused with OOM", remedy)
    return (
        warning("memory", f"{text}: once it is full, messages are refused with OOM", remedy)
        if used >= near * limit
        else ok("memory", text)
    )


def _disk(info: Mapping[str, str], settings: Mapping[str, str]) -> Finding:
    remedy = "free space on its disk, and see its log"
    stops = settings.get("stop-writes-on-bgsave-error") == "yes" and bool(settings.get("save"))
    if info.get("aof_last_write_status", "ok") != "ok":
        return error("disk", "its last write to the append-only file failed: messages are refused with MISCONF", remedy)
    if stops and info.get("rdb_last_bgsave_status", "ok") != "ok":
        return error("disk", "its last snapshot failed: messages are refused with MISCONF", remedy)
    if info.get("aof_last_bgrewrite_status", "ok") != "ok":
        return warning("disk", "its last rewrite of the append-only file failed: the file grows", remedy)
    return ok("disk", "its last writes to the disk succeeded")


def _clients(info: Mapping[str, str], near: float) -> Finding:
    limit = _number(info, "maxclients")
    clients = _number(info, "connected_clients") + _number(info, "cluster_connections")
    if not limit:
        return ok("clients", f"{clients:,} clients")
    text = f"{clients:,} of {limit:,} clients (maxclients)"
    if clients < near * limit:
        return ok("clients", text)
    return warning("clients", f"{text}: more are refused", "raise maxclients, or see with CLIENT LIST who they are")


def _connections(settings: Mapping[str, str], reply_bytes: int, bulk_bytes: int) -> list[Finding]:
    """Return the findings on settings that end connections, or refuse what is large."""
    found = list[Finding]()
    seconds = _number(settings, "timeout")
    if seconds:
        text = f"timeout is {seconds}: the server ends connections that are idle for so many seconds"
        found.append(warning("timeout", text, "CONFIG SET timeout 0, and in the server's file"))
    else:
        found.append(ok("timeout", "idle connections stay open"))
    words = settings.get("client-output-buffer-limit", "").split()
    limits = words[words.index("normal") + 1 :][:2] if "normal" in words else []
    name, least = "output buffer", min((int(each) for each in limits if each.strip("0")), default=0)
    remedy = f"CONFIG SET client-output-buffer-limit 'normal {reply_bytes} {reply_bytes} 0', and in the server's file"
    text = f"client-output-buffer-limit of normal clients is {least:,} bytes: "
    if 0 < least < 2 * MESSAGE_LIMIT_BYTES:
        found.append(error(name, f"{text}the largest entries cannot be read", remedy))
    elif 0 < least < reply_bytes:
        found.append(warning(name, f"{text}pages of large entries are read again in parts", remedy))
    else:
        found.append(ok(name, "a reply holds a page of entries"))
    name, most = "bulk length", _number(settings, "proto-max-bulk-len")
    remedy = f"CONFIG SET proto-max-bulk-len {bulk_bytes}, and in the server's file"
    if 0 < most < 2 * MESSAGE_LIMIT_BYTES:
        found.append(error(name, f"proto-max-bulk-len is {most:,} bytes: the largest messages are refused", remedy))
    elif 0 < most < bulk_bytes:
        found.append(warning(name, f"proto-max-bulk-len is {most:,} bytes: larger media are refused", remedy))
    else:
        found.append(ok(name, "the server accepts the largest values that the bus sends"))
    return found


def _number(values: Mapping[str, str], name: str) -> int:
    text = values.get(name, "")
    return int(text) if text.isdecimal() else 0


def _policy(info: Mapping[str, str]) -> Finding:
    policy = info.get("maxmemory_policy", "noeviction")
    if policy == "noeviction":
        return ok("maxmemory-policy", "full memory refuses messages and deletes none")
    text = f"maxmemory-policy is {policy}: full memory deletes whole sessions"
    return error("maxmemory-policy", text, "CONFIG SET maxmemory-policy noeviction, and in the server's file")


def _replicas(info: Mapping[str, str], settings: Mapping[str, str] | None) -> Finding:
    if info.get("role") == "slave":
        text = f"the server is a replica of {info.get('master_host')}:{info.get('master_port')}"
        return error("replicas", text, "name the primary, or a Sentinel with redis+sentinel://")
    replicas, good = _number(info, "connected_slaves"), info.get("min_slaves_good_slaves")
    wanted = _number(settings or {}, "min-replicas-to-write")
    if good is not None and (good == "0" or int(good) < wanted):  # it counts them only if some are wanted
        need = str(wanted) if wanted else "more"
        text = f"{good} good replicas, and min-replicas-to-write wants {need}: messages are refused with NOREPLICAS"
        return error("replicas", text, "start the replicas, or lower min-replicas-to-write")
    if not replicas or (settings or {}).get("min-replicas-to-write", "0") != "0":
        return ok("replicas", f"{replicas} replicas")
    return warning(
        "replicas",
        f"{replicas} replicas, and messages are acknowledged before one has them: a failover may lose the last ones",
        "CONFIG SET min-replicas-to-write 1 refuses messages while no replica is connected",
    )
