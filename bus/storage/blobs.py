"""The protocol of a blob store. A blob is bytes under a name, written once and never changed."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

__all__ = ("BlobHead", "BlobStore", "plain_name", "store_at")

D = TypeVar("D")
U = TypeVar("U")

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-")


class BlobHead(NamedTuple):
    """Metadata of a blob."""

    size_bytes: int
    content_type: str | None = None
    """media type of the blob; None if the store has no content types"""


class BlobStore(Protocol):
    """A store of blobs. Several processes may write the same blob at once; a reader never gets a partial blob.

    A name identifies the content. So a blob is not stored again if a blob with its name and size exists. An existing
    blob of another size is damaged and is replaced.

    Every method raises Unavailable if the store cannot be reached or fails, and SetupError if the store denies access
    or does not exist.
    """

    async def put_if_absent(self, name: str, data: bytes, *, content_type: str | None = None) -> None:
        """Store the bytes, unless the blob exists. When the call returns, the bytes are durable.

        If the call is cancelled, either all bytes are stored or none.

        Args:
            name: the blob's name.
            data: the bytes.
            content_type: the media type, for stores that keep media types; None means arbitrary bytes.
        """
        ...

    async def get(self, name: str, *, limit_bytes: int | None = None) -> bytes | None:
        """Return the bytes of a blob without verifying them; None if the blob does not exist.

        Raises:
            MessageTooLarge: the blob has more than `limit_bytes`, and was not read. If `limit_bytes` is None, any size
                is read.
        """
        ...

    async def head(self, name: str) -> BlobHead | None:
        """Return the metadata of a blob; None if the blob does not exist."""
        ...

    async def names(self, folder: str) -> list[str]:
        """Return the sorted names of the blobs in a folder; an empty list if the folder does not exist."""
        ...

    async def delete(self, name: str) -> None:
        """Delete a blob. Do nothing if the blob does not exist."""
        ...

    async def clear(self, folder: str) -> None:
        """Delete all blobs in a folder, and the folder itself. If the call is cancelled, some blobs may remain."""
        ...


def store_at(place: str, in_directory: Callable[[Path], D], at_url: Callable[[str], U]) -> D | U:
    """Return the store for a command-line argument: a URL such as `s3://bucket/prefix`, or a directory's path.

    Args:
        place: the URL or path.
        in_directory: returns the store in the directory with a given path.
        at_url: returns the store at a given URL.
    """
    return at_url(place) if "://" in place else in_directory(Path(place))


def plain_name(text: str) -> str:
    """Return `text` encoded in characters that every store allows.

    An upper-case "A" becomes `=41`. Otherwise two names could share a folder on file systems that ignore case. A dot is
    encoded too, so that no name is `..`.
    """
    return "".join(c if c in _PLAIN else "".join(f"={byte:02x}" for byte in c.encode()) for c in text) or "="
