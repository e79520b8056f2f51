"""The state of a server: its version, its memory, and when it writes to the disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from lanebus.bus.errors import Refused
from lanebus.bus.servers.durability import ServerVersion, server_infos

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lanebus.bus.servers.pool import Pool
    from lanebus.bus.servers.replies import Reply

__all__ = ("Fsync", "PrimaryStatus", "read_primaries")

Fsync = Literal["always", "everysec", "no", "off", "unknown"]
"""The server's `appendfsync`; "off" without an append-only file, "unknown" if the user may not read the setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimaryStatus:
    """State of one primary."""

    address: str
    """where this process finds it, as `host:port` or the path of a unix socket"""
    product: str
    """"Valkey" or "Redis\""""
    version: str
    """version of the server, such as "9.1.2\""""
    fsync: Fsync
    memory_bytes: int
    """bytes of memory in use"""
    memory_limit_bytes: int
    """`maxmemory`; 0 means no limit"""


async def read_primaries(pool: Pool) -> tuple[PrimaryStatus, ...]:
    """Read the state of each primary.

    Raises:
        Refused: the user may not run INFO.
        Unavailable: a server did not answer.
    """
    infos = await server_infos(pool)
    try:
        settings = await pool.call_each("CONFIG", "GET", "appendfsync")
    except Refused:
        settings = {}
    return tuple(_status(address, info, settings.get(address)) for address, info in infos.items())


def _status(address: str, info: Mapping[str, str], setting: Reply) -> PrimaryStatus:
    version = ServerVersion.of(info)
    words = cast("Sequence[bytes]", setting or ())
    return PrimaryStatus(
        address=address,
        product=version.name,
        version=".".join(map(str, version.number)),
        fsync=_fsync(info, words[1].decode() if len(words) == 2 else ""),
        memory_bytes=_number(info.get("used_memory")),
        memory_limit_bytes=_number(info.get("maxmemory")),
    )


def _fsync(info: Mapping[str, str], mode: str) -> Fsync:
    if info.get("aof_enabled") == "0":
        return "off"
    match mode:
        case "always" | "everysec" | "no":
            return mode
        case _:
            return "unknown"


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0
