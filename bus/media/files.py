"""A file as inline media, read by another thread."""

from functools import partial
from pathlib import Path

from anyio.to_thread import run_sync

from lanebus.bus.messages.media import MediaRef
from lanebus.bus.messages.media_checks import FILE_LIMIT_BYTES

__all__ = ("media_from_file",)


async def media_from_file(
    path: Path | str,
    *,
    mime_type: str | None = None,
    limit_bytes: int = FILE_LIMIT_BYTES,
    within: Path | None = None,
) -> MediaRef:
    """See `MediaRef.from_file`; the event loop goes on meanwhile."""
    read = partial(MediaRef.from_file, path, mime_type=mime_type, limit_bytes=limit_bytes, within=within)
    return await run_sync(read)
