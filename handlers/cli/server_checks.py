"""What `lanebus doctor` finds in a server: its version, settings, state and clock, and the rights of the user."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from lanebus.bus import REDIS_MEDIA_LIMIT_BYTES, LogBounds
from lanebus.bus.errors import Refused
from lanebus.bus.servers import (
    Argument,
    Connection,
    Reply,
    ServerVersion,
    command_name,
    known_holes,
    read_examples,
    server_examples,
    write_examples,
)
from lanebus.bus.wire import MESSAGE_LIMIT_BYTES, Keys

# A finding of `lanebus doctor`. Pure.

Level = Literal["ok", "warning", "error"]
"""`error`: messages are lost, or commands fail. `warning`: this can happen, and the finding's text says when."""


class Finding(NamedTuple):
    """The result of one check."""

    level: Level
    check: str
    """the name of the check"""
    text: str
    """what the check found"""
    remedy: str = ""
    """what to do; "" if nothing is wrong"""
    node: str = ""
    """the server that was looked at, as `host:port` or as the path of its socket; "" if the finding is of none"""


def ok(check: str, text: str) -> Finding:
    """Return a finding of level `ok`: the check found no problem."""
    return Finding("ok", check, text)


def warning(check: str, text: str, remedy: str) -> Finding:
    """Return a finding of level `warning`: messages can be lost, or commands can fail."""
    return Finding("warning", check, text, remedy)


def error(check: str, text: str, remedy: str) -> Finding:
    """Return a finding of level `error`: messages are lost, or commands fail."""
    return Finding("error", check, text, remedy)


# Check a server: version, settings and states that lose data or refuse commands, and its clock. Pure, from what the
# server said.

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


# Check whether the server's user may run each command that the bus needs, and use its keys.
#
# The commands are queued in a transaction that is then discarded. The server checks rights while it queues a command,
# and runs none of them. This needs no right to read the access lists.


async def check_rights(connection: Connection, keys: Keys, user: str) -> list[Finding]:
    """Check that the connection's user may run the commands that the bus needs. Return one finding.

    A user that may run all commands that read, and no command that writes, is a reader: nothing is wrong with it.

    The commands are queued in a transaction and discarded, so they change nothing.

    Args:
        connection: a connection to the server that holds `keys.sessions(0)`. No transaction is open on it.
        keys: names of the keys of the namespace.
        user: the name of the connection's user.

    Raises:
        Unavailable: the server did not answer.
    """
    commands = needed_commands(keys)
    first, *replies, _ = await connection.call_many([("MULTI",), *commands, ("DISCARD",)])
    if isinstance(first, Refused):
        return [_unknown_command(first)]
    refused = [command_name(command) for command, reply in zip(commands, replies, strict=True) if _is_forbidden(reply)]
    if not refused:
        return [ok("rights", f"the user {user!r} may run the {len(commands)} commands that the bus needs")]
    names = sorted(set(refused))
    if _is_reader(keys, refused):
        return [ok("rights", f"this user may only read; use {keys.namespace}-bus of `lanebus acl` to write")]
    remedy = f"run `lanebus acl --namespace {keys.namespace}`, apply what it prints, then {_SAVE}"
    return [error("rights", f"the user {user!r} may not run {', '.join(names)} on keys of {keys.namespace!r}", remedy)]


def needed_commands(keys: Keys) -> Sequence[tuple[Argument, ...]]:
    """Return an example of each command that the bus sends or that its scripts call. All keys are in bucket 0."""
    key = keys.sessions(0)
    return *read_examples(key), *write_examples(key), *server_examples(key)


def _is_reader(keys: Keys, refused: Sequence[str]) -> bool:
    """Whether each write is refused and nothing else, as for the reader of `lanebus acl`."""
    return set(refused) == {command_name(command) for command in write_examples(keys.sessions(0))}


def _is_forbidden(reply: Reply | Refused) -> bool:
    return isinstance(reply, Refused) and reply.code == "NOPERM"


_SAVE = "ACL SAVE, or CONFIG REWRITE if users are in the server's file"


def _unknown_command(refusal: Refused) -> Finding:
    return warning(
        "rights",
        f"the user's rights could not be checked: MULTI was refused with {refusal.code}",
        "allow the user MULTI and DISCARD, or check its rights with ACL DRYRUN",
    )
