"""The checksum of an entry, which detects bytes that changed on disk or in memory.

It is the last word of an entry's header: the CRC-32 of version, producer, lane and the message's JSON. The publishing
client computes it, and the script only stores it. It does not cover time and position: only the script knows them, and
hashing in the script is slow. Positions are checked by their order, incarnations by the position at which each begins.

It is not a signature: any client that can write to the server can compute it.
"""

from functools import lru_cache
from zlib import crc32

from lanebus.bus.messages.lanes import Lane

__all__ = ("seed_of",)


@lru_cache(maxsize=1024)
def seed_of(version: int, producer: str, lane: Lane) -> int:
    """Return the CRC of version, producer and lane, with which the CRC of the message's JSON starts."""
    return crc32(f"{version} {producer} {lane.value} ".encode())
