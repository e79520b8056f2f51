"""Uploads: files that clients send in pieces, kept in a directory of this user until a message names them.

`Uploads` is for the event loop. What is below it reads and writes files, and blocks: call it in a thread.
"""

import os
import stat
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from shutil import rmtree
from typing import Literal, TypeAlias, TypeVar
from weakref import finalize

import anyio
from pydantic import TypeAdapter

from lanebus.bus import Bus, run_in_thread
from lanebus.bus.errors import (
    BusError,
    DirectoryNotCreated,
    DirectoryNotOwned,
    OverLimit,
    SetupError,
    Unavailable,
    check_bounds,
)
from lanebus.bus.messages import MediaRef, is_what_it_claims, require_size, sniff
from lanebus.bus.storage import FILE, owner_fault, plain_name
from lanebus.handlers.serve.errors import (
    ServerBusy,
    TooManyUploads,
    UploadBusy,
    UploadDamaged,
    UploadMissing,
    UploadPlaceBusy,
    UploadsFull,
    WrongOffset,
)

# An upload, and its form in JSON.

UploadState: TypeAlias = Literal["open", "complete", "stored"]
"""`open`: bytes are missing, or were not checked. `complete`: all bytes are there and were checked. `stored`: a message
has named it, and the media store has the bytes"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A file of one principal for one session."""

    session: str
    sha256: str
    """SHA-256 of the whole file"""
    size_bytes: int
    mime_type: str | None
    """what the client says, until all bytes are there; then what the first bytes show, if they show a type"""
    filename: str | None
    state: UploadState = "open"
    offset: int = 0
    """number of bytes that have arrived"""

    @property
    def is_complete(self) -> bool:
        """Whether all bytes have arrived and have the right SHA-256."""
        return self.state != "open"

    @property
    def held_bytes(self) -> int:
        """Bytes that it needs on disk, now or when it is complete."""
        return 0 if self.state == "stored" else self.size_bytes

    @staticmethod
    def key_of(session: str, digest: str) -> str:
        """Return the name of an upload on disk, which is safe in any file system."""
        return sha256(f"{session} {digest}".encode()).hexdigest()

    def to_json(self) -> bytes:
        """Return what is kept on disk."""
        return _RECORD.dump_json(self)

    @classmethod
    def from_json(cls, data: bytes) -> "Upload":
        """Return the upload of a record. Raises ValueError if it is no record."""
        return _RECORD.validate_json(data)


def owner_key(principal: str) -> str:
    """Return the name of a principal's folder, which is safe in any file system."""
    return sha256(principal.encode()).hexdigest()


_RECORD = TypeAdapter(Upload)


# Read and write the files of one upload. A place is the path of its files without their suffix.
#
# | File | Holds |
# |---|---|
# | `….json` | the record, see `Upload` |
# | `….part` | the bytes so far; a writer holds its lock |


def part_of(place: Path) -> Path:
    """Return the path of the bytes."""
    return place.with_suffix(".part")


def create(place: Path, upload: Upload) -> None:
    """Write the record of a new upload without bytes."""
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(part_of(place), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | FILE, 0o600))
    write(place, upload)


def read(place: Path) -> Upload | None:
    """Return an upload with its offset; None if there is none, or its record is damaged."""
    try:
        found = Upload.from_json(place.with_suffix(".json").read_bytes())
        size = found.size_bytes if found.state == "stored" else part_of(place).stat().st_size
    except (FileNotFoundError, ValueError):
        return None
    return replace(found, offset=size)


def write(place: Path, upload: Upload) -> None:
    """Replace the record."""
    new = place.with_suffix(f".{token_hex(8)}.new")
    new.write_bytes(upload.to_json())
    new.replace(place.with_suffix(".json"))


def remove(place: Path) -> None:
    """Remove the files of an upload, and the folder if it is empty."""
    for suffix in (".json", ".part"):
        place.with_suffix(suffix).unlink(missing_ok=True)
    with suppress(OSError):  # others are left
        place.parent.rmdir()


def touched(place: Path) -> float:
    """Return the Unix time of the newest piece; 0 if there are no files."""
    times = list[float]()
    for suffix in (".json", ".part"):
        with suppress(FileNotFoundError):
            times.append(place.with_suffix(suffix).stat().st_mtime)
    return max(times, default=0.0)


def digest_of(file: int) -> tuple[str, bytes]:
    """Return the SHA-256 of an open file, and its first bytes."""
    digest, head, at = sha256(), b"", 0
    while piece := os.pread(file, 1_048_576, at):
        head = head or piece[:8192]
        digest.update(piece)
        at += len(piece)
    return digest.hexdigest(), head


