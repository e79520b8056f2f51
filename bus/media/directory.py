"""Media in a directory: one file each, `ab/cd/<sha256>`, written beside its place and moved there whole.

Paths are made from addresses that were checked, never from a name that somebody gave.
"""

from pathlib import Path

from bus.errors import MediaMissing
from bus.media.store import MediaHead, check_sha256, sha256_of, verified
from bus.storage import Folder

__all__ = ("DirectoryMedia",)


class DirectoryMedia:
    """See `MediaStore`. The directory is made where it is missing, for its owner alone; so are the files.

    Work is done by threads; a cancelled call waits for its own to end.
    """

    def __init__(self, path: Path) -> None:
        self._folder = Folder(path, "media directory")

    async def put_if_absent(self, data: bytes, *, mime_type: str | None = None) -> str:
        """See `MediaStore`. The bytes are on disk, and so is their name, when it returns."""
        del mime_type  # the reference in the log has it
        sha256 = await sha256_of(data)
        await self._folder.put_if_absent(_name(sha256), data)
        return sha256

    async def get(self, sha256: str) -> bytes:
        """See `MediaStore`."""
        data = await self._folder.get(_name(sha256))
        if data is None:
            raise MediaMissing(sha256)
        return await verified(sha256, data)

    async def head(self, sha256: str) -> MediaHead | None:
        """See `MediaStore`."""
        size_bytes = await self._folder.size_bytes(_name(sha256))
        return None if size_bytes is None else MediaHead(size_bytes)

    async def delete(self, sha256: str) -> bool:
        """See `MediaStore`."""
        return await self._folder.delete(_name(sha256))


def _name(sha256: str) -> str:
    return f"{check_sha256(sha256)[:2]}/{sha256[2:4]}/{sha256}"
