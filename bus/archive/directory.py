"""An archive in a directory: a folder for each session, a file for each segment."""

from pathlib import Path

from bus.archive.store import FILE_LIMIT_BYTES, check_name
from bus.storage import Folder

__all__ = ("DirectoryArchive",)


class DirectoryArchive:
    """See `ArchiveStore`. The directory is made where it is missing, for its owner alone; so are the files."""

    def __init__(self, path: Path) -> None:
        self._folder = Folder(path, "archive directory")

    async def put_if_absent(self, name: str, data: bytes) -> None:
        """See `ArchiveStore`. The bytes are on disk, and so is their name, when it returns."""
        await self._folder.put_if_absent(check_name(name), data)

    async def get(self, name: str) -> bytes | None:
        """See `ArchiveStore`."""
        return await self._folder.get(check_name(name), limit_bytes=FILE_LIMIT_BYTES)

    async def names(self, folder: str) -> list[str]:
        """See `ArchiveStore`."""
        return await self._folder.names(check_name(folder))

    async def delete(self, name: str) -> None:
        """See `ArchiveStore`."""
        await self._folder.delete(check_name(name))

    async def clear(self, folder: str) -> None:
        """See `ArchiveStore`. What was left half written goes too, and what others have put there."""
        await self._folder.clear(check_name(folder))
