"""The files of an archive: segments, which verify themselves, and the stores that hold them.

    zcat 1-250-….jsonl.gz | jq -r 'select(.m) | .m | fromjson'

The file is JSON lines, compressed with gzip:

- The first line is the header: namespace, session, number, first and last position, the incarnation that wrote the last
  entry, and the name of the previous segment.
- Each entry is a line. Lines are in position order; if both lanes have an entry at a position, the LLM lane comes
  first. A line has the lane, the id, and the fields `h` and `m` as they are in the stream. The line of a foreign entry
  has a list `fields` instead of `h` and `m`. A value that is not UTF-8 is `{"base64": …}`.
- The last line is the seal: the number of entries, and the SHA-256 of all lines before the seal.

Messages keep the version in which they were written. They are upgraded when they are read, like messages in the stream.
"""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode, b64encode
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self, TypeVar, cast

from lanebus.bus.errors import (
    ArchiveDamaged,
    BusError,
    InvalidArchiveName,
    MessageTooLarge,
    require_instance,
    require_text,
)
from lanebus.bus.messages.base import Lane
from lanebus.bus.storage.blobs import BlobStore, Folder, Objects, object_store_at, plain_name, store_at
from lanebus.bus.wire.codec import Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from obstore.store import ObjectStore
    from pydantic import JsonValue


# Names of segments: first position, last position, and SHA-256 of the file. So a name verifies the file's content.

SUFFIX = ".jsonl.gz"

_STEM = re.compile(r"([1-9][0-9]{0,17})-([1-9][0-9]{0,17})-([0-9a-f]{64})")


class SegmentName(NamedTuple):
    """The name of a segment, `<first>-<last>-<sha256>`."""

    first: int
    """the first position in the segment"""
    last: int
    """the last position in the segment"""
    sha256: str
    """SHA-256 of the compressed file"""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text that `str()` returns.

        Raises:
            InvalidArchiveName: the text does not have the form `<first>-<last>-<sha256>`.
        """
        match = _STEM.fullmatch(text)
        if match is None or int(match[1]) > int(match[2]):
            raise InvalidArchiveName(text)
        return cls(int(match[1]), int(match[2]), match[3])

    def __str__(self) -> str:
        return f"{self.first}-{self.last}-{self.sha256}"


class Tip(NamedTuple):
    """The last segment of a session's chain: its number, counted from 1, and its name."""

    number: int
    name: SegmentName

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text that `str()` returns.

        Raises:
            InvalidArchiveName: the text does not have the form `<number> <first>-<last>-<sha256>`.
        """
        number, _, name = text.partition(" ")
        if not (number.isascii() and number.isdigit() and len(number) < 19):
            raise InvalidArchiveName(text)
        return cls(int(number), SegmentName.parse(name))

    def __str__(self) -> str:
        return f"{self.number} {self.name}"


def folder_of(namespace: str, session: str) -> str:
    """Return the folder of a session's segments in the store."""
    return f"{plain_name(namespace)}/{plain_name(session)}"


def file_of(namespace: str, session: str, name: SegmentName) -> str:
    """Return the name of a segment's file in the store."""
    return f"{folder_of(namespace, session)}/{name}{SUFFIX}"


FORMAT, VERSION = "lanebus-archive", 1

LINE_LIMIT_BYTES = 32 * 1_048_576
"""Maximum number of bytes of one line. The line of an entry that the bus wrote has at most a tenth of this number."""

TEXT_LIMIT_BYTES = 2 * LINE_LIMIT_BYTES
"""Maximum number of bytes of all lines of a segment. A file that decompresses to more is refused."""

LaneEntry = tuple[Lane, Entry]

T = TypeVar("T")


class Header(NamedTuple):
    """The first line of a segment."""

    namespace: str
    session: str
    number: int
    """number of the segment among the session's segments, from 1"""
    first: int
    """first position in the segment"""
    last: int
    """last position in the segment"""
    incarnation: str
    """the incarnation that wrote the entry at `last`; "" if the entry names no incarnation"""
    previous: str
    """name of the previous segment, `<first>-<last>-<sha256>`; "" for the first segment"""


