"""Read a file as inline media in a worker thread."""

from functools import partial
from pathlib import Path

from lanebus.bus.messages.media import MediaRef
from lanebus.bus.messages.media_checks import FILE_LIMIT_BYTES
from lanebus.bus.threads import run_in_thread

__all__ = ("media_from_file",)


async def media_from_file(
    path: Path | str,
    *,
    mime_type: str | None = None,
    limit_bytes: int = FILE_LIMIT_BYTES,
    within: Path | None = None,
) -> MediaRef:
    """Read a file as inline media, in a worker thread. See `MediaRef.from_file` for the arguments and errors.

    A cancelled call waits for the thread to end.
    """
    read = partial(MediaRef.from_file, path, mime_type=mime_type, limit_bytes=limit_bytes, within=within)
    return await run_in_thread(read)
