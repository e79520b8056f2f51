"""The protocol of a blob store: bytes by name, written once and never changed."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

__all__ = ("BlobHead", "BlobStore", "store_at")

D = TypeVar("D")
U = TypeVar("U")


class BlobHead(NamedTuple):
    """Metadata of a blob."""

    size_bytes: int
    content_type: str | None = None
    """None if the store has no content types"""


class BlobStore(Protocol):
    """A store of blobs. Several processes may write the same blob at once; a reader never gets a partial one.

    A name identifies the content. So a blob with the same size is assumed to have the same bytes, and a blob with
    another size is damaged and is replaced.

    Every method raises Unavailable if the store cannot be reached or fails, and SetupError if it denies access or does
    not exist.
    """

    async def put_if_absent(self, name: str, data: bytes, *, content_type: str | None = None) -> None:
        """Store the bytes, unless the blob exists. They are durable on return. Cancellation leaves all of them or none.

        Args:
            name: the blob's name.
            data: the bytes.
            content_type: the media type, if the store keeps one; None means arbitrary bytes.
        """
        ...

    async def get(self, name: str, *, limit_bytes: int | None = None) -> bytes | None:
        """Return the bytes without verifying them; None if there is no such blob.

        Raises:
            MessageTooLarge: the blob has more than `limit_bytes`; it was not read. None means unlimited.
        """
        ...

    async def head(self, name: str) -> BlobHead | None:
        """Return the metadata of a blob; None if there is no such blob."""
        ...

    async def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; an empty list if there is no such folder."""
        ...

    async def delete(self, name: str) -> None:
        """Delete a blob, if it exists."""
        ...

    async def clear(self, folder: str) -> None:
        """Delete all blobs in a folder. Cancellation may leave some."""
        ...


def store_at(place: str, in_directory: Callable[[Path], D], at_url: Callable[[str], U]) -> D | U:
    """Return the store for a command-line argument: a URL such as `s3://bucket/prefix`, or a directory's path.

    Args:
        place: the URL or path.
        in_directory: called with the path.
        at_url: called with the URL.
    """
    return at_url(place) if "://" in place else in_directory(Path(place))
