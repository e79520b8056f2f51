"""Blobs in an object store, S3, Google's or Azure's, by the package obstore: the extra `s3`.

Errors are ours and carry none of the package's text, which quotes addresses.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from lanebus.bus.errors import MessageTooLarge, MissingExtra, SetupError, Unavailable
from lanebus.bus.storage.blobs import BlobHead

if TYPE_CHECKING:
    from collections.abc import Generator
    from datetime import timedelta
    from typing import Literal

    from obstore import Attributes
    from obstore.store import ObjectStore

__all__ = ("Objects", "object_store_at")


def object_store_at(url: str, what: str) -> ObjectStore:
    """A store by URL: `s3://bucket/prefix`, `gs://…`, `az://…`, `memory:///`. Nothing connects yet.

    Credentials, region and endpoint come from the environment, such as AWS_REGION.

    Raises:
        MissingExtra: the package is not installed.
        SetupError: the URL is none that it knows.
    """
    try:
        from obstore.exceptions import BaseError  # noqa: PLC0415  # an extra
        from obstore.store import from_url  # noqa: PLC0415
    except ModuleNotFoundError:
        raise MissingExtra("obstore", "s3") from None
    try:
        return from_url(url)
    except (BaseError, ValueError):
        raise SetupError(f"{what}: not a URL that it knows; want one such as s3://bucket/prefix") from None


class Objects:
    """See `BlobStore`. A blob's name is its path below the store's own prefix."""

    def __init__(self, store: ObjectStore, what: str) -> None:
        """Takes a store of the package `obstore`, and `what` it is called in errors, such as "media store"."""
        self._store, self._what = store, what

    async def put_if_absent(self, name: str, data: bytes, *, content_type: str | None = None) -> None:
        """See `BlobStore`. The bytes are sent in one piece, which a server takes whole or not at all."""
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
        """See `BlobStore`. Folders inside of this one are listed too."""
        import obstore  # noqa: PLC0415

        try:
            with self._translated():
                # Its stub has a shape more, of a package that is not installed.
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
        for name in await self.names(folder):
            await self.delete(name)

    async def sign(self, name: str, duration: timedelta) -> str | None:
        """Return a URL under which anybody may read for so long; None if this store has no such URLs."""
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

        is_local = isinstance(self._store, LocalStore)  # files have no attributes, and it refuses them
        # An attachment: a browser that follows a signed URL saves it, and shows nothing that a stranger wrote for it.
        attributes: Attributes | None = (
            None if is_local else {"Content-Type": content_type or _OCTETS, "Content-Disposition": "attachment"}
        )
        try:
            with self._translated(), suppress(AlreadyExistsError):
                try:
                    await obstore.put_async(
                        self._store, name, data, attributes=attributes, mode=mode, use_multipart=False
                    )
                except (NotSupportedError, NotImplementedError):
                    # A server without conditional writes. Whoever else writes here writes the same.
                    await obstore.put_async(self._store, name, data, attributes=attributes, use_multipart=False)
        except FileNotFoundError:
            raise SetupError(f"{self._what}: the bucket does not exist") from None

    @contextmanager
    def _translated(self) -> Generator[None, None, None]:
        """Errors of the package as ours; FileNotFoundError stays as it is."""
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
