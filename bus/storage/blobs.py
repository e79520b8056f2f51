"""Blobs, each written once: the protocol, the store in an object store, and the store in a directory of this user.

A blob is bytes under a name, written once and never changed. `Objects` needs the package obstore, in the extra `s3`.

A blob is written to a temporary file, which is then renamed. If a process is killed while it writes, it leaves a file
`*.part`, which is never read.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath
from secrets import token_hex
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar, cast

from anyio.to_thread import run_sync

from lanebus.bus.concurrency import run_in_thread
from lanebus.bus.errors import (
    DirectoryNotCreated,
    DirectoryNotOwned,
    InvalidArgument,
    MessageTooLarge,
    MissingExtra,
    SetupError,
    Unavailable,
)
from lanebus.bus.storage.ownership import FILE, HAS_DESCRIPTORS, PASS, READ, open_owned, owner_fault

if TYPE_CHECKING:
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


# Store blobs as files in a directory of this user, and a small file of state. No link of another user is followed.


T = TypeVar("T")

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})
"""Disk errors that may pass without a change of a setting, such as a full disk."""

_LINK = frozenset({errno.ELOOP, errno.ENOTDIR})
"""errors of a component that is a symbolic link in place of a folder or file"""

_PART = ".part"


class Folder:
    """A `BlobStore` in a directory. A missing directory is created. Only the owner can read the directory and its
    files.

    The directory and each folder in it must belong to this user or to root, and no other user may write to them. No
    symbolic link is followed. Links on the way to the directory are resolved once, when the store is created.

    Calls run in threads; a cancelled call waits for its thread to end. Every method raises `DirectoryNotOwned` if a
    folder is not as said above, or a blob is no regular file.
    """

    def __init__(self, path: Path, what: str) -> None:
        """
        Args:
            path: the directory.
            what: name of the directory in error texts, such as "media directory".

        Raises:
            SetupError: the system cannot open folders safely. Windows cannot.
        """
        if not HAS_DESCRIPTORS:
            raise SetupError(f"{what}: this system has no directory descriptors", "use an object store")
        absolute = Path(os.path.abspath(path))
        self._path, self._what = Path(os.path.realpath(absolute.parent), absolute.name), what

    async def put_if_absent(self, name: str, data: bytes, *, content_type: str | None = None) -> None:
        """See `BlobStore`. When the call returns, the bytes and the file's name are on disk."""
        del content_type  # files have no content type
        try:
            await self._run(lambda: self._write(PurePosixPath(name), data))
        except FileNotFoundError:
            raise Unavailable(f"{self._what} {self._path}: another program removed one of its folders") from None

    async def get(self, name: str, *, limit_bytes: int | None = None) -> bytes | None:
        """See `BlobStore`."""
        try:
            return await self._run(lambda: self._read(PurePosixPath(name), limit_bytes))
        except FileNotFoundError:
            return None

    async def head(self, name: str) -> BlobHead | None:
        """See `BlobStore`."""
        try:
            return BlobHead(await self._run(lambda: self._size(PurePosixPath(name))))
        except FileNotFoundError:
            return None

    async def names(self, folder: str) -> list[str]:
        """See `BlobStore`. Subfolders and symbolic links are not listed."""
        try:
            found = await self._run(lambda: self._listed(PurePosixPath(folder)))
        except FileNotFoundError:
            return []
        return sorted(str(PurePosixPath(folder, name)) for name in found if not name.endswith(_PART))

    async def delete(self, name: str) -> None:
        """See `BlobStore`. When the call returns, the deletion is durable."""
        with suppress(FileNotFoundError):
            await self._run(lambda: self._delete(PurePosixPath(name)))

    async def clear(self, folder: str) -> None:
        """See `BlobStore`. Partial files of killed processes are deleted too. A folder with subfolders stays."""
        with suppress(FileNotFoundError):
            await self._run(lambda: self._clear(PurePosixPath(folder)))

    # --- in a thread ----------------------------------------------------------------------------------------------

    def _write(self, name: PurePosixPath, data: bytes) -> None:
        with self._entered(name.parent, create=True) as folders:
            try:
                is_stored = _size_at(folders[-1], name.name) == len(data)
            except FileNotFoundError:
                is_stored = False
            if not is_stored:  # this also replaces a link or a pipe of this name
                write_and_rename(folders[-1], name.name, data)
            # This is also needed if the file existed: its writer may have been killed before the name was on disk.
            for folder in reversed(folders):
                os.fsync(folder)

    def _read(self, name: PurePosixPath, limit_bytes: int | None) -> bytes:
        with self._entered(name.parent) as folders, os.fdopen(self._open(folders[-1], name), "rb") as file:
            if limit_bytes is not None and (size := os.fstat(file.fileno()).st_size) > limit_bytes:
                raise MessageTooLarge(size, limit_bytes)
            return file.read()

    def _size(self, name: PurePosixPath) -> int:
        with self._entered(name.parent) as folders:
            size = _size_at(folders[-1], name.name)
        if size is None:
            raise self._unsafe(self._path / name, "is no regular file", "remove it")
        return size

    def _listed(self, folder: PurePosixPath) -> list[str]:
        with self._entered(folder) as folders, os.scandir(folders[-1]) as entries:
            return [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]

    def _delete(self, name: PurePosixPath) -> None:
        with self._entered(name.parent) as folders:
            os.unlink(name.name, dir_fd=folders[-1])
            os.fsync(folders[-1])

    def _clear(self, folder: PurePosixPath) -> None:
        with self._entered(folder) as folders:
            with os.scandir(folders[-1]) as entries:
                names = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
            for name in names:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folders[-1])
            os.fsync(folders[-1])
            with suppress(OSError):  # it has subfolders, or another process has written into it or removed it meanwhile
                os.rmdir(folder.name, dir_fd=folders[-2])
                os.fsync(folders[-2])

    def _open(self, folder: int, name: PurePosixPath) -> int:
        """Open a blob to read it."""
        try:
            file = os.open(name.name, os.O_RDONLY | FILE, dir_fd=folder)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise self._unsafe(self._path / name, "is a symbolic link", "remove it") from None
            raise
        if stat.S_ISREG(os.fstat(file).st_mode):
            return file
        os.close(file)
        raise self._unsafe(self._path / name, "is no regular file", "remove it")

    @contextmanager
    def _entered(self, folder: PurePosixPath, *, create: bool = False) -> Generator[Sequence[int], None, None]:
        """Open the store's directory and the folders down to `folder`, and give their descriptors, the outermost first.

        Raises:
            FileNotFoundError: a folder is missing, and `create` is False.
            DirectoryNotCreated: the store's directory cannot be created.
            DirectoryNotOwned: as the class says.
            OSError: a folder cannot be opened.
        """
        with ExitStack() as stack:
            at = self._way_in(stack, create=create)
            folders: list[int] = []
            place = self._path
            for part in (self._path.name or ".", *folder.parts):
                place = place / part if folders else place
                try:
                    at = _below(stack, at, part, READ, 0o700 if create else None)
                except OSError as error:
                    self._explain(error, at, part, place, create=create and not folders)
                    raise
                self._check(at, place)
                folders.append(at)
            yield folders

    def _way_in(self, stack: ExitStack, *, create: bool) -> int:
        """Return the descriptor of the folder that holds the store's directory. Create it if `create` is set."""
        parent = self._path.parent
        place, at = Path(parent.anchor), os.open(parent.anchor, PASS)
        stack.callback(os.close, at)
        for part in parent.parts[1:]:
            place /= part
            try:
                at = _below(stack, at, part, PASS, 0o777 if create else None)
            except OSError as error:
                self._explain(error, at, part, place, create=create)
                raise
        return at

    def _explain(self, error: OSError, parent: int, part: str, place: Path, *, create: bool) -> None:
        """Raise the error of the bus that tells why a folder cannot be opened, if there is one."""
        if error.errno in _LINK and stat.S_ISLNK(os.stat(part, dir_fd=parent, follow_symlinks=False).st_mode):
            raise self._unsafe(place, "is a symbolic link", "name the folder that it leads to, or remove it") from None
        if create and error.errno not in FULL:
            raise DirectoryNotCreated(self._what, self._path, error.strerror or type(error).__name__) from None

    def _check(self, folder: int, place: Path) -> None:
        """Raise DirectoryNotOwned if another user could have changed what is in an open folder."""
        if fault := owner_fault(os.fstat(folder)):
            remedy = "choose another directory, or change its owner"
            if fault.startswith("has mode"):
                remedy = "run `chmod go-w` on it, or name a folder in it, which is then created"
            raise self._unsafe(place, fault, remedy)

    def _unsafe(self, place: Path, fault: str, remedy: str) -> DirectoryNotOwned:
        return DirectoryNotOwned(place, fault, what=self._what, remedy=remedy)

    async def _run(self, step: Callable[[], T]) -> T:
        try:
            return await run_in_thread(step)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise Unavailable(f"{self._what} {self._path}: {error.strerror or type(error).__name__}") from None


