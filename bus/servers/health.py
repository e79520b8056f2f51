"""What a server is worth: what it may lose in a crash, its known holes, who reads its traffic, what users may run."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from functools import cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple, cast
from urllib.parse import parse_qsl
from warnings import warn

from lanebus.bus.errors import Refused, UnsafeServer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lanebus.bus.servers.calls import Argument, Calling, Reply
    from lanebus.bus.servers.connection import Pool
    from lanebus.bus.wire.keys import Keys


# Check by version and settings whether a server keeps acknowledged entries through a crash.
#
# Two server bugs lose acknowledged entries while the append-only file is loaded. Neither bug shows while the server
# runs, so the check uses the version.
#
# **A torn group.** A script's writes are one group in the file, MULTI … EXEC. A power cut may leave a part of the last
# group, which was not acknowledged. Affected servers cut off the torn command and keep the beginning of the group. The
# next writes then become part of that group. The next start applies all writes of the group. It then refuses an
# acknowledged entry, because an entry of the torn group already has the same id. Fixed in Valkey 8.0.11, 8.1.10, 9.0.6
# and 9.1.2 (valkey-io/valkey#4342), and in no known release of Redis. Tested: Redis 7.0.15 and 8.2.3, Valkey 9.0.0,
# 9.1.0 and 9.1.1 lose entries; Valkey 9.1.2 does not. With `aof-load-truncated no` a torn file stops the server, and
# its checker removes the whole group.
#
# **A default user without rights.** Affected servers check each command of a group against the rights of the default
# user, and silently drop the commands that this user may not run. So a restricted default user, which is good practice,
# empties the log. Fixed in Valkey 8.1.10 and 9.1.2 (valkey-io/valkey#3984) and in Redis 8.6 (redis/redis#14545); tested
# on the versions above. A default user that is off and has all rights is safe.


class DurabilityWarning(UserWarning):
    """The server may lose acknowledged messages in a crash. The text of the warning names the reason and the remedy."""


class ServerVersion(NamedTuple):
    """Product and version of a server."""

    name: str
    """"Valkey" or "Redis\""""
    number: tuple[int, ...]
    """the version's numbers, such as `(9, 1, 2)`"""

    @classmethod
    def of(cls, info: Mapping[str, str]) -> ServerVersion:
        """Return the product and version that a server's INFO reports."""
        name = "Valkey" if "valkey_version" in info else "Redis"
        text = info.get(f"{name.lower()}_version", "0.0")
        return cls(name, tuple(int(part) for part in text.partition("-")[0].split(".") if part.isdigit()))

    def __str__(self) -> str:
        return f"{self.name} {'.'.join(map(str, self.number))}"

    @property
    def keeps_torn_groups(self) -> bool:
        """Whether this version, when it loads the append-only file, keeps the beginning of a transaction whose end is
        missing."""
        fixed = {(8, 0): 11, (8, 1): 10, (9, 0): 6, (9, 1): 2}
        return not (self.name == "Valkey" and self.has_fix(fixed, newer=(9, 2)))

    @property
    def asks_default_user(self) -> bool:
        """Whether this version checks commands against the rights of the default user when it loads the append-only
        file."""
        if self.name == "Valkey":
            return not self.has_fix({(8, 1): 10, (9, 1): 2}, newer=(9, 2))
        return not self.has_fix({}, newer=(8, 6))

    def has_fix(self, fixed: Mapping[tuple[int, int], int], *, newer: tuple[int, int]) -> bool:
        """Return whether this version has a fix.

        Args:
            fixed: by release line, the first patch with the fix.
            newer: the first release line in which every patch has the fix.
        """
        major, minor, patch = (*self.number, 0, 0, 0)[:3]
        return (major, minor) >= newer or patch >= fixed.get((major, minor), patch + 1)


async def server_infos(pool: Pool) -> dict[str, dict[str, str]]:
    """Return the INFO of each primary by its address.

    Raises:
        Refused: the user may not run INFO.
        Unavailable: a server did not answer.
    """
    replies = await pool.call_each("INFO")
    return {address: read_info(cast("bytes", reply)) for address, reply in replies.items()}


def read_info(text: bytes) -> dict[str, str]:
    """Return the fields of an INFO."""
    lines = (line.partition(":") for line in text.decode(errors="replace").splitlines() if ":" in line)
    return {name: value for name, _, value in lines}


