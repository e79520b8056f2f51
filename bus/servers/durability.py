"""Check by version and settings whether a server keeps acknowledged entries through a crash.

Two server bugs lose acknowledged entries while the append-only file is loaded. Neither bug shows while the server runs,
so the check uses the version.

**A torn group.** A script's writes are one group in the file, MULTI … EXEC. A power cut may leave a part of the last
group, which was not acknowledged. Affected servers cut off the torn command and keep the beginning of the group. The
next writes then become part of that group. The next start applies all writes of the group. It then refuses an
acknowledged entry, because an entry of the torn group already has the same id. Fixed in Valkey 8.0.11, 8.1.10, 9.0.6
and 9.1.2 (valkey-io/valkey#4342), and in no known release of Redis. Tested: Redis 7.0.15 and 8.2.3, Valkey 9.0.0, 9.1.0
and 9.1.1 lose entries; Valkey 9.1.2 does not. With `aof-load-truncated no` a torn file stops the server, and its
checker removes the whole group.

**A default user without rights.** Affected servers check each command of a group against the rights of the default
user, and silently drop the commands that this user may not run. So a restricted default user, which is good practice,
empties the log. Fixed in Valkey 8.1.10 and 9.1.2 (valkey-io/valkey#3984) and in Redis 8.6 (redis/redis#14545); tested
on the versions above. A default user that is off and has all rights is safe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast
from warnings import warn

from lanebus.bus.errors import Refused, UnsafeServer
from lanebus.bus.servers.rights import write_examples

if TYPE_CHECKING:
    from lanebus.bus.servers.pool import Pool
    from lanebus.bus.wire.keys import Keys

__all__ = ("DurabilityWarning", "ServerVersion", "check_durability", "loss_risks", "read_info", "server_infos")


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
        _warn("the server keeps no append-only file: acknowledged messages may be lost")
    versions = [ServerVersion.of(info) for info in infos if info.get("aof_enabled") == "1"]
    asking = next((version for version in versions if version.asks_default_user), None)
    if asking is not None:
        await _check_default_user(pool, keys, asking)
    for risk in await loss_risks(pool, infos):
        _warn(risk)


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
        _warn(
            f"it could not be seen whether the default user may write ({refusal.code}): if it may not, {version}"
            " loses the log when it starts. Allow this user ACL DRYRUN, or use Valkey 9.1.2 or newer"
        )


def _warn(text: str) -> None:
    warn(text, DurabilityWarning, stacklevel=2)