def _below(stack: ExitStack, parent: int, part: str, flags: int, mode: int | None) -> int:
    """Open a folder below another for the length of `stack`. If it is missing, create it with `mode`, unless None."""
    try:
        folder = os.open(part, flags, dir_fd=parent)
    except FileNotFoundError:
        if mode is None:
            raise
        with suppress(FileExistsError):  # created meanwhile
            os.mkdir(part, mode, dir_fd=parent)
        folder = os.open(part, flags, dir_fd=parent)
    stack.callback(os.close, folder)
    return folder


def _size_at(folder: int, name: str) -> int | None:
    """Return the size of a file; None if it is no regular file, such as a link. Raise FileNotFoundError if missing."""
    facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
    return facts.st_size if stat.S_ISREG(facts.st_mode) else None


def write_and_rename(folder: int, name: str, data: bytes, *, is_durable: bool = True) -> None:
    """Write a file that only its owner can read, and give it its name, in place of an earlier file.

    Args:
        folder: descriptor of the folder.
        name: name of the file.
        data: its content.
        is_durable: whether the content is on disk before the file has its name. The name itself is not flushed.

    Raises:
        OSError: the file cannot be written; an earlier file is unchanged.
    """
    part = f"{name[:100]}.{token_hex(8)}{_PART}"
    try:
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | FILE, 0o600, dir_fd=folder)
        with os.fdopen(file, "wb") as writer:
            writer.write(data)
            writer.flush()
            if is_durable:
                os.fsync(writer.fileno())
        os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)  # a concurrent writer has written the same bytes
    except BaseException:
        with suppress(OSError):
            os.unlink(part, dir_fd=folder)
        raise


