"""The checksum of an entry, which tells a byte that changed on a disk or in memory from one that was written.

It is the last word of an entry's header: the CRC-32 of version, producer, lane and the message's JSON. The publishing
client computes it, and the script only stores it. Time and position are not in it, as only the script knows them and
hashing there is slow. Positions are proven by their order, and incarnations by the position at which each begins.

It is no signature: a client that may write to the server can compute it too.
"""

from functools import lru_cache
from zlib import crc32

from lanebus.bus.messages.lanes import Lane

__all__ = ("seed_of",)


@lru_cache(maxsize=1024)
def seed_of(version: int, producer: str, lane: Lane) -> int:
    """Return what the CRC of a message's JSON goes on from."""
    return crc32(f"{version} {producer} {lane.value} ".encode())
