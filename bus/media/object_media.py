"""Media in an object store, S3, Google's or Azure's, by the package obstore: the extra `s3`.

An object is `sha256/ab/<sha256>` below the store's own prefix. It carries its type, and says that it is an attachment:
a browser that follows a signed URL saves it, and does not show what a stranger may have written for it.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from bus.errors import MediaMissing, MissingExtra, SetupError, Unavailable
from bus.media.store import MediaHead, check_sha256, sha256_of, verified

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Literal

    from obstore import Attributes
    from obstore.store import ObjectStore

__all__ = ("ObjectMedia",)

_OCTETS = "application/octet-stream"


class ObjectMedia:
    """See `SigningStore`. A store in memory or in a directory has no signed URLs."""

    def __init__(self, store: ObjectStore) -> None:
        """Takes a store as the package `obstore` makes them, with its credentials, time-outs and retries."""
        self._store = store

    @classmethod
    def from_url(cls, url: str) -> Self:
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
            return cls(from_url(url))
        except (BaseError, ValueError):
            raise SetupError("media store: not a URL that it knows; want one such as s3://bucket/prefix") from None

    async def put_if_absent(self, data: bytes, *, mime_type: str | None = None) -> str:
        """See `MediaStore`. Sent in one piece, which a server takes whole or not at all."""
        sha256 = await sha256_of(data)
        head = await self.head(sha256)
        if head is None:
            await self._put(sha256, data, mime_type, "create")
        elif head.size_bytes != len(data):  # damaged, and these bytes are right
            await self._put(sha256, data, mime_type, "overwrite")
        return sha256

    async def get(self, sha256: str) -> bytes:
        """See `MediaStore`."""
        import obstore  # noqa: PLC0415  # who made the store has it

        path = _path(sha256)
        try:
            with _translated():
                answer = await obstore.get_async(self._store, path)
                data = bytes(await answer.bytes_async())
        except FileNotFoundError:
            raise MediaMissing(sha256) from None
        return await verified(sha256, data)

    async def head(self, sha256: str) -> MediaHead | None:
        """See `MediaStore`."""
        import obstore  # noqa: PLC0415

        path = _path(sha256)
        try:
            with _translated():
                answer = await obstore.get_async(self._store, path, options={"head": True})
        except FileNotFoundError:
            return None
        return MediaHead(answer.meta["size"], answer.attributes.get("Content-Type"))

    async def delete(self, sha256: str) -> None:
        """See `MediaStore`."""
        import obstore  # noqa: PLC0415

        path = _path(sha256)
        with suppress(FileNotFoundError), _translated():
            await obstore.delete_async(self._store, path)

    async def sign(self, sha256: str, *, seconds: float) -> str | None:
        """See `SigningStore`."""
        import obstore  # noqa: PLC0415
        from obstore.store import AzureStore, GCSStore, S3Store  # noqa: PLC0415

        path = _path(sha256)
        if not isinstance(self._store, S3Store | GCSStore | AzureStore):
            return None
        with _translated():
            return await obstore.sign_async(self._store, "GET", path, timedelta(seconds=seconds))

    async def _put(self, sha256: str, data: bytes, mime_type: str | None, mode: Literal["create", "overwrite"]) -> None:
        import obstore  # noqa: PLC0415
        from obstore.exceptions import AlreadyExistsError, NotSupportedError  # noqa: PLC0415
        from obstore.store import LocalStore  # noqa: PLC0415

        is_local = isinstance(self._store, LocalStore)  # files have no attributes, and it refuses them
        attributes: Attributes | None = (
            None if is_local else {"Content-Type": mime_type or _OCTETS, "Content-Disposition": "attachment"}
        )
        path = _path(sha256)
        try:
            with _translated(), suppress(AlreadyExistsError):
                try:
                    await obstore.put_async(
                        self._store, path, data, attributes=attributes, mode=mode, use_multipart=False
                    )
                except (NotSupportedError, NotImplementedError):
                    # A server without conditional writes. Whoever else writes here writes the same.
                    await obstore.put_async(self._store, path, data, attributes=attributes, use_multipart=False)
        except FileNotFoundError:
            raise SetupError("media store: the bucket does not exist") from None


@contextmanager
def _translated() -> Generator[None, None, None]:
    """Errors of the package as ours, without their text, which quotes addresses; FileNotFoundError stays as it is."""
    from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError  # noqa: PLC0415

    try:
        yield
    except FileNotFoundError:
        raise
    except (PermissionDeniedError, UnauthenticatedError, PermissionError) as error:
        raise SetupError(f"media store: {type(error).__name__}") from None
    except (BaseError, OSError, NotImplementedError) as error:
        raise Unavailable(f"media store: {type(error).__name__}") from None


def _path(sha256: str) -> str:
    return f"sha256/{check_sha256(sha256)[:2]}/{sha256}"