_WHAT, _REMEDY = "state directory", "choose another one with --state-dir or LANEBUS_STATE_DIR"


class StateFile:
    """A JSON object in a file. Processes may share the file: each write replaces it as a whole.

    The file counts only if no other user could have written it, because it decides whether a log is trusted. Calls run
    in threads; a cancelled call waits for its thread to end.
    """

    def __init__(self, path: Path, *, most_files: int = 200, limit_bytes: int = 4_096) -> None:
        """
        Args:
            path: the file. Its folder is created by the first write.
            most_files: maximum number of state files in the folder. The files that were not written for longest are
                removed: they are of servers that were given up, such as those of temporary directories.
            limit_bytes: a longer file counts as empty.
        """
        self._path, self._most_files, self._limit_bytes = path.absolute(), most_files, limit_bytes

    async def read(self) -> dict[str, object]:
        """Return the stored object; empty if there is none, or if the file is damaged.

        Raises:
            DirectoryNotOwned: another user could have written the file.
            DirectoryNotCreated: the file cannot be read.
        """
        return await run_in_thread(self._read)

    async def write(self, values: dict[str, object]) -> None:
        """Replace the object. After a power cut, the file may hold an earlier one.

        Raises:
            DirectoryNotOwned: another user could write to the folder.
            DirectoryNotCreated: the folder cannot be created, or the file cannot be written.
        """
        await run_in_thread(lambda: self._write(json.dumps(values).encode()))

    def _read(self) -> dict[str, object]:
        try:
            with os.fdopen(open_owned(self._path, _WHAT, _REMEDY), "rb") as file:
                text = file.read(self._limit_bytes + 1)
            found = cast("object", json.loads(text)) if len(text) <= self._limit_bytes else None
        except (FileNotFoundError, ValueError, RecursionError):
            return {}
        except OSError as error:
            raise self._fault(error) from None
        return cast("dict[str, object]", found) if isinstance(found, dict) else {}

    def _write(self, text: bytes) -> None:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = open_owned(self._path.parent, _WHAT, _REMEDY, is_folder=True)
            try:
                is_new = not self._path.exists()
                write_and_rename(folder, self._path.name, text, is_durable=False)
                if is_new:
                    self._remove_oldest()
            finally:
                os.close(folder)
        except OSError as error:
            raise self._fault(error) from None

    def _remove_oldest(self) -> None:
        found = sorted(self._path.parent.glob(f"*{self._path.suffix}"), key=lambda each: each.lstat().st_mtime)
        for path in found[: -self._most_files]:
            with suppress(FileNotFoundError):  # another process removed it
                path.unlink()

    def _fault(self, error: OSError) -> DirectoryNotCreated:
        return DirectoryNotCreated(_WHAT, self._path.parent, error.strerror or type(error).__name__, _REMEDY)
