"""What a server keeps through a crash: what is known of its version, and what its settings make of it.

Two faults of servers lose acknowledged entries, both where the append-only file is read at a start. Neither shows
while the server runs, so the version is looked at.

**A torn group.** A script's writes stand in the file as one group, MULTI … EXEC. A power cut may leave a part of the
last group, which nobody was told of. These servers cut off the command that is torn and keep the beginning of the
group. What is written next becomes part of it, and the start after that applies both: an entry that was acknowledged
is refused, as the torn one has its place. Mended in Valkey 8.0.11, 8.1.10, 9.0.6 and 9.1.2 (valkey-io/valkey#4342), in
no release of Redis that we know of. Tried: Redis 7.0.15 and 8.2.3, Valkey 9.0.0, 9.1.0 and 9.1.1 lose entries, Valkey
9.1.2 none. With `aof-load-truncated no` a torn file stops the server, and its checker cuts off the whole group.

**A default user without rights.** These servers ask for each command of a group whether the default user may do it.
What it may not do is dropped, without a word. So a default user that was restricted, as it should be, empties the log.
Mended in Valkey 8.1.10 and 9.1.2 (valkey-io/valkey#3984) and in Redis 8.6 (redis/redis#14545); tried on the versions
above. A user that is off and has all rights is harmless.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast
from warnings import warn

from lanebus.bus.errors import Refused, UnsafeServer

if TYPE_CHECKING:
    from lanebus.bus.servers.topology import Argument, Pool
    from lanebus.bus.wire.keys import Keys

__all__ = ("DurabilityWarning", "ServerVersion", "check_durability", "loss_risks", "server_infos")


class DurabilityWarning(UserWarning):
    """The server does not keep what it acknowledges through a crash."""


class ServerVersion(NamedTuple):
    """What a server is."""

    name: str
    """"Valkey" or "Redis\""""
    number: tuple[int, ...]

    @classmethod
    def of(cls, info: Mapping[str, str]) -> ServerVersion:
        """Read it from what the server says of itself."""
        name = "Valkey" if "valkey_version" in info else "Redis"
        text = info.get(f"{name.lower()}_version", "0.0")
        return cls(name, tuple(int(part) for part in text.partition("-")[0].split(".") if part.isdigit()))

    def __str__(self) -> str:
        return f"{self.name} {'.'.join(map(str, self.number))}"

    @property
    def keeps_torn_groups(self) -> bool:
        """It reads the beginning of a group whose end is missing, and goes on behind it."""
        mended = {(8, 0): 11, (8, 1): 10, (9, 0): 6, (9, 1): 2}
        return not (self.name == "Valkey" and self._has(mended, newer=(9, 2)))

    @property
    def asks_default_user(self) -> bool:
        """It asks whether the default user may do what stands in its file."""
        if self.name == "Valkey":
            return not self._has({(8, 1): 10, (9, 1): 2}, newer=(9, 2))
        return not self._has({}, newer=(8, 6))

    def _has(self, mended: Mapping[tuple[int, int], int], *, newer: tuple[int, int]) -> bool:
        """Whether it has a mend that came with these patches of its lines, and with all newer lines."""
        major, minor, patch = (*self.number, 0, 0, 0)[:3]
        return (major, minor) >= newer or patch >= mended.get((major, minor), patch + 1)


async def server_infos(pool: Pool) -> list[dict[str, str]]:
    """Ask each server that may be written to what it is, as INFO says it.

    Raises:
        Refused: a server does not say so.
        Unavailable: a server cannot be reached.
    """
    return [_read_info(cast("bytes", reply)) for reply in await pool.call_each("INFO")]


def _read_info(text: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in text.decode(errors="replace").splitlines() if ":" in line)
    return {name: value for name, _, value in lines}


async def check_durability(pool: Pool, infos: Sequence[Mapping[str, str]], keys: Keys) -> None:
    """Warn of servers that may lose what they acknowledged, and refuse those that will.

    Args:
        infos: what each server says of itself.

    Raises:
        UnsafeServer: the default user has too few rights, on a server that reads its file as that user.
        Unavailable: a server cannot be reached.
    """
    if any(info.get("aof_enabled") == "0" for info in infos):
        _warn("the server keeps no append-only file: acknowledged messages may be lost")
    versions = [ServerVersion.of(info) for info in infos if info.get("aof_enabled") == "1"]
    asking = next((version for version in versions if version.asks_default_user), None)
    if asking is not None:
        await _check_default_user(pool, keys, asking)
    for risk in await loss_risks(pool, infos):
        _warn(risk)


async def loss_risks(pool: Pool, infos: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """What the servers may lose at a power cut, a sentence for each version; what to do about it is in it.

    Args:
        infos: what each server says of itself.

    Raises:
        Unavailable: a server cannot be reached.
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
    """Whether a server goes on with a torn file; True if it does not say so."""
    try:
        settings = [
            cast("Sequence[bytes]", reply) for reply in await pool.call_each("CONFIG", "GET", "aof-load-truncated")
        ]
    except Refused:
        return True
    return any(list(setting[1:]) != [b"no"] for setting in settings)


async def _check_default_user(pool: Pool, keys: Keys, version: ServerVersion) -> None:
    what = "the default user's rights"
    try:
        for command in _writes(keys):
            for reply in await pool.call_each("ACL", "DRYRUN", "default", *command):
                if reply != b"OK":
                    raise UnsafeServer(
                        what,
                        cast("bytes", reply).decode(errors="replace"),
                        f"{version} to read its file as a user that may do all: ACL SETUSER default ~* &* +@all, which"
                        " may stay off or have a password; and ACL SAVE, or the same in the server's file. Valkey 9.1.2"
                        " and newer need no such thing",
                    )
    except Refused as refusal:
        _warn(
            f"it could not be seen whether the default user may write ({refusal.code}): if it may not, {version}"
            " forgets the log when it starts. Allow this user ACL DRYRUN, or use Valkey 9.1.2 or newer"
        )


def _writes(keys: Keys) -> Sequence[Sequence[Argument]]:
    """Each command that a group of ours may hold in the file."""
    key = keys.sessions(0)  # any will do: their types do not count
    return (
        ("XADD", key, "1-1", "f", "v"),
        ("XDEL", key, "1-1"),
        ("XTRIM", key, "MINID", "1"),
        ("XSETID", key, "1-1"),
        ("XGROUP", "CREATE", key, "g", "0"),
        ("XCLAIM", key, "g", "c", "0", "1-1"),
        ("XACK", key, "g", "1-1"),
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
        ("PEXPIREAT", key, "1"),
    )


def _warn(text: str) -> None:
    warn(text, DurabilityWarning, stacklevel=2)
