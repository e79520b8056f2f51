"""Blobs as files below a directory, each written beside its place and moved there whole.

A process that is killed while it writes leaves a file `*.part`, which is never read.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from secrets import token_hex
from typing import TypeVar

from anyio.to_thread import run_sync

from lanebus.bus.errors import MessageTooLarge, Unavailable
from lanebus.bus.storage.blobs import BlobHead

__all__ = ("Folder",)

T = TypeVar("T")

_PART = ".part"


class Folder:
    """See `BlobStore`. The directory is made if it is missing, for its owner alone; so are the files.

    Work is done by threads; a cancelled call waits for its own to end.
    """

    def __init__(self, path: Path, what: str) -> None:
        """`what` it is called in errors, such as "media directory"."""
        self._path, self._what = path, what

    async def put_if_absent(self, name: str, data: bytes, *, content_type: str | None = None) -> None:
        """See `BlobStore`. The bytes are on disk, and so is their name, when it returns."""
        del content_type  # files have none
        try:
            await self._run(lambda: self._write(self._path / name, data))
        except FileNotFoundError:
            raise Unavailable(f"{self._what} {self._path}: somebody removed a folder of it") from None

    async def get(self, name: str, *, limit_bytes: int | None = None) -> bytes | None:
        """See `BlobStore`."""
        try:
            return await self._run(lambda: _read(self._path / name, limit_bytes))
        except FileNotFoundError:
            return None

    async def head(self, name: str) -> BlobHead | None:
        """See `BlobStore`."""
        try:
            return BlobHead((await self._run((self._path / name).stat)).st_size)
        except FileNotFoundError:
            return None

    async def names(self, folder: str) -> list[str]:
        """See `BlobStore`. Folders inside of this one are not listed."""
        try:
            found = await self._run(
                lambda: [entry.name for entry in os.scandir(self._path / folder) if entry.is_file()]
            )
        except FileNotFoundError:
            return []
        return sorted(str(PurePosixPath(folder, name)) for name in found if not name.endswith(_PART))

    async def delete(self, name: str) -> None:
        """See `BlobStore`. The file is gone also after a crash."""
        with suppress(FileNotFoundError):
            await self._run(lambda: _delete(self._path / name))

    async def clear(self, folder: str) -> None:
        """See `BlobStore`. Files that a killed process left half written go too."""
        with suppress(FileNotFoundError):
            await self._run(lambda: _clear(self._path / folder))

    def _write(self, place: Path, data: bytes) -> None:
        inner = place.relative_to(self._path).parents  # the innermost first, the directory itself last
        folders = [self._path / folder for folder in inner]
        if not (place.is_file() and place.stat().st_size == len(data)):
            _move_in(place, data, folders)
        # Also where it was there: who put it there may have been killed before the name was on disk.
        for folder in folders:
            _sync(folder)

    async def _run(self, step: Callable[[], T]) -> T:
        try:
            return await run_sync(step)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise Unavailable(f"{self._what} {self._path}: {error.strerror or type(error).__name__}") from None


def _move_in(place: Path, data: bytes, folders: Sequence[Path]) -> None:
    for folder in reversed(folders):
        folder.mkdir(mode=0o700, exist_ok=True, parents=folder is folders[-1])
    part = place.with_name(f"{place.name[:100]}.{token_hex(8)}{_PART}")
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


def _read(place: Path, limit_bytes: int | None) -> bytes:
    with place.open("rb") as file:
        if limit_bytes is not None and (size := os.fstat(file.fileno()).st_size) > limit_bytes:
            raise MessageTooLarge(size, limit_bytes)
        return file.read()


def _delete(place: Path) -> None:
    place.unlink()
    _sync(place.parent)


def _clear(folder: Path) -> None:
    for entry in list(os.scandir(folder)):
        if not entry.is_dir(follow_symlinks=False):
            Path(entry).unlink(missing_ok=True)
    _sync(folder)


def _sync(folder: Path) -> None:
    """Have a folder's entries on disk. Windows has no such thing, and needs none."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