async def check_durability(pool: Pool, infos: Sequence[Mapping[str, str]], keys: Keys) -> None:
    """Warn of servers that may lose acknowledged entries, and refuse servers that will lose them.

    Args:
        pool: pool of connections to the servers.
        infos: INFO of each server.
        keys: names of the keys.

    Raises:
        UnsafeServer: a server loads its append-only file as the default user, and that user has too few rights.
        Unavailable: a server did not answer.
    """
    if any(info.get("aof_enabled") == "0" for info in infos):
        _warn_of_losses("the server keeps no append-only file: acknowledged messages may be lost")
    versions = [ServerVersion.of(info) for info in infos if info.get("aof_enabled") == "1"]
    asking = next((version for version in versions if version.asks_default_user), None)
    if asking is not None:
        await _check_default_user(pool, keys, asking)
    for risk in await loss_risks(pool, infos):
        _warn_of_losses(risk)


async def loss_risks(pool: Pool, infos: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """Return the risk and the remedy, in one sentence, for each server version that may lose entries in a power cut.

    Args:
        pool: pool of connections to the servers.
        infos: INFO of each server.

    Raises:
        Unavailable: a server did not answer.
    """
    versions = {ServerVersion.of(info) for info in infos if info.get("aof_enabled") == "1"}
    torn = sorted(version for version in versions if version.keeps_torn_groups)
    if not torn or not await _loads_truncated(pool):
        return ()
    return tuple(
        f"{version} may lose acknowledged entries after a power cut that tears its append-only file:"
        " use Valkey 9.1.2 or newer, or set aof-load-truncated to no"
        for version in torn
    )


async def _loads_truncated(pool: Pool) -> bool:
    """Return whether a server loads a torn file; True if the setting cannot be read."""
    try:
        replies = await pool.call_each("CONFIG", "GET", "aof-load-truncated")
    except Refused:
        return True
    return any(list(cast("Sequence[bytes]", reply)[1:]) != [b"no"] for reply in replies.values())


async def _check_default_user(pool: Pool, keys: Keys, version: ServerVersion) -> None:
    what = "the default user's rights"
    try:
        for command in write_examples(keys.sessions(0)):  # any key: DRYRUN does not check its type
            for reply in (await pool.call_each("ACL", "DRYRUN", "default", *command)).values():
                if reply != b"OK":
                    raise UnsafeServer(
                        what,
                        cast("bytes", reply).decode(errors="replace"),
                        f"{version} to load its file as a user with all rights. Run ACL SETUSER default ~* &* +@all and"
                        " ACL SAVE, or set this in the server's file; the user may stay off or have a password. Valkey"
                        " 9.1.2 and newer do not need this",
                    )
    except Refused as refusal:
        _warn_of_losses(
            f"it could not be seen whether the default user may write ({refusal.code}): if it may not, {version}"
            " loses the log when it starts. Allow this user ACL DRYRUN, or use Valkey 9.1.2 or newer"
        )


def _warn_of_losses(text: str) -> None:
    warn(text, DurabilityWarning, stacklevel=2)


# Warn of server versions with published security holes. The list holds only holes whose fixed versions are known.
#
# A distribution may fix a hole and keep the version, so a server is not refused.

_log = logging.getLogger(__name__)


class _Advisory(NamedTuple):
    product: str
    """"Valkey" or "Redis\""""
    ids: str
    effect: str
    since: tuple[int, int]
    """the first release line with the hole"""
    fixed: Mapping[tuple[int, int], int]
    """by release line, the first patch with the fix"""
    newer: tuple[int, int]
    """the first release line in which every patch has the fix"""


_LUA = "CVE-2025-49844, CVE-2025-46817, CVE-2025-46818, CVE-2025-46819"
_LUA_EFFECT = "a client that may run scripts can take over the server"

_MAY = "CVE-2026-23479, CVE-2026-25243, CVE-2026-23631"
_JULY = "the security release of Redis of July 2026"

_ADVISORIES = (
    _Advisory("Redis", _LUA, _LUA_EFFECT, (0, 1), {(6, 2): 20, (7, 2): 11, (7, 4): 6, (8, 0): 4, (8, 2): 2}, (8, 4)),
    _Advisory("Valkey", _LUA, _LUA_EFFECT, (0, 1), {(7, 2): 11, (8, 0): 6, (8, 1): 4}, (9, 0)),
    _Advisory(
        "Redis",
        _JULY,
        "a client may run code of its own in the server",
        (0, 1),
        {(6, 2): 23, (7, 2): 15, (7, 4): 10, (8, 2): 8, (8, 4): 5, (8, 6): 5, (8, 8): 1},
        (8, 9),
    ),
    _Advisory(
        "Valkey",
        _MAY,
        "a client may read or destroy the server's memory",
        (0, 1),
        {(7, 2): 13, (8, 0): 9, (8, 1): 7, (9, 0): 4},
        (9, 1),
    ),
    _Advisory(
        "Valkey", "CVE-2026-27623", "a client without a password can end the server", (9, 0), {(9, 0): 3}, (9, 1)
    ),
)


class KnownHole(NamedTuple):
    """A published security hole of a server's version."""

    fault: str
    remedy: str


def known_holes(version: ServerVersion) -> tuple[KnownHole, ...]:
    """Return the known holes of a version."""
    return tuple(
        KnownHole(
            f"{version} has known security holes ({each.ids}): {each.effect}",
            f"use {_fixed_versions(each)}, or a package into which your distribution ported the fix",
        )
        for each in _ADVISORIES
        if each.product == version.name
        and version.number[:2] >= each.since
        and not version.has_fix(each.fixed, newer=each.newer)
    )


def warn_of_advisories(infos: Iterable[Mapping[str, str]]) -> None:
    """Log a warning for each known hole of the servers, once in this process for each version.

    Args:
        infos: INFO of each server.
    """
    for info in infos:
        _warn_of_advisory(ServerVersion.of(info))


@cache
def _warn_of_advisory(version: ServerVersion) -> None:
    for hole in known_holes(version):
        _log.warning("%s; %s", hole.fault, hole.remedy)


def _fixed_versions(advisory: _Advisory) -> str:
    versions = [f"{major}.{minor}.{patch}" for (major, minor), patch in sorted(advisory.fixed.items())]
    return f"{advisory.product} {', '.join(versions)}, or {'.'.join(map(str, advisory.newer))} or newer"


# Warn of server URLs whose connection other machines can read or take over.


class TransportRisk(NamedTuple):
    """Why a connection to a server is not safe, and what to do about it. Neither text contains the password."""

    fault: str
    remedy: str


def transport_risk(url: str) -> TransportRisk | None:
    """Return the risk of a server URL; None if it uses TLS with all checks, a unix socket, or this machine alone.

    Args:
        url: a URL as for `Bus.open`. It is not checked.
    """
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower().partition("+")[0]
    place, _, query = rest.partition("?")
    hosts = place.rpartition("@")[2].partition("/")[0]
    others = ", ".join(host for host in hosts.split(",") if not _is_this_machine(host))
    options = {name: value.lower() for name, value in parse_qsl(query)}
    if scheme == "redis" and others:
        return TransportRisk(
            f"the connection to {others} is not encrypted: machines between can read the password and all messages,"
            " and change them",
            "use rediss://, or a tunnel that ends on this machine",
        )
    is_unchecked = options.get("ssl_cert_reqs") in {"none", "optional"}
    if scheme == "rediss" and others and (is_unchecked or options.get("ssl_check_hostname") in _FALSE_WORDS):
        return TransportRisk(
            f"the certificate of {others} is not checked: another machine can pretend to be the server",
            "leave out ssl_cert_reqs and ssl_check_hostname, and name the authority with ssl_ca_certs",
        )
    return None


def warn_of_transport(url: str) -> None:
    """Log a warning if the connection is not safe, once in this process for each risk."""
    risk = transport_risk(url)
    if risk is not None:
        _warn_of_risk(risk)


@cache
def _warn_of_risk(risk: TransportRisk) -> None:
    _log.warning("%s: %s", risk.fault, risk.remedy)


_FALSE_WORDS = frozenset({"0", "f", "false", "n", "no"})


def _is_this_machine(host: str) -> bool:
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name.lower() in {"", "localhost"} or name.lower().endswith(".localhost")


# The commands that the bus sends, and the users for the server's access list (ACL) that may run them.
#
# Scripts run with the rights of the user who calls them. So a reader may call scripts, but no script of its can write.
#
# Key patterns cover one namespace alone. `<namespace>:*` would also cover a namespace whose name continues with a
# colon.

_ACL_KEYS = ("config", "{*", "media:[0-9a-f][0-9a-f]*", "media:sizes", "group:{*}:consumers")

_WITH_SUBCOMMANDS = frozenset({"acl", "client", "cluster", "config", "script", "xinfo"})

_SET_UP_COMMANDS = ("acl|dryrun", "asking", "cluster|slots", "discard", "multi", "role")
"""commands that follow a cluster or a Sentinel, or check the server. CLIENT SETINFO is left out: Redis 7.0 refuses
a rule that names a command it does not know"""


class AclUser(NamedTuple):
    """A user for the server's access list."""

    name: str
    rules: tuple[str, ...]
    """the rules after the name in ACL SETUSER. They set no password and keep the one that a user has"""

    def __str__(self) -> str:
        return " ".join(("ACL SETUSER", self.name, *self.rules))


def acl_users(namespace: str) -> tuple[AclUser, AclUser]:
    """Return the two users of a namespace: `<namespace>-reader`, which cannot write, and `<namespace>-bus`.

    Args:
        namespace: the namespace of the bus. It is not checked.
    """
    reads = (*read_examples("k"), *server_examples("k"))
    reader = {*map(command_name, reads), *_SET_UP_COMMANDS}
    bus = {*reader, *map(command_name, write_examples("k")), "bgrewriteaof"}
    keys = (f"~{namespace}:{suffix}" for suffix in _ACL_KEYS)
    common = ("on", "resetkeys", "resetchannels", "clearselectors", "-@all", *keys)
    return (
        AclUser(f"{namespace}-reader", (*common, *(f"+{name}" for name in sorted(reader)))),
        AclUser(f"{namespace}-bus", (*common, *(f"+{name}" for name in sorted(bus)))),
    )


def command_name(command: Sequence[Argument]) -> str:
    """Return the name of a command as access lists write it, with its subcommand."""
    first = str(command[0]).lower()
    return f"{first}|{str(command[1]).lower()}" if first in _WITH_SUBCOMMANDS else first


def read_examples(key: str) -> Sequence[tuple[Argument, ...]]:
    """Return an example of each command that the bus or its scripts read keys with."""
    return (
        ("EXISTS", key),
        ("GET", key),
        ("HGET", key, "f"),
        ("HGETALL", key),
        ("HKEYS", key),
        ("HLEN", key),
        ("HMGET", key, "f"),
        ("HSCAN", key, 0),
        ("STRLEN", key),
        ("XINFO", "STREAM", key),
        ("XLEN", key),
        ("XRANGE", key, "-", "+"),
        ("XREAD", "STREAMS", key, "0"),
        ("XREVRANGE", key, "+", "-"),
        ("ZCARD", key),
        ("ZCOUNT", key, "0", "1"),
        ("ZRANGE", key, 0, 1),
        ("ZRANGEBYSCORE", key, "0", "1"),
        ("ZSCORE", key, "m"),
    )


def write_examples(key: str) -> Sequence[tuple[Argument, ...]]:
    """Return an example of each write command that the bus or its scripts use."""
    return (
        ("XADD", key, "1-1", "f", "v"),
        ("XDEL", key, "1-1"),
        ("XTRIM", key, "MINID", "1"),
        ("XSETID", key, "1-1"),
        ("HSET", key, "f", "v"),
        ("HSETNX", key, "f", "v"),
        ("HINCRBY", key, "f", "1"),
        ("HDEL", key, "f"),
        ("ZADD", key, "1", "m"),
        ("ZREM", key, "m"),
        ("SET", key, "v"),
        ("DEL", key),
        ("UNLINK", key),
        ("RENAME", key, key),
        ("PEXPIRE", key, "1"),
        ("PEXPIREAT", key, "1"),  # the form that PEXPIRE has in the append-only file
    )


def server_examples(key: str) -> Sequence[tuple[Argument, ...]]:
    """Return an example of each command that calls scripts or asks the server. They write nothing by themselves."""
    return (
        ("EVAL", "return 1", 1, key),
        ("EVALSHA", 40 * "0", 1, key),
        ("SCRIPT", "LOAD", "return 1"),
        ("CLIENT", "ID"),
        ("CLIENT", "UNBLOCK", 0),
        ("INFO",),
        ("PING",),
        ("SCAN", 0),
        ("TIME",),
    )


_FIRST_FORBIDDEN = """
for at, command in ipairs(cjson.decode(ARGV[1])) do
  local is_known, is_allowed = pcall(redis.acl_check_cmd, unpack(command))
  if is_known and not is_allowed then return at end
end
return 0
"""
"""Runs none of the commands. MULTI and DISCARD run none either, but a user without DISCARD would leave the transaction
open."""


async def name_forbidden(
    server: Calling, scripts: Sequence[tuple[str, Sequence[Argument]]], replies: Sequence[Reply | Refused]
) -> list[Reply | Refused]:
    """Return the replies. Each NOPERM reply without a command gets the name of the command that is not allowed.

    The name stays empty if the server cannot check the rights of a command.

    Args:
        server: the connection or pool that sent the scripts.
        scripts: the text of each script, and the command that called it.
        replies: the reply to each script.

    Raises:
        Unavailable: as for `Connection.call_many`.
    """
    named = list(replies)
    for at, reply in enumerate(replies):
        if isinstance(reply, Refused) and reply.code == "NOPERM" and not reply.command:
            text, command = scripts[at]
            key = command[3] if command[2] else None  # the script's first key
            if not isinstance(key, str):
                continue
            called = [each for each in _key_examples(key) if repr(each[0]) in text]
            [found] = await server.call_many([("EVAL", _FIRST_FORBIDDEN, 1, key, json.dumps(called))])
            if isinstance(found, int) and found:
                named[at] = Refused("NOPERM", command_name(called[found - 1]))
    return named


def _key_examples(key: str) -> Sequence[tuple[Argument, ...]]:
    return *write_examples(key), *read_examples(key), *server_examples(key)
