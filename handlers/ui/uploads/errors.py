"""Errors of uploads."""

from lanebus.bus.errors import MessageError, StreamError, Unavailable

__all__ = (
    "TooManyUploads",
    "UploadBusy",
    "UploadDamaged",
    "UploadMissing",
    "UploadPlaceBusy",
    "UploadsFull",
    "WrongOffset",
)


class UploadMissing(StreamError):
    """There is no such upload of this principal to this session. Fields: `sha256`."""

    def __init__(self, sha256: str) -> None:
        super().__init__(
            f"you have no upload {sha256[:64]} to this session: it was removed, or another server process has it",
            "begin it again. Several processes need one directory for uploads",
        )
        self.sha256 = sha256


class WrongOffset(StreamError):
    """A piece does not begin where the upload ends. Fields: `offset`, where it begins; `expected`, where it must."""

    def __init__(self, offset: int, expected: int) -> None:
        super().__init__(f"the piece begins at {offset}, and the upload ends at {expected}", f"continue at {expected}")
        self.offset, self.expected = offset, expected


class UploadDamaged(MessageError):
    """All bytes of an upload have arrived, and they have another SHA-256. The upload was removed.

    Fields: `sha256`, the expected digest; `found`, the digest of the bytes.
    """

    def __init__(self, sha256: str, found: str) -> None:
        super().__init__(f"the uploaded bytes have the SHA-256 {found}, not {sha256}", "upload the file again")
        self.sha256, self.found = sha256, found


class TooManyUploads(StreamError):
    """A principal has as many uploads as it may. Fields: `limit`; `unit`, "files" or "bytes"."""

    def __init__(self, limit: int, unit: str) -> None:
        super().__init__(
            f"your uploads would exceed {limit} {unit}", "send or delete those that you have begun, or try again later"
        )
        self.limit, self.unit = limit, unit


class UploadBusy(Unavailable):
    """Another request adds to this upload: an earlier one whose connection was lost may not have ended."""

    def __init__(self) -> None:
        super().__init__("another request is adding to this upload", "ask for its offset in a second, and continue")


class UploadPlaceBusy(Unavailable):
    """Another process used the directory of uploads for too long. Fields: `seconds`, the length of the wait."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the directory of uploads was locked for {seconds:g} s", "try again")
        self.seconds = seconds


class UploadsFull(Unavailable):
    """The uploads of all principals need all files or bytes that they may have."""

    def __init__(self) -> None:
        super().__init__("the server holds as many uploads as it may", "try again later")
