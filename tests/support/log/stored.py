"""Stored entries, for tests that write them without the bus."""

from zlib import crc32

from lanebus import Lane
from lanebus.bus.wire.codec import IMPORTED, imported_seed, seed_of


def header(
    lane: Lane,
    body: bytes | str,
    *,
    version: int = 1,
    milliseconds: int = 1_700_000_000_000,
    producer: str = "me",
    token: str = "0_i",  # noqa: S107  # no secret: it names an incarnation
    imported: bool = False,
) -> str:
    """Return an entry's header as the bus writes it, with a valid checksum."""
    data = body.encode() if isinstance(body, str) else body
    seed, mark = seed_of(version, producer, lane), ""
    if imported:
        seed, mark = imported_seed(seed), IMPORTED.decode()
    return f"{version} {milliseconds} {producer} {token} {mark}{crc32(data, seed)}"