class Segment(NamedTuple):
    """A whole segment that was read and verified."""

    name: SegmentName
    header: Header
    entries: Sequence[LaneEntry]


def line_of(lane: Lane, entry: Entry) -> bytes:
    """Return the line that holds an entry.

    Raises:
        MessageTooLarge: the entry or its line has more than `LINE_LIMIT_BYTES`.
    """
    entry_id, fields = entry
    if (size := sum(map(len, fields))) > LINE_LIMIT_BYTES:
        raise MessageTooLarge(size, LINE_LIMIT_BYTES)
    data: dict[str, JsonValue] = {"lane": lane.value, "id": entry_id.decode()}
    if len(fields) == 4 and fields[0] == b"h" and fields[2] == b"m":
        data |= {"h": _json(fields[1]), "m": _json(fields[3])}
    else:
        data["fields"] = [_json(value) for value in fields]
    line = _line(data)
    if len(line) > LINE_LIMIT_BYTES:
        raise MessageTooLarge(len(line), LINE_LIMIT_BYTES)
    return line


def sealed(header: Header, lines: Sequence[bytes]) -> tuple[SegmentName, bytes]:
    """Return a segment's name and the bytes of its compressed file. The same arguments give the same bytes."""
    text = _line({"format": FORMAT, "version": VERSION, **header._asdict()}) + b"".join(lines)
    text += _line({"count": len(lines), "sha256": sha256(text).hexdigest()})
    compressor = zlib.compressobj(6, zlib.DEFLATED, _GZIP)  # the module gzip would write the time into its header
    data = compressor.compress(text) + compressor.flush()
    return SegmentName(header.first, header.last, sha256(data).hexdigest()), data


def read_segment(namespace: str, session: str, name: SegmentName, data: bytes) -> Segment:
    """Read a segment's file and verify its whole content.

    Raises:
        ArchiveDamaged: the file does not match its name, is from another session, or is not a complete segment.
    """
    try:
        return _read(namespace, session, name, data)
    except _Fault as fault:
        reason = str(fault)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, BusError):
        reason = "it has an invalid line"
    raise ArchiveDamaged(session, str(name), reason)


class _Fault(Exception):
    """A file is not a valid segment. The text says why."""


def _read(namespace: str, session: str, name: SegmentName, data: bytes) -> Segment:
    if (found := sha256(data).hexdigest()) != name.sha256:
        raise _Fault(f"the file's SHA-256 is {found}")
    text = _unpacked(data)
    first_line, *lines, seal_line = text.split(b"\n")[:-1]
    seal = _object(seal_line)
    if seal.get("count") != len(lines):
        raise _Fault(f"it has {len(lines)} entries, its seal says {seal.get('count')}")
    if seal.get("sha256") != sha256(text[: -len(seal_line) - 1]).hexdigest():
        raise _Fault("its lines do not match the SHA-256 in its seal")
    header = _header(_object(first_line))
    if (header.namespace, header.session) != (namespace, session):
        raise _Fault(f"it belongs to session {header.session!r} of namespace {header.namespace!r}")
    if (header.first, header.last) != name[:2]:
        raise _Fault(f"it holds positions {header.first} to {header.last}")
    entries = [_entry(_object(line)) for line in lines]
    _require_whole(header, entries)
    return Segment(name, header, entries)


def _unpacked(data: bytes) -> bytes:
    decompressor = zlib.decompressobj(_GZIP)
    try:
        text = decompressor.decompress(data, TEXT_LIMIT_BYTES)
    except zlib.error:
        raise _Fault("it is not gzip") from None
    if decompressor.unconsumed_tail:
        raise _Fault(f"it decompresses to more than {TEXT_LIMIT_BYTES} bytes")
    if not decompressor.eof or decompressor.unused_data or not text.endswith(b"\n") or text.count(b"\n") < 2:
        raise _Fault("it is cut off, or has data after its end")
    return text