# The uploads in a directory that only this user can enter: `<namespace>/<principal>/<upload>`.


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadBounds:
    """Bounds of the uploads of one server."""

    file_bytes: int = 16_777_216
    """maximum size of an uploaded file. `UiBounds.media_bytes` bounds what can be read again"""
    piece_bytes: int = 1_048_576
    """maximum size of a piece. Proxies often refuse larger bodies"""
    buffer_bytes: int = 65_536
    """bytes of a piece that are held in memory before they are written to disk; one chunk more may be"""
    files: int = 20
    """maximum number of uploads of one principal"""
    principal_bytes: int = 67_108_864
    """maximum size of the uploads of one principal together, without those that a message has named"""
    all_files: int = 1_000
    """maximum number of uploads of all principals"""
    all_bytes: int = 1_073_741_824
    """maximum size of the uploads of all principals together, without those that a message has named"""
    idle_seconds: float = 600.0
    """If a principal has too many uploads, one without a new piece for this time is removed."""
    age_seconds: float = 86_400.0
    """An upload without a new piece for this time is removed. Until then, a message can name it again."""
    sweep_seconds: float = 600.0
    """pause between two removals of old uploads"""
    lock_seconds: float = 5.0
    """longest wait for another process that adds or removes an upload"""

    def __post_init__(self) -> None:
        check_bounds(self, "bounds.uploads")


DEFAULT_UPLOAD_BOUNDS = UploadBounds()


# The uploads in a directory: `<namespace>/<principal>/<upload>`. These functions block: call them in a thread.
#
# The number of bytes on disk is the offset, so a killed server loses nothing that it has acknowledged. If the machine
# itself fails, the last bytes may be missing or wrong: the client continues earlier, or the SHA-256 differs.


