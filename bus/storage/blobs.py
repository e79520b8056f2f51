"""The protocol of a blob store, and the store in an object store: S3, Google Cloud Storage or Azure.

A blob is bytes under a name, written once and never changed. `Objects` needs the package obstore, in the extra `s3`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from anyio.to_thread import run_sync

from lanebus.bus.errors import InvalidArgument, MessageTooLarge, MissingExtra, SetupError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Generator
    from datetime import timedelta
    from typing import Literal

    from obstore import Attributes
    from obstore.store import ObjectStore


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


# Store blobs in an object store: S3, Google Cloud Storage or Azure. Needs the package obstore, in the extra `s3`.
#
# Errors of obstore are replaced by `SetupError` or `Unavailable`. The text of these errors is the bus's own: obstore's
# text contains addresses of the store.

_SCHEMES = ("s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss", "http", "https", "file", "memory")
"""schemes of URLs that obstore knows"""


def object_store_at(url: str, what: str) -> ObjectStore:
    """Return the store at a URL: `s3://bucket/prefix`, `gs://…`, `az://…` or `memory:///`. Does not connect yet.

    Credentials, region and endpoint come from environment variables such as AWS_REGION.

    Args:
        url: URL of the store.
        what: name of the store in error texts, such as "media store".

    Raises:
        SetupError: the URL has another scheme, or obstore does not support the URL.
        MissingExtra: obstore is not installed.
    """
    before, slashes, _ = url.partition("://")
    scheme = before if slashes else ""
    if scheme.lower() not in _SCHEMES:  # before the extra is asked for, which would not help
        known = ", ".join(f"{each}://" for each in _SCHEMES)
        raise SetupError(
            f"{what}: unknown scheme {scheme!r}",
            f"use the path of a directory, or a URL that begins with one of {known}",
        )
    try:
        from obstore.exceptions import BaseError  # noqa: PLC0415  # an extra
        from obstore.store import from_url  # noqa: PLC0415
    except ModuleNotFoundError:
        raise MissingExtra("obstore", "s3") from None
    try:
        return from_url(url)
    except (BaseError, ValueError):
        raise SetupError(f"{what}: not a supported URL", "give one such as s3://bucket/prefix") from None


class Objects:
    """A `BlobStore` in an object store. A blob's name is its path below the store's prefix."""

    def __init__(self, store: ObjectStore, what: str) -> None:
        """
        Args:
            store: a store of the package obstore.
            what: name of the store in error texts, such as "media store".
        """
        if isinstance(store, str | int | Path | None):
            raise InvalidArgument("store", store, "pass a store of the package obstore; `from_url` takes a URL")
        self._store, self._what = store, what

    async def put_if_absent(self, name: str, data: bytes, *, content_type: str | None = None) -> None:
        """See `BlobStore`. The bytes are sent in one request, so the server stores all of them or none."""
        head = await self.head(name)
        if head is None:
            await self._put(name, data, content_type, "create")
        elif head.size_bytes != len(data):
            await self._put(name, data, content_type, "overwrite")

    async def get(self, name: str, *, limit_bytes: int | None = None) -> bytes | None:
        """See `BlobStore`."""
        import obstore  # noqa: PLC0415

        try:
            with self._translated():
                answer = await obstore.get_async(self._store, name)
                if limit_bytes is not None and answer.meta["size"] > limit_bytes:
                    raise MessageTooLarge(answer.meta["size"], limit_bytes)
                return bytes(await answer.bytes_async())
        except FileNotFoundError:
            return None

    async def head(self, name: str) -> BlobHead | None:
        """See `BlobStore`."""
        import obstore  # noqa: PLC0415

        try:
            with self._translated():
                answer = await obstore.get_async(self._store, name, options={"head": True})
        except FileNotFoundError:
            return None
        return BlobHead(answer.meta["size"], answer.attributes.get("Content-Type"))

    async def names(self, folder: str) -> list[str]:
        """See `BlobStore`. Subfolders are listed too."""
        import obstore  # noqa: PLC0415

        try:
            with self._translated():
                # The stub mentions a type of a package that is not installed.
                pages = obstore.list(self._store, folder, chunk_size=1000)  # pyright: ignore[reportUnknownMemberType]
                return sorted([meta["path"] async for page in pages for meta in page])
        except FileNotFoundError:
            return []

    async def delete(self, name: str) -> None:
        """See `BlobStore`."""
        import obstore  # noqa: PLC0415

        with self._translated(), suppress(FileNotFoundError):
            await obstore.delete_async(self._store, name)

    async def clear(self, folder: str) -> None:
        """See `BlobStore`."""
        from obstore.store import LocalStore  # noqa: PLC0415

        for name in await self.names(folder):
            await self.delete(name)
        if isinstance(self._store, LocalStore):  # other stores have no folders, only names
            with suppress(OSError):  # it does not exist, or another process has written into it meanwhile
                await run_sync(Path(self._store.prefix or "/", folder).rmdir)

    async def sign(self, name: str, duration: timedelta) -> str | None:
        """Return a signed URL with which any client can read the blob for `duration`.

        Return None if the store has no signed URLs.
        """
        import obstore  # noqa: PLC0415
        from obstore.store import AzureStore, GCSStore, S3Store  # noqa: PLC0415

        if not isinstance(self._store, S3Store | GCSStore | AzureStore):
            return None
        with self._translated():
            return await obstore.sign_async(self._store, "GET", name, duration)

    async def _put(
        self, name: str, data: bytes, content_type: str | None, mode: Literal["create", "overwrite"]
    ) -> None:
        import obstore  # noqa: PLC0415
        from obstore.exceptions import AlreadyExistsError, NotSupportedError  # noqa: PLC0415
        from obstore.store import LocalStore  # noqa: PLC0415

        is_local = isinstance(self._store, LocalStore)  # files have no attributes, so obstore would refuse them
        # The type becomes a header. One that cannot, such as one with a line break, is left out.
        kept = content_type if content_type is not None and _HEADER.fullmatch(content_type) else _OCTETS
        # Blobs are served as attachments: a browser that opens a signed URL saves foreign content and never shows it.
        attributes: Attributes | None = (
            None if is_local else {"Content-Type": kept, "Content-Disposition": "attachment"}
        )
        try:
            with self._translated(), suppress(AlreadyExistsError):
                try:
                    await obstore.put_async(
                        self._store, name, data, attributes=attributes, mode=mode, use_multipart=False
                    )
                except (NotSupportedError, NotImplementedError):
                    # The server has no conditional writes. A concurrent writer writes the same bytes.
                    await obstore.put_async(self._store, name, data, attributes=attributes, use_multipart=False)
        except FileNotFoundError:
            raise SetupError(f"{self._what}: the bucket does not exist") from None

    @contextmanager
    def _translated(self) -> Generator[None, None, None]:
        """Replace errors of obstore by errors of the bus. FileNotFoundError passes through."""
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError  # noqa: PLC0415

        try:
            yield
        except FileNotFoundError:
            raise
        except (PermissionDeniedError, UnauthenticatedError, PermissionError) as error:
            raise SetupError(f"{self._what}: {type(error).__name__}") from None
        except (BaseError, OSError, NotImplementedError) as error:
            raise Unavailable(f"{self._what}: {type(error).__name__}") from None


_OCTETS = "application/octet-stream"

_HEADER = re.compile(r"[!-~](?:[ -~]{0,253}[!-~])?")