def _header(data: Mapping[str, JsonValue]) -> Header:
    if data["format"] != FORMAT:
        raise _Fault("it has another format")
    if data["version"] != VERSION:
        raise _Fault(f"it has version {data['version']}, this package reads {VERSION}")
    return Header(
        _typed(str, data["namespace"]),
        _typed(str, data["session"]),
        _typed(int, data["number"]),
        _typed(int, data["first"]),
        _typed(int, data["last"]),
        _typed(str, data["incarnation"]),
        _typed(str, data["previous"]),
    )


def _entry(data: Mapping[str, JsonValue]) -> LaneEntry:
    lane, entry_id = Lane(_typed(str, data["lane"])), _typed(str, data["id"]).encode()
    if "fields" in data:
        return lane, (entry_id, [_bytes(value) for value in cast("list[JsonValue]", data["fields"])])
    return lane, (entry_id, [b"h", _bytes(data["h"]), b"m", _bytes(data["m"])])


def _require_whole(header: Header, entries: Iterable[LaneEntry]) -> None:
    position = header.first - 1
    for _, (entry_id, _) in entries:
        entry_position = int(entry_id.partition(b"-")[0])
        if not position <= entry_position <= position + 1 or entry_position < header.first:
            raise _Fault(f"position {entry_position} follows {position}")
        position = entry_position
    if position != header.last:
        raise _Fault(f"it ends at position {position}")


def _json(value: bytes) -> JsonValue:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}


def _bytes(value: JsonValue) -> bytes:
    if isinstance(value, dict):
        return b64decode(_typed(str, value["base64"]), validate=True)
    return _typed(str, value).encode()


def _typed(kind: type[T], value: object) -> T:
    if type(value) is not kind:
        raise TypeError
    return value


def _line(data: Mapping[str, object]) -> bytes:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _object(line: bytes) -> dict[str, JsonValue]:
    data = json.loads(line)
    if not isinstance(data, dict):
        raise TypeError
    return cast("dict[str, JsonValue]", data)


_GZIP = zlib.MAX_WBITS | 16
"""zlib's parameter for a gzip header and trailer"""


# The protocol of archive stores, which hold files written once, and the stores in a directory and in a bucket.


FILE_LIMIT_BYTES = 128 * 1_048_576
"""Maximum number of bytes of a file that is read. Segments are smaller, so a larger file was written by another
program."""

_PART = r"[a-z0-9_=-][a-z0-9_=.-]{0,199}"
_NAME = re.compile(rf"{_PART}(?:/{_PART}){{0,7}}")


class ArchiveStore(Protocol):
    """A store for segments. Several processes may write the same file at once. A reader never sees a partial file.

    A name is one or more parts separated by slashes. A part consists of lower-case letters, digits and `_-=.`. The name
    contains the SHA-256 of the file, so every writer of a name writes the same bytes.
    """

    async def put_if_absent(self, name: str, data: bytes) -> None:
        """Store a file, if it is not stored yet. When the call returns, the file is durable.

        If the call is cancelled, either the whole file is stored or nothing.

        Raises:
            InvalidArchiveName: the name does not have the form that `ArchiveStore` describes.
            Unavailable: the store cannot be reached, or failed.
            SetupError: the store refused access.
        """
        ...

    async def get(self, name: str) -> bytes | None:
        """Return the bytes of a file without verifying them, or None if the file is not stored.

        Raises:
            MessageTooLarge: the file is over `FILE_LIMIT_BYTES`. It was not read.
            InvalidArchiveName: as for `put_if_absent`.
            Unavailable: as for `put_if_absent`.
            SetupError: as for `put_if_absent`.
        """
        ...

    async def names(self, folder: str) -> list[str]:
        """Return the sorted names of the files in a folder. The list is empty if the folder does not exist.

        Raises:
            InvalidArchiveName: as for `put_if_absent`.
            Unavailable: as for `put_if_absent`.
            SetupError: as for `put_if_absent`.
        """
        ...

    async def delete(self, name: str) -> None:
        """Delete a file. Do nothing if the file is not stored.

        Raises:
            InvalidArchiveName: as for `put_if_absent`.
            Unavailable: as for `put_if_absent`.
            SetupError: as for `put_if_absent`.
        """
        ...

    async def clear(self, folder: str) -> None:
        """Delete everything in a folder, including files of other programs, and the folder itself.

        The folder's name holds the id of a session, which an erasure must not leave. If the call is cancelled, some
        files remain.

        Raises:
            InvalidArchiveName: as for `put_if_absent`.
            Unavailable: as for `put_if_absent`.
            SetupError: as for `put_if_absent`.
        """
        ...


