"""The checksum of an entry, which detects bytes that changed on disk or in memory.

The checksum is the last word of an entry's header: the CRC-32 of version, producer, lane and the message's JSON. The
publishing client computes the checksum, and the script only stores it. Time and position are not covered, because only
the script knows them, and hashing in the script is slow. Positions are checked by their order, and incarnations by the
position at which each of them begins.

The header of an imported entry has the letter `i` before the digits of the checksum. This mark is covered too.

The checksum is not a signature: any client that can write to the server can compute it.
"""

from functools import lru_cache
from zlib import crc32

from lanebus.bus.messages.lanes import Lane

__all__ = ("IMPORTED", "imported_seed", "seed_of")

IMPORTED = b"i"
"""The mark of an imported entry, before the digits of its checksum. It is no word of its own, because scripts rely on
the number of the header's words."""


@lru_cache(maxsize=1024)
def seed_of(version: int, producer: str, lane: Lane) -> int:
    """Return the CRC of version, producer and lane: the initial value for the CRC of a message's JSON."""
    return crc32(f"{version} {producer} {lane.value} ".encode())


@lru_cache(maxsize=64)
def imported_seed(seed: int) -> int:
    """Return the initial value for the CRC of an imported message's JSON.

    Args:
        seed: the value that `seed_of` returns.
    """
    return crc32(b"imported ", seed)
