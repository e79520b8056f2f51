"""The uploads in a directory that only this user can enter: `<namespace>/<principal>/<upload>`.

These functions block: call them in a thread.
"""

import os
import stat
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from lanebus.bus.errors import DirectoryNotCreated, DirectoryNotOwned, SetupError, check_bounds
from lanebus.bus.messages import is_what_it_claims, sniff
from lanebus.bus.storage import FILE, owner_fault, plain_name
from lanebus.handlers.serve.errors import (
    TooManyUploads,
    UploadBusy,
    UploadDamaged,
    UploadMissing,
    UploadPlaceBusy,
    UploadsFull,
    WrongOffset,
)
from lanebus.handlers.serve.uploads import records
from lanebus.handlers.serve.uploads.records import Upload, owner_key


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
            if (found := records.read(place)) is not None and found.size_bytes == wanted.size_bytes:
                return found
            if found is not None:  # the client has told a wrong size before
                records.remove(place)
            self._make_room(place.parent, wanted)
            self._check_all(wanted)
            records.create(place, wanted)
        return wanted

    def find(self, owner: str, session: str, digest: str) -> Upload:
        """Return an upload with its offset. Raises UploadMissing if the owner has no such upload to this session."""
        place = self._place(owner, session, digest)
        found = records.read(place)
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
            file = os.open(records.part_of(place), os.O_RDWR | os.O_APPEND | FILE)
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
            file = os.open(records.part_of(place), os.O_RDONLY | FILE)
        except FileNotFoundError:
            raise UploadMissing(upload.sha256) from None
        with os.fdopen(file, "rb") as reader:
            return reader.read(upload.size_bytes)

    def mark_stored(self, owner: str, upload: Upload) -> None:
        """Record that the media store has the bytes, and remove them here."""
        place = self._place(owner, upload.session, upload.sha256)
        with self._root.locked():
            if records.read(place) is not None:
                records.write(place, replace(upload, state="stored"))
                records.part_of(place).unlink(missing_ok=True)

    def remove(self, owner: str, session: str, digest: str) -> None:
        """Remove an upload. Raises UploadMissing if the owner has no such upload to this session."""
        self.find(owner, session, digest)
        with self._root.locked():
            records.remove(self._place(owner, session, digest))

    def sweep(self) -> None:
        """Remove the uploads that are too old."""
        if self._root.exists:
            with self._root.locked():
                self._sweep()

    def _sweep(self) -> None:
        for place in self._places("*/*.json"):
            if self._is_old(place, self._bounds.age_seconds):
                records.remove(place)
        for left in self._space.glob("*/*"):  # by a process that was killed
            with suppress(FileNotFoundError):
                has_record = left.suffix == ".json" or left.with_suffix(".json").exists()
                if not has_record and self._clock() - left.stat().st_mtime > self._bounds.age_seconds:
                    left.unlink()

    def _make_room(self, folder: Path, wanted: Upload) -> None:
        """Remove idle uploads of one owner until there is room for another one, the longest idle first."""
        bounds = self._bounds
        places = sorted(self._places(f"{folder.name}/*.json"), key=records.touched)
        kept = {place: found for place in places if (found := records.read(place)) is not None}
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
            records.remove(oldest)
            del kept[oldest]

    def _check_all(self, wanted: Upload) -> None:
        kept = [found for place in self._places("*/*.json") if (found := records.read(place)) is not None]
        if len(kept) >= self._bounds.all_files or _held(kept) + wanted.size_bytes > self._bounds.all_bytes:
            raise UploadsFull

    def _complete(self, place: Path, upload: Upload, file: int) -> None:
        """Check the bytes if all are there."""
        facts = os.fstat(file)
        if facts.st_size < upload.size_bytes:
            return
        found, head = records.digest_of(file)
        with self._root.locked():
            now, part = records.read(place), records.part_of(place)
            if now is None or now.is_complete or part.stat().st_ino != facts.st_ino:
                return  # removed meanwhile, and perhaps begun again
            if found != upload.sha256:
                records.remove(place)
                raise UploadDamaged(upload.sha256, found)
            told = now.mime_type if now.mime_type and is_what_it_claims(head, now.mime_type) else None
            records.write(place, replace(now, state="complete", mime_type=sniff(head) or told))

    def _place(self, owner: str, session: str, digest: str) -> Path:
        return self._space / owner_key(owner) / Upload.key_of(session, digest)

    def _places(self, pattern: str) -> Iterator[Path]:
        return (each.with_suffix("") for each in sorted(self._space.glob(pattern)))

    def _is_old(self, place: Path, seconds: float) -> bool:
        return self._clock() - records.touched(place) > seconds


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