class UploadFolder:
    """The uploads of one namespace. Several processes of one machine may use the directory at once."""

    def __init__(
        self, path: Path, namespace: str, bounds: UploadBounds, clock: Callable[[], float] = time.time
    ) -> None:
        """
        Args:
            path: the directory.
            namespace: namespace of the bus.
            bounds: limits.
            clock: Unix time in seconds, as of the files.
        """
        self._root, self._space = PrivateFolder(path, bounds.lock_seconds), path / plain_name(namespace)
        self._bounds, self._clock = bounds, clock

    def begin(self, owner: str, wanted: Upload) -> Upload:
        """Return the owner's upload of this content to this session, with its offset. It is added if there is none.

        Raises:
            TooManyUploads: the owner has too many uploads, and none is idle.
            UploadsFull: all principals together have too many.
        """
        place = self._place(owner, wanted.session, wanted.sha256)
        with self._root.locked():
            self._sweep()
            if (found := read(place)) is not None and found.size_bytes == wanted.size_bytes:
                return found
            if found is not None:  # the client has told a wrong size before
                remove(place)
            self._make_room(place.parent, wanted)
            self._check_all(wanted)
            create(place, wanted)
        return wanted

    def find(self, owner: str, session: str, digest: str) -> Upload:
        """Return an upload with its offset. Raises UploadMissing if the owner has no such upload to this session."""
        place = self._place(owner, session, digest)
        found = read(place)
        if found is None or self._is_old(place, self._bounds.age_seconds):
            raise UploadMissing(digest)
        return found

    def begin_piece(self, owner: str, upload: Upload, offset: int) -> "UploadPiece":
        """Return what adds bytes to an upload. The caller ends or closes it.

        Raises:
            UploadMissing: the upload was removed.
            UploadBusy: another request adds to it.
            WrongOffset: it does not end at `offset`.
        """
        place = self._place(owner, upload.session, upload.sha256)
        try:
            file = os.open(part_of(place), os.O_RDWR | os.O_APPEND | FILE)
        except FileNotFoundError:
            raise UploadMissing(upload.sha256) from None
        try:
            if not try_lock(file):
                raise UploadBusy
            size = os.fstat(file).st_size
            if size != offset:
                raise WrongOffset(offset, size)
        except BaseException:
            os.close(file)
            raise
        return UploadPiece(file, lambda: self._complete(place, upload, file))

    def read(self, owner: str, upload: Upload) -> bytes:
        """Return the bytes of a complete upload. Raises UploadMissing if they were removed."""
        place = self._place(owner, upload.session, upload.sha256)
        try:
            file = os.open(part_of(place), os.O_RDONLY | FILE)
        except FileNotFoundError:
            raise UploadMissing(upload.sha256) from None
        with os.fdopen(file, "rb") as reader:
            return reader.read(upload.size_bytes)

    def mark_stored(self, owner: str, upload: Upload) -> None:
        """Record that the media store has the bytes, and remove them here."""
        place = self._place(owner, upload.session, upload.sha256)
        with self._root.locked():
            if read(place) is not None:
                write(place, replace(upload, state="stored"))
                part_of(place).unlink(missing_ok=True)

    def remove(self, owner: str, session: str, digest: str) -> None:
        """Remove an upload. Raises UploadMissing if the owner has no such upload to this session."""
        self.find(owner, session, digest)
        with self._root.locked():
            remove(self._place(owner, session, digest))

    def sweep(self) -> None:
        """Remove the uploads that are too old."""
        if self._root.exists:
            with self._root.locked():
                self._sweep()

    def _sweep(self) -> None:
        for place in self._places("*/*.json"):
            if self._is_old(place, self._bounds.age_seconds):
                remove(place)
        for left in self._space.glob("*/*"):  # by a process that was killed
            with suppress(FileNotFoundError):
                has_record = left.suffix == ".json" or left.with_suffix(".json").exists()
                if not has_record and self._clock() - left.stat().st_mtime > self._bounds.age_seconds:
                    left.unlink()

    def _make_room(self, folder: Path, wanted: Upload) -> None:
        """Remove idle uploads of one owner until there is room for another one, the longest idle first."""
        bounds = self._bounds
        places = sorted(self._places(f"{folder.name}/*.json"), key=touched)
        kept = {place: found for place in places if (found := read(place)) is not None}
        while True:
            is_many = len(kept) >= bounds.files
            if not is_many and _held(kept.values()) + wanted.size_bytes <= bounds.principal_bytes:
                return
            idle = (
                place
                for place, each in kept.items()
                if (is_many or each.held_bytes) and (each.state == "stored" or self._is_old(place, bounds.idle_seconds))
            )
            if (oldest := next(idle, None)) is None:
                raise TooManyUploads(*((bounds.files, "files") if is_many else (bounds.principal_bytes, "bytes")))
            remove(oldest)
            del kept[oldest]

    def _check_all(self, wanted: Upload) -> None:
        kept = [found for place in self._places("*/*.json") if (found := read(place)) is not None]
        if len(kept) >= self._bounds.all_files or _held(kept) + wanted.size_bytes > self._bounds.all_bytes:
            raise UploadsFull

    def _complete(self, place: Path, upload: Upload, file: int) -> None:
        """Check the bytes if all are there."""
        facts = os.fstat(file)
        if facts.st_size < upload.size_bytes:
            return
        found, head = digest_of(file)
        with self._root.locked():
            now, part = read(place), part_of(place)
            if now is None or now.is_complete or part.stat().st_ino != facts.st_ino:
                return  # removed meanwhile, and perhaps begun again
            if found != upload.sha256:
                remove(place)
                raise UploadDamaged(upload.sha256, found)
            told = now.mime_type if now.mime_type and is_what_it_claims(head, now.mime_type) else None
            write(place, replace(now, state="complete", mime_type=sniff(head) or told))

    def _place(self, owner: str, session: str, digest: str) -> Path:
        return self._space / owner_key(owner) / Upload.key_of(session, digest)

    def _places(self, pattern: str) -> Iterator[Path]:
        return (each.with_suffix("") for each in sorted(self._space.glob(pattern)))

    def _is_old(self, place: Path, seconds: float) -> bool:
        return self._clock() - touched(place) > seconds


