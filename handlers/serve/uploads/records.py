"""One upload: its form in JSON, and its files. A place is the path of the files without their suffix."""

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Literal, TypeAlias

from pydantic import TypeAdapter

from lanebus.bus.storage import FILE

# An upload, and its form in JSON.

UploadState: TypeAlias = Literal["open", "complete", "stored"]
"""`open`: bytes are missing, or were not checked. `complete`: all bytes are there and were checked. `stored`: a message
has named it, and the media store has the bytes"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A file of one principal for one session."""

    session: str
    sha256: str
    """SHA-256 of the whole file"""
    size_bytes: int
    mime_type: str | None
    """what the client says, until all bytes are there; then what the first bytes show, if they show a type"""
    filename: str | None
    state: UploadState = "open"
    offset: int = 0
    """number of bytes that have arrived"""

    @property
    def is_complete(self) -> bool:
        """Whether all bytes have arrived and have the right SHA-256."""
        return self.state != "open"

    @property
    def held_bytes(self) -> int:
        """Bytes that it needs on disk, now or when it is complete."""
        return 0 if self.state == "stored" else self.size_bytes

    @staticmethod
    def key_of(session: str, digest: str) -> str:
        """Return the name of an upload on disk, which is safe in any file system."""
        return sha256(f"{session} {digest}".encode()).hexdigest()

    def to_json(self) -> bytes:
        """Return what is kept on disk."""
        return _RECORD.dump_json(self)

    @classmethod
    def from_json(cls, data: bytes) -> "Upload":
        """Return the upload of a record. Raises ValueError if it is no record."""
        return _RECORD.validate_json(data)


def owner_key(principal: str) -> str:
    """Return the name of a principal's folder, which is safe in any file system."""
    return sha256(principal.encode()).hexdigest()


_RECORD = TypeAdapter(Upload)


# Read and write the files of one upload. A place is the path of its files without their suffix.
#
# | File | Holds |
# |---|---|
# | `….json` | the record, see `Upload` |
# | `….part` | the bytes so far; a writer holds its lock |


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
