"""The commands that the bus sends, and the users for the server's access list (ACL) that may run them.

Scripts run with the rights of the user who calls them. So a reader may call scripts, but no script of its can write.

Key patterns cover one namespace alone. `<namespace>:*` would also cover a namespace whose name continues with a colon.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanebus.bus.servers.replies import Argument

__all__ = ("AclUser", "acl_users", "command_name", "read_examples", "server_examples", "write_examples")

_KEYS = ("config", "{*", "media:[0-9a-f][0-9a-f]*", "media:sizes", "group:{*}:consumers")

_WITH_SUBCOMMANDS = frozenset({"acl", "client", "cluster", "config", "script", "xinfo"})

_SET_UP = ("acl|dryrun", "asking", "cluster|slots", "discard", "multi", "role")
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
    reader = {*map(command_name, reads), *_SET_UP}
    bus = {*reader, *map(command_name, write_examples("k")), "bgrewriteaof"}
    keys = (f"~{namespace}:{suffix}" for suffix in _KEYS)
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
