"""Read and write the files of one upload. A place is the path of its files without their suffix.

| File | Holds |
|---|---|
| `….json` | the record, see `Upload` |
| `….part` | the bytes so far; a writer holds its lock |
"""

import os
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from secrets import token_hex

from lanebus.bus.storage.descriptors import FILE
from lanebus.handlers.ui.uploads.upload import Upload

__all__ = ("create", "digest_of", "part_of", "read", "remove", "touched", "write")


def part_of(place: Path) -> Path:
    """Return the path of the bytes."""
    return place.with_suffix(".part")


def create(place: Path, upload: Upload) -> None:
    """Write the record of a new upload without bytes."""
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(part_of(place), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | FILE, 0o600))
    write(place, upload)


def read(place: Path) -> Upload | None:
    """Return an upload with its offset; None if there is none, or its record is damaged."""
    try:
        found = Upload.from_json(place.with_suffix(".json").read_bytes())
        size = found.size_bytes if found.state == "stored" else part_of(place).stat().st_size
    except (FileNotFoundError, ValueError):
        return None
    return replace(found, offset=size)


def write(place: Path, upload: Upload) -> None:
    """Replace the record."""
    new = place.with_suffix(f".{token_hex(8)}.new")
    new.write_bytes(upload.to_json())
    new.replace(place.with_suffix(".json"))


def remove(place: Path) -> None:
    """Remove the files of an upload, and the folder if it is empty."""
    for suffix in (".json", ".part"):
        place.with_suffix(suffix).unlink(missing_ok=True)
    with suppress(OSError):  # others are left
        place.parent.rmdir()


def touched(place: Path) -> float:
    """Return the Unix time of the newest piece; 0 if there are no files."""
    times = list[float]()
    for suffix in (".json", ".part"):
        with suppress(FileNotFoundError):
            times.append(place.with_suffix(suffix).stat().st_mtime)
    return max(times, default=0.0)


def digest_of(file: int) -> tuple[str, bytes]:
    """Return the SHA-256 of an open file, and its first bytes."""
    digest, head, at = sha256(), b"", 0
    while piece := os.pread(file, 1_048_576, at):
        head = head or piece[:8192]
        digest.update(piece)
        at += len(piece)
    return digest.hexdigest(), head
