"""A segment: a stretch of a session's log as a file that proves itself, and that `zcat` and `jq` read.

    zcat 1-250-….jsonl.gz | jq -r 'select(.m) | .m | fromjson'

It is gzip of JSON lines. The first is the header: whose log this is, from where to where, which incarnation wrote its
last entry, and the name of the segment before it. Then comes a line for each entry in the order of positions, LLM lane
first where both have one: its lane, its id, and the fields `h` and `m` as they stand in the stream, whatever is in
them; an entry that the bus did not write has a list `fields`. A value that is not UTF-8 is `{"base64": …}`. The last
line is the seal: how many entries there are, and the SHA-256 of all lines before it.

Old forms of messages are kept as they are; they are lifted when they are read, as those in the stream are.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from lanebus.bus.archive.names import SegmentName
from lanebus.bus.errors import ArchiveDamaged, BusError, MessageTooLarge
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.wire.codec import Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pydantic import JsonValue

__all__ = ("LINE_LIMIT_BYTES", "Header", "LaneEntry", "Segment", "line_of", "read_segment", "sealed")

FORMAT, VERSION = "lanebus-archive", 1

LINE_LIMIT_BYTES = 32 * 1_048_576
"""One entry as a line; a message of the bus has a tenth of it at most."""

TEXT_LIMIT_BYTES = 2 * LINE_LIMIT_BYTES
"""A segment's lines; of a file that grows beyond it when it is unpacked nothing is believed."""

LaneEntry = tuple[Lane, Entry]

T = TypeVar("T")


class Header(NamedTuple):
    """What a segment says of itself."""

    namespace: str
    session: str
    number: int
    """which one of its session's segments it is, from 1"""
    first: int
    last: int
    incarnation: str
    """that wrote the entry at `last`; "" if its header names none"""
    previous: str
    """the name of the segment before it, which ends in the SHA-256 of its file; "" for the first"""


class Segment(NamedTuple):
    """A segment that was read: all of it, verified."""

    name: SegmentName
    header: Header
    entries: Sequence[LaneEntry]


def line_of(lane: Lane, entry: Entry) -> bytes:
    """An entry as a line.

    Raises:
        MessageTooLarge: it has more bytes than a line may.
    """
    entry_id, fields = entry
    if (size := sum(map(len, fields))) > LINE_LIMIT_BYTES:
        raise MessageTooLarge(size, LINE_LIMIT_BYTES)
    said: dict[str, JsonValue] = {"lane": lane.value, "id": entry_id.decode()}
    if len(fields) == 4 and fields[0] == b"h" and fields[2] == b"m":
        said |= {"h": _said(fields[1]), "m": _said(fields[3])}
    else:
        said["fields"] = [_said(value) for value in fields]
    line = _line(said)
    if len(line) > LINE_LIMIT_BYTES:
        raise MessageTooLarge(len(line), LINE_LIMIT_BYTES)
    return line


def sealed(header: Header, lines: Sequence[bytes]) -> tuple[SegmentName, bytes]:
    """A segment's name and file. The same log gives the same bytes."""
    text = _line({"format": FORMAT, "version": VERSION, **header._asdict()}) + b"".join(lines)
    text += _line({"count": len(lines), "sha256": sha256(text).hexdigest()})
    packer = zlib.compressobj(
        6, zlib.DEFLATED, _GZIP
    )  # without a time in its header, as gzip itself would put it there
    data = packer.compress(text) + packer.flush()
    return SegmentName(header.first, header.last, sha256(data).hexdigest()), data


def read_segment(namespace: str, session: str, name: SegmentName, data: bytes) -> Segment:
    """The segment of a file, once all of it was looked at.

    Raises:
        ArchiveDamaged: it is not the file that its name tells, or not such a segment, or lacks something.
    """
    try:
        return _read(namespace, session, name, data)
    except _Fault as fault:
        reason = str(fault)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, BusError):
        reason = "a line of it is none of a segment"
    raise ArchiveDamaged(session, str(name), reason)


class _Fault(Exception):
    """What is wrong with a file."""


def _read(namespace: str, session: str, name: SegmentName, data: bytes) -> Segment:
    if (found := sha256(data).hexdigest()) != name.sha256:
        raise _Fault(f"the file's SHA-256 is {found}")
    text = _unpacked(data)
    first_line, *lines, seal_line = text.split(b"\n")[:-1]
    seal = _object(seal_line)
    if seal.get("count") != len(lines):
        raise _Fault(f"{len(lines)} entries, sealed were {seal.get('count')}")
    if seal.get("sha256") != sha256(text[: -len(seal_line) - 1]).hexdigest():
        raise _Fault("the seal is of other lines")
    header = _header(_object(first_line))
    if (header.namespace, header.session) != (namespace, session):
        raise _Fault(f"it is of session {header.session!r} of namespace {header.namespace!r}")
    if (header.first, header.last) != name[:2]:
        raise _Fault(f"it is of positions {header.first} to {header.last}")
    entries = [_entry(_object(line)) for line in lines]
    _require_whole(header, entries)
    return Segment(name, header, entries)


def _unpacked(data: bytes) -> bytes:
    unpacker = zlib.decompressobj(_GZIP)
    try:
        text = unpacker.decompress(data, TEXT_LIMIT_BYTES)
    except zlib.error:
        raise _Fault("not gzip") from None
    if unpacker.unconsumed_tail:
        raise _Fault(f"more than {TEXT_LIMIT_BYTES} bytes once unpacked")
    if not unpacker.eof or unpacker.unused_data or not text.endswith(b"\n") or text.count(b"\n") < 2:
        raise _Fault("cut off, or something stands behind its end")
    return text


def _header(said: Mapping[str, JsonValue]) -> Header:
    if said["format"] != FORMAT:
        raise _Fault("another format")
    if said["version"] != VERSION:
        raise _Fault(f"version {said['version']}, this package reads {VERSION}")
    return Header(
        _of(str, said["namespace"]),
        _of(str, said["session"]),
        _of(int, said["number"]),
        _of(int, said["first"]),
        _of(int, said["last"]),
        _of(str, said["incarnation"]),
        _of(str, said["previous"]),
    )


def _entry(said: Mapping[str, JsonValue]) -> LaneEntry:
    lane, entry_id = Lane(_of(str, said["lane"])), _of(str, said["id"]).encode()
    if "fields" in said:
        return lane, (entry_id, [_bytes(value) for value in cast("list[JsonValue]", said["fields"])])
    return lane, (entry_id, [b"h", _bytes(said["h"]), b"m", _bytes(said["m"])])


def _require_whole(header: Header, entries: Iterable[LaneEntry]) -> None:
    position = header.first - 1
    for _, (entry_id, _) in entries:
        found = int(entry_id.partition(b"-")[0])
        if not position <= found <= position + 1 or found < header.first:
            raise _Fault(f"position {found} follows {position}")
        position = found
    if position != header.last:
        raise _Fault(f"it ends at position {position}")


def _said(value: bytes) -> JsonValue:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}


def _bytes(value: JsonValue) -> bytes:
    if isinstance(value, dict):
        return b64decode(_of(str, value["base64"]), validate=True)
    return _of(str, value).encode()


def _of(kind: type[T], value: object) -> T:
    if type(value) is not kind:
        raise TypeError
    return value


def _line(said: Mapping[str, object]) -> bytes:
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _object(line: bytes) -> dict[str, JsonValue]:
    said = json.loads(line)
    if not isinstance(said, dict):
        raise TypeError
    return cast("dict[str, JsonValue]", said)


_GZIP = zlib.MAX_WBITS | 16
"""the form of `gzip` around the packed bytes"""