class UploadPiece:
    """Adds bytes to an upload. The upload is locked until the piece is closed."""

    def __init__(self, file: int, complete: Callable[[], None]) -> None:
        self._file, self._complete = file, complete

    def write(self, data: bytes) -> None:
        """Add bytes. The caller sees to it that they are not more than the size of the upload."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]

    def end(self) -> None:
        """Check the whole file, if all bytes are there. Raises UploadDamaged if they have another SHA-256."""
        self._complete()

    def close(self) -> None:
        """Unlock the upload."""
        os.close(self._file)


def _held(uploads: Iterable[Upload]) -> int:
    return sum(each.held_bytes for each in uploads)


# A directory that only this user can enter, and its lock. These functions block: call them in a thread.

if sys.platform != "win32":
    import fcntl


_WHAT = "upload directory"


def check_folder(path: Path) -> None:
    """Create a directory for uploads, or check the existing one. Otherwise the first upload would meet the fault.

    Raises:
        SetupError: the directory cannot be created or written, or another user may enter it.
    """
    try:
        with PrivateFolder(path, lock_seconds=0.0).locked():
            return
    except UploadPlaceBusy:
        return  # another server uses it
    except OSError as error:
        fault = f"{_WHAT} {path} cannot be written: {error.strerror or type(error).__name__}"
        raise SetupError(fault, "choose another one with --uploads") from None


class PrivateFolder:
    """A directory of mode 0700, which is created when it is needed."""

    def __init__(self, path: Path, lock_seconds: float) -> None:
        """
        Args:
            path: the directory.
            lock_seconds: longest wait for the lock.
        """
        self.path, self._seconds = path, lock_seconds

    @property
    def exists(self) -> bool:
        """Whether the directory was created."""
        return self.path.exists()

    @contextmanager
    def locked(self) -> Generator[None, None, None]:
        """Let only one caller at a time into the block, of all processes of this machine.

        Raises:
            UploadPlaceBusy: another process held the lock for too long.
            DirectoryNotCreated: the directory cannot be created.
            DirectoryNotOwned: another user may enter the directory.
            SetupError: the system has no file locks.
        """
        self._prepare()
        file = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | FILE, 0o600)
        until = time.monotonic() + self._seconds
        try:
            while not try_lock(file):
                if time.monotonic() > until:
                    raise UploadPlaceBusy(self._seconds)
                time.sleep(0.005)
            yield
        finally:
            os.close(file)

    def _prepare(self) -> None:
        if sys.platform == "win32":
            raise SetupError(f"{_WHAT}: this system has no file locks", "upload to a server on Linux or macOS")
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise DirectoryNotCreated(_WHAT, self.path, error.strerror or type(error).__name__) from None
        facts = self.path.lstat()
        is_link = not stat.S_ISDIR(facts.st_mode)
        if fault := "is a symbolic link" if is_link else owner_fault(facts, is_private=True):
            raise DirectoryNotOwned(self.path, fault, what=_WHAT, remedy="choose another one, or make it 0700")


def try_lock(file: int) -> bool:
    """Lock an open file until it is closed. Return False if another opener has locked it."""
    try:
        if sys.platform != "win32":
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# Receive uploads, and turn them into stored media when a message names them.


T = TypeVar("T")


class Uploads:
    """The uploads of one application.

    An upload is addressed by the SHA-256 of its content, the session and the name of the principal. So a client that
    begins the same upload again, also after a restart, continues it.
    """

    def __init__(
        self,
        bus: Bus,
        directory: Path | None = None,
        bounds: UploadBounds = DEFAULT_UPLOAD_BOUNDS,
        *,
        wait_seconds: float = 10.0,
    ) -> None:
        """
        Args:
            bus: the bus, whose media store gets the files.
            directory: where files are kept until a message names them. Several processes that serve one bus on one
                machine may share it. None means a temporary directory, which is removed with this object.
            bounds: limits.
            wait_seconds: longest wait of a message whose uploads are stored, for other such messages.
        """
        self.bounds = bounds
        self._bus, self._directory, self._wait_seconds = bus, directory, wait_seconds
        self._made: UploadFolder | None = None
        self._storing = anyio.CapacityLimiter(1)

    async def begin(self, owner: str, wanted: Upload) -> Upload:
        """Return the owner's upload of this content to this session, with its offset. It is added if there is none.

        Raises:
            MediaTooLarge: the file is larger than `UploadBounds.file_bytes`.
            TooManyUploads, UploadsFull: there are too many uploads.
            Unavailable: the disk failed, or is full.
            SetupError: the directory cannot be used.
        """
        require_size(wanted.size_bytes, limit_bytes=self.bounds.file_bytes)
        return await self._run(partial(self._folder.begin, owner, wanted))

    async def find(self, owner: str, session: str, digest: str) -> Upload:
        """Return an upload with its offset. Raises UploadMissing if the owner has no such upload to this session."""
        return await self._run(partial(self._folder.find, owner, session, digest))

    async def remove(self, owner: str, session: str, digest: str) -> None:
        """Remove an upload. Media that a message has named stay. Raises UploadMissing if there is no such upload."""
        await self._run(partial(self._folder.remove, owner, session, digest))

    async def add(self, owner: str, upload: Upload, offset: int, chunks: AsyncIterator[bytes]) -> Upload:
        """Add bytes to an upload, and return it. If all bytes are there, they are checked.

        If `chunks` raises an error, or the call is cancelled, what has come is kept.

        Args:
            owner: name of the principal.
            upload: the upload.
            offset: number of bytes that the client has sent before.
            chunks: the bytes, at most as many as the upload lacks.

        Raises:
            UploadMissing: the upload was removed.
            UploadBusy: another request adds to it.
            WrongOffset: it does not end at `offset`.
            UploadDamaged: all bytes are there, and have another SHA-256. The upload was removed.
            Unavailable: the disk failed, or is full.
        """
        piece = await self._run(partial(self._folder.begin_piece, owner, upload, offset))
        try:
            await self._write(piece, chunks)
            await self._run(piece.end)
        finally:
            piece.close()
        return await self.find(owner, upload.session, upload.sha256)

    async def _write(self, piece: UploadPiece, chunks: AsyncIterator[bytes]) -> None:
        held = bytearray()
        try:
            async for chunk in chunks:
                held += chunk
                if len(held) >= self.bounds.buffer_bytes:
                    data = bytes(held)
                    held.clear()
                    await self._run(partial(piece.write, data))
        finally:
            if held:
                with anyio.CancelScope(shield=True):  # writing at most `buffer_bytes`
                    await self._run(partial(piece.write, bytes(held)))

    async def store(
        self, owner: str, session: str, digest: str, hold: Callable[[int], Awaitable[None]] | None = None
    ) -> MediaRef:
        """Move a complete upload to the media store, and return the reference for a message.

        One file at a time is held in memory.

        Args:
            owner: name of the principal.
            session: id of the session.
            digest: SHA-256 of the file.
            hold: waits until this number of bytes may be held, without a turn; None holds them at once.

        Raises:
            UploadMissing: the owner has no complete upload of this content to this session.
            OverLimit: the namespace has no room for the media.
            ServerBusy: other messages with uploads took too long.
            Unavailable: the media store or the disk failed.
        """
        upload = await self._complete(owner, session, digest)
        if upload.state != "stored":
            if hold is not None:
                await hold(upload.size_bytes)  # before the turn: a principal whose memory is full holds up no other
            upload = await self._store_in_turn(owner, session, digest)
        return MediaRef(
            kind="sha256",
            sha256=digest,
            mime_type=upload.mime_type or "application/octet-stream",
            size_bytes=upload.size_bytes,
            filename=upload.filename,
        )

    async def _complete(self, owner: str, session: str, digest: str) -> Upload:
        """Return a complete upload. If it was stored before, its media are still there."""
        upload = await self.find(owner, session, digest)
        if not upload.is_complete:
            raise UploadMissing(digest)
        if upload.state == "stored":
            await self._check_stored(owner, upload)
        return upload

    async def _store_in_turn(self, owner: str, session: str, digest: str) -> Upload:
        with anyio.move_on_after(self._wait_seconds) as timeout:
            await self._storing.acquire()
        if timeout.cancelled_caught:
            raise ServerBusy
        try:
            upload = await self._complete(owner, session, digest)
            if upload.state != "stored":  # a repeat of the message may have stored it meanwhile
                await self._put(owner, upload)
        finally:
            self._storing.release()
        return upload

    async def _check_stored(self, owner: str, upload: Upload) -> None:
        if await self._bus.media.head(upload.sha256) is None:  # deleted since, with a session that was erased
            await self.remove(owner, upload.session, upload.sha256)
            raise UploadMissing(upload.sha256)

    async def _put(self, owner: str, upload: Upload) -> None:
        data = await self._run(partial(self._folder.read, owner, upload))
        try:
            stored = await self._bus.media.put_if_absent(data, mime_type=upload.mime_type)
        except OverLimit as full:
            raise OverLimit(upload.session, full.scope, full.size_bytes, full.limit_bytes) from None
        if stored != upload.sha256:  # the disk failed since the check
            await self.remove(owner, upload.session, upload.sha256)
            raise UploadMissing(upload.sha256)
        await self._run(partial(self._folder.mark_stored, owner, upload))

    async def sweep_forever(self) -> None:
        """Remove old uploads now and then, until cancelled."""
        while True:
            if self._made is not None or self._directory is not None:
                with suppress(BusError):  # the next upload meets the same fault, and its client is told
                    await self._run(self._folder.sweep)
            await anyio.sleep(self.bounds.sweep_seconds)

    @property
    def _folder(self) -> UploadFolder:
        """The files. A temporary directory is made when it is first needed."""
        if self._made is None:
            directory = self._directory
            if directory is None:
                directory = Path(tempfile.mkdtemp(prefix="lanebus-uploads-"))
                finalize(self, rmtree, directory, ignore_errors=True)
            self._made = UploadFolder(directory, self._bus.log.keys.namespace, self.bounds)
        return self._made

    async def _run(self, step: Callable[[], T]) -> T:
        try:
            return await run_in_thread(step)
        except OSError as error:
            raise Unavailable(f"upload directory: {error.strerror or type(error).__name__}") from None
