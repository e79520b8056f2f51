"""Receive uploads, and turn them into stored media when a message names them."""

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import TypeVar
from weakref import finalize

import anyio

from lanebus.bus import Bus, run_in_thread
from lanebus.bus.errors import BusError, OverLimit, Unavailable
from lanebus.bus.messages import MediaRef, require_size
from lanebus.handlers.serve.errors import ServerBusy, UploadMissing
from lanebus.handlers.serve.uploads.folder import DEFAULT_UPLOAD_BOUNDS, UploadBounds, UploadFolder, UploadPiece
from lanebus.handlers.serve.uploads.records import Upload

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
