"""Store blobs as files in a directory. A blob is written to a temporary file, which is then renamed.

If a process is killed while it writes, it leaves a file `*.part`, which is never read.
"""

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from secrets import token_hex
from typing import TypeVar

from anyio.to_thread import run_sync

from lanebus.bus.errors import DirectoryNotCreated, MessageTooLarge, Unavailable
from lanebus.bus.storage.blobs import BlobHead

__all__ = ("FULL", "Folder")

T = TypeVar("T")

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})
"""Disk errors that may pass without a change of a setting, such as a full disk."""

_PART = ".part"


class Folder:
    """A `BlobStore` in a directory. A missing directory is created. Only the owner can read the directory and its
    files.

    Calls run in threads; a cancelled call waits for its thread to end.
    """

    def __init__(self, path: Path, what: str) -> None:
        """
        Args:
            path: the directory.
            what: name of the directory in error texts, such as "media directory".
        """
        self._path, self._what = path, what

    async def put_if_absent(self, name: str, data: bytes, *, content_type: str | None = None) -> None:
        """See `BlobStore`. When the call returns, the bytes and the file's name are on disk."""
        del content_type  # files have no content type
        try:
            await self._run(lambda: self._write(self._path / name, data))
        except FileNotFoundError:
            raise Unavailable(f"{self._what} {self._path}: another program removed one of its folders") from None

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
        """See `BlobStore`. Subfolders are not listed."""
        try:
            found = await self._run(
                lambda: [entry.name for entry in os.scandir(self._path / folder) if entry.is_file()]
            )
        except FileNotFoundError:
            return []
        return sorted(str(PurePosixPath(folder, name)) for name in found if not name.endswith(_PART))

    async def delete(self, name: str) -> None:
        """See `BlobStore`. When the call returns, the deletion is durable."""
        with suppress(FileNotFoundError):
            await self._run(lambda: _delete(self._path / name))

    async def clear(self, folder: str) -> None:
        """See `BlobStore`. Partial files of killed processes are deleted too."""
        with suppress(FileNotFoundError):
            await self._run(lambda: _clear(self._path / folder))

    def _write(self, place: Path, data: bytes) -> None:
        inner = place.relative_to(self._path).parents  # the innermost folder first, the store's directory last
        folders = [self._path / folder for folder in inner]
        if not (place.is_file() and place.stat().st_size == len(data)):
            _write_and_rename(self._what, place, data, folders)
        # This is also needed if the file existed: its writer may have been killed before the name was on disk.
        for folder in folders:
            _sync(folder)

    async def _run(self, step: Callable[[], T]) -> T:
        try:
            return await run_sync(step)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise Unavailable(f"{self._what} {self._path}: {error.strerror or type(error).__name__}") from None


def _write_and_rename(what: str, place: Path, data: bytes, folders: Sequence[Path]) -> None:
    for folder in reversed(folders):
        is_root = folder is folders[-1]
        try:
            folder.mkdir(mode=0o700, exist_ok=True, parents=is_root)
        except OSError as error:
            if not is_root or error.errno in FULL:
                raise
            raise DirectoryNotCreated(what, folder, error.strerror or type(error).__name__) from None
    part = place.with_name(f"{place.name[:100]}.{token_hex(8)}{_PART}")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(place)  # a concurrent writer has written the same bytes
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
    """Flush a folder's entries to disk. Windows has no such call and does not need it."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
