"""An upload, and its form in JSON."""

from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, TypeAlias

from pydantic import TypeAdapter

__all__ = ("Upload", "UploadState", "owner_key")

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
