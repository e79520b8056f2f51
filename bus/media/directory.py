"""Media in a directory: one file each, `ab/cd/<sha256>`, written beside its place and moved there whole.

Paths are made from addresses that were checked, never from a name that somebody gave. A process that is killed while it
writes leaves a file `*.part`, which nobody reads.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

from anyio.to_thread import run_sync

from bus.errors import MediaMissing, Unavailable
from bus.media.store import MediaHead, check_sha256, sha256_of, verified

__all__ = ("DirectoryMedia",)

T = TypeVar("T")


class DirectoryMedia:
    """See `MediaStore`. The directory is made where it is missing, for its owner alone; so are the files.

    Work is done by threads; a cancelled call waits for its own to end.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    async def put_if_absent(self, data: bytes, *, mime_type: str | None = None) -> str:
        """See `MediaStore`. The bytes are on disk, and so is their name, when it returns."""
        del mime_type  # the reference in the log has it
        sha256 = await sha256_of(data)
        try:
            await self._run(lambda: self._write(sha256, data))
        except FileNotFoundError:
            raise Unavailable(f"media directory {self._path}: somebody removed a folder of it") from None
        return sha256

    async def get(self, sha256: str) -> bytes:
        """See `MediaStore`."""
        place = self._place(check_sha256(sha256))
        try:
            data = await self._run(place.read_bytes)
        except FileNotFoundError:
            raise MediaMissing(sha256) from None
        return await verified(sha256, data)

    async def head(self, sha256: str) -> MediaHead | None:
        """See `MediaStore`."""
        place = self._place(check_sha256(sha256))
        try:
            return MediaHead((await self._run(place.stat)).st_size)
        except FileNotFoundError:
            return None

    async def delete(self, sha256: str) -> None:
        """See `MediaStore`."""
        place = self._place(check_sha256(sha256))
        await self._run(lambda: place.unlink(missing_ok=True))

    def _place(self, sha256: str) -> Path:
        return self._path / sha256[:2] / sha256[2:4] / sha256

    def _write(self, sha256: str, data: bytes) -> None:
        place = self._place(sha256)
        if place.is_file() and place.stat().st_size == len(data):
            return
        for folder in (self._path, place.parent.parent, place.parent):
            folder.mkdir(mode=0o700, exist_ok=True, parents=folder is self._path)
        part = place.with_name(f"{sha256}.{token_hex(8)}.part")
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            part.replace(place)  # whoever else wrote it meanwhile wrote the same
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise
        for folder in (place.parent, place.parent.parent, self._path):
            _sync(folder)

    async def _run(self, step: Callable[[], T]) -> T:
        try:
            return await run_sync(step)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise Unavailable(f"media directory {self._path}: {error.strerror or type(error).__name__}") from None


def _sync(folder: Path) -> None:
    """Have a folder's entries on disk. Windows has no such thing, and needs none."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
