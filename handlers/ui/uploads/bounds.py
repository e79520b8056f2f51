"""Bounds of uploads, with their defaults. Times are in seconds."""

from dataclasses import dataclass

from lanebus.bus.errors import check_bounds

__all__ = ("DEFAULT_UPLOAD_BOUNDS", "UploadBounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadBounds:
    """Bounds of the uploads of one server."""

    file_bytes: int = 16_777_216
    """maximum size of an uploaded file. `UiBounds.media_bytes` bounds what can be read again"""
    piece_bytes: int = 1_048_576
    """maximum size of a piece. Proxies often refuse larger bodies"""
    buffer_bytes: int = 65_536
    """bytes of a piece that are held in memory before they are written to disk; one chunk more may be"""
    files: int = 20
    """maximum number of uploads of one principal"""
    principal_bytes: int = 67_108_864
    """maximum size of the uploads of one principal together, without those that a message has named"""
    all_files: int = 1_000
    """maximum number of uploads of all principals"""
    all_bytes: int = 1_073_741_824
    """maximum size of the uploads of all principals together, without those that a message has named"""
    idle_seconds: float = 600.0
    """If a principal has too many uploads, one without a new piece for this time is removed."""
    age_seconds: float = 86_400.0
    """An upload without a new piece for this time is removed. Until then, a message can name it again."""
    sweep_seconds: float = 600.0
    """pause between two removals of old uploads"""
    lock_seconds: float = 5.0
    """longest wait for another process that adds or removes an upload"""

    def __post_init__(self) -> None:
        check_bounds(self, "bounds.uploads")


DEFAULT_UPLOAD_BOUNDS = UploadBounds()
