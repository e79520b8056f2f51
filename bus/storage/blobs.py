"""What a blob store is: bytes by name, written once and never changed."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

__all__ = ("BlobHead", "BlobStore", "store_at")

D = TypeVar("D")
U = TypeVar("U")


class BlobHead(NamedTuple):
    """What a store knows of a blob without reading it."""

    size_bytes: int
    content_type: str | None = None
    """None if the store keeps none"""


class BlobStore(Protocol):
    """A place for blobs. Any number of processes may write the same at once; none of them reads half a blob.

    A name tells the content, so a blob of the same size is taken for the same bytes. One of another size is damaged,
    and is replaced.

    Every method raises Unavailable if the store cannot be reached or refuses, and SetupError if it does not let us in
    or does not exist.
    """

    async def put_if_absent(self, name: str, data: bytes, *, content_type: str | None = None) -> None:
        """Keep these bytes; they are safe when it returns. Cancelling it leaves all of them or none.

        Args:
            content_type: for a store that hands its blobs to others; None is any bytes.
        """
        ...

    async def get(self, name: str, *, limit_bytes: int | None = None) -> bytes | None:
        """Return the bytes, not verified; None if there are none.

        Raises:
            MessageTooLarge: there are more than `limit_bytes`; they were not read.
        """
        ...

    async def head(self, name: str) -> BlobHead | None:
        """Return what is known of a blob without reading it; None if there is none."""
        ...

    async def names(self, folder: str) -> list[str]:
        """Return the names in a folder, in order; none if there is no such folder."""
        ...

    async def delete(self, name: str) -> None:
        """Have no blob under this name."""
        ...

    async def clear(self, folder: str) -> None:
        """Have nothing in this folder, whatever its name. Broken off it leaves some."""
        ...


def store_at(place: str, in_directory: Callable[[Path], D], at_url: Callable[[str], U]) -> D | U:
    """Return the store that a command line names: by a URL such as `s3://bucket/prefix`, or by a directory's path."""
    return at_url(place) if "://" in place else in_directory(Path(place))