def check_name(name: str) -> str:
    """Return `name` if it is valid.

    Raises:
        InvalidArchiveName: a part of the name is empty, begins with a dot, or has a character that is not allowed.
    """
    if _NAME.fullmatch(name) is None:
        raise InvalidArchiveName(name)
    return name


# Archive stores in a directory and in an object store. Each session is a folder, and each segment a blob.

_OBJECTS = "archive store"


class _BlobArchive:
    """An `ArchiveStore` on a blob store. Checks the name of a file, and uses it as the name of the blob."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs

    async def put_if_absent(self, name: str, data: bytes) -> None:
        """See `ArchiveStore`."""
        await self._blobs.put_if_absent(check_name(name), data, content_type="application/gzip")

    async def get(self, name: str) -> bytes | None:
        """See `ArchiveStore`."""
        return await self._blobs.get(check_name(name), limit_bytes=FILE_LIMIT_BYTES)

    async def names(self, folder: str) -> list[str]:
        """See `ArchiveStore`."""
        return await self._blobs.names(check_name(folder))

    async def delete(self, name: str) -> None:
        """See `ArchiveStore`."""
        await self._blobs.delete(check_name(name))

    async def clear(self, folder: str) -> None:
        """See `ArchiveStore`."""
        await self._blobs.clear(check_name(folder))


class DirectoryArchive(_BlobArchive):
    """An `ArchiveStore` in a directory.

    A missing directory is created. Only the owner can read the directory and its files. When `put_if_absent` returns,
    the file and its name are on disk. `clear` also removes partly written files and files of other programs.

    Args:
        path: the directory.
    """

    def __init__(self, path: Path) -> None:
        require_instance("path", path, Path, "pass a pathlib.Path")
        super().__init__(Folder(path, "archive directory"))


class ObjectArchive(_BlobArchive):
    """An `ArchiveStore` in S3, Google Cloud Storage or Azure. Needs the package obstore, in the extra `s3`.

    A segment is sent in one request, and the server either stores the whole segment or nothing.
    """

    def __init__(self, store: ObjectStore) -> None:
        """Use a store of the package `obstore`. Credentials, time-outs and retries are settings of `store`."""
        super().__init__(Objects(store, _OBJECTS))

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Return the store at a URL such as `s3://bucket/prefix`. Does not connect yet.

        Raises:
            MissingExtra: the package `obstore` is not installed.
            SetupError: `obstore` does not know this kind of URL.
        """
        return cls(object_store_at(url, _OBJECTS))


def archive_store_at(place: str) -> DirectoryArchive | ObjectArchive:
    """Return the store at a URL or in a directory. Does not connect or create anything yet.

    Args:
        place: a URL such as `s3://bucket/prefix`, or the path of a directory.

    Raises:
        SetupError: `place` is a URL with an unknown scheme, or one that `obstore` does not support.
        MissingExtra: `place` is a URL, and the package `obstore` is not installed.
    """
    require_text("place", place, is_filled=True)
    return store_at(place, DirectoryArchive, ObjectArchive.from_url)
