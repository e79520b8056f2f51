"""Read a transcript file: line by line, detect its format, and join the lines that form one message.

Neither the whole file nor an overlong line is held in memory.
"""

import hashlib
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import BinaryIO, NamedTuple

from pydantic import JsonValue

from lanebus.bus import run_in_thread
from lanebus.bus.errors import DecodeError, MessageError
from lanebus.bus.messages import parse_json, require_few_values
from lanebus.handlers.formats.transcript import (
    DEFAULT_TRANSCRIPT_BOUNDS,
    ExportOrigin,
    Format,
    Gatherer,
    TranscriptBounds,
    TranscriptEntry,
    TranscriptLine,
    UnknownFormat,
)

# Read a file line by line. Neither the whole file nor an overlong line is held in memory.

LINE_LIMIT_BYTES = 64 * 1024 * 1024
"""Size limit of a line. Longer lines are reported and skipped. The size limit of messages is far lower."""


class RawLine(NamedTuple):
    """One line of a file, not parsed."""

    number: int
    """counts from 1"""
    data: bytes | None
    """the line without its line end and byte order mark; None if the line is over the limit"""
    size_bytes: int
    """size in the file, including the line end"""
    is_ended: bool = True
    """whether the line has a line end. Only the last line of a file may have none"""


def read_lines(
    file: BinaryIO, *, limit_bytes: int = LINE_LIMIT_BYTES, bounds: TranscriptBounds = DEFAULT_TRANSCRIPT_BOUNDS
) -> Iterator[RawLine]:
    """Yield every line, blank lines included. Lines end with LF or CRLF; the last line may have no line end."""
    for number in count(1):
        data = file.readline(limit_bytes + 1)
        if not data:
            return
        size = len(data)
        if size > limit_bytes and not data.endswith(b"\n"):
            while data and not data.endswith(b"\n"):
                data = file.readline(bounds.batch_bytes)
                size += len(data)
            yield RawLine(number, None, size)
            continue
        content = (data.removeprefix(b"\xef\xbb\xbf") if number == 1 else data).rstrip(b"\r\n")
        yield RawLine(number, content, size, data.endswith(b"\n"))


async def stream_lines(
    file: BinaryIO, *, limit_bytes: int = LINE_LIMIT_BYTES, bounds: TranscriptBounds = DEFAULT_TRANSCRIPT_BOUNDS
) -> AsyncGenerator[RawLine, None]:
    """Yield every line like `read_lines`. A worker thread reads batches, so a slow file blocks no other task."""
    lines = read_lines(file, limit_bytes=limit_bytes, bounds=bounds)
    while batch := await run_in_thread(partial(_take_batch, lines, bounds), abandon=True):
        for line in batch:
            yield line


def _take_batch(lines: Iterator[RawLine], bounds: TranscriptBounds) -> list[RawLine]:
    batch: list[RawLine] = []
    size = 0
    for line in lines:
        batch.append(line)
        size += line.size_bytes
        if size >= bounds.batch_bytes or len(batch) >= bounds.batch_lines:
            break
    return batch


# Read a transcript file: detect its format, and join the lines that form one message.

DOCUMENT_LIMIT_BYTES = LINE_LIMIT_BYTES
"""The size limit of a file that is one JSON document, which is read as a whole. It equals the limit of a line."""


_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*+(?:"|\\?\Z)', re.DOTALL)
"""a text of JSON, which the end of the bytes may cut"""


class DocumentTooLarge(MessageError):
    """The file is one JSON document and too large to be read as a whole. Nothing was published."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"the file is one JSON document of more than {limit_bytes} bytes", "import a smaller one")
        self.limit_bytes = limit_bytes


class SourcePiece(NamedTuple):
    """One unit of an import: a line, several joined lines, or a message of a document."""

    number: int
    """number of the piece's first line, or of the message in the document; counts from 1"""
    size_bytes: int
    entry: TranscriptEntry | str
    """the entry, or a text that says why it cannot be imported"""
    others: tuple[int, ...] = ()
    """numbers of the other joined lines"""
    content: bytes = b""
    """bytes that identify the piece: they are equal for the same piece in another file or at another place"""


class Source:
    """One file, read once: first `open`, then `pieces`."""

    def __init__(
        self,
        lines: AsyncIterator[RawLine],
        formats: Sequence[Format],
        bounds: TranscriptBounds = DEFAULT_TRANSCRIPT_BOUNDS,
    ) -> None:
        self._raw, self._formats, self._bounds = lines, formats, bounds
        self._ahead: list[RawLine] = []
        self._documents: list[JsonValue] | None = None
        self._overfull: DecodeError | None = None
        """why the first line, or the document, with too many values was not parsed"""
        self.lines = 0
        """number of lines read so far"""
        self.read_bytes = 0
        self.is_cut = False
        """whether the file ends within the last line read so far, or begins with JSON that does not end"""

    async def open(self) -> tuple[Format, bytes, ExportOrigin | None]:
        """Return the format, the transcript's identity and, for an export, what its header says.

        The identity comes from the first recognised line and not from the file's name. So a moved or copied file has
        the same identity.

        Raises:
            UnknownFormat: none of the formats recognises any of the first lines.
            DocumentTooLarge: the file is one JSON document that is too large.
            DecodeError: a line, or the document, has too many values, and the others are of no format.
        """
        recognized = await self._recognized_line() or await self._recognized_document()
        if recognized is None and self._overfull is not None:
            raise self._overfull
        if recognized is None:
            is_empty = all(raw.data is not None and not raw.data.strip() for raw in self._ahead)
            signs = {known.name: known.sign for known in self._formats}
            raise UnknownFormat(signs, 0 if is_empty else len(self._ahead), is_cut=self.is_cut)
        form, value, data = recognized
        if form.split and self._documents is None:
            self._documents = await self._read_documents()
        identity = data if form.identity is None else form.identity(value)
        digest = hashlib.sha256(form.name.encode() + b"\0" + identity).digest()
        return form, digest, form.origin(value) if form.origin else None

    async def pieces(self, form: Format) -> AsyncGenerator[SourcePiece, None]:
        """Yield the file's content, in order.

        Raises:
            MessageError: the file is one JSON document, but not one conversation of the format.
        """
        if form.split and self._documents is not None:
            for number, value in enumerate(form.split(self._documents), 1):
                content = canonical_json(value)
                yield _read_line(form, TranscriptLine(number, len(content), value, content))
            return
        ordered: Gatherer = _ParentsFirst(form.tree, self._bounds) if form.tree else _NoGatherer()
        gatherer = form.gather(self._bounds) if form.gather else _NoGatherer()
        async for raw in self._lines():
            line = _parsed_line(raw, self._bounds)
            if isinstance(line, SourcePiece):
                self.is_cut = _is_cut(raw)
                yield line
            elif line is not None:
                for next_line in ordered.take(line):
                    for complete in gatherer.take(next_line):
                        yield _read_line(form, complete)
        for next_line in ordered.end():
            for complete in gatherer.take(next_line):
                yield _read_line(form, complete)
        for complete in gatherer.end():
            yield _read_line(form, complete)

    async def _lines(self) -> AsyncIterator[RawLine]:
        for line in self._ahead:
            self._count(line)
            yield line
        async for line in self._raw:
            self._count(line)
            yield line

    def _count(self, line: RawLine) -> None:
        self.lines += 1
        self.read_bytes += line.size_bytes

    async def _recognized_line(self) -> tuple[Format, JsonValue, bytes] | None:
        looked_at, size = 0, 0
        async for line in self._raw:
            self._ahead.append(line)
            looked_at += bool(line.data)
            size += line.size_bytes
            if line.data and (value := self._value(line.data, f"line {line.number}")) is not None:
                for candidate in self._formats:
                    if candidate.recognizes(value):
                        return candidate, value, line.data
            if looked_at >= self._bounds.lines_to_detect or size > LINE_LIMIT_BYTES:
                break
        return None

    async def _recognized_document(self) -> tuple[Format, JsonValue, bytes] | None:
        """Try to read the file as one JSON document over many lines. Return None if no format recognises it."""
        start = next((line.data.lstrip() for line in self._ahead if line.data and line.data.strip()), b"")
        candidates = [known for known in self._formats if known.split]
        if not candidates or start[:1] not in {b"{", b"["}:
            return None
        data = await self._read_all()
        value = self._value(data, "the file")
        self.is_cut = self._value(start, "the file") is None and _ends_early(data)
        self._documents = [value]
        return next(((known, value, data) for known in candidates if known.recognizes(value)), None)

    async def _read_documents(self) -> list[JsonValue]:
        """Return the JSON values of a file whose first line is a JSON document. Most such files have only one value."""
        data = await self._read_all()
        if (whole := self._value(data, "the file")) is not None:
            return [whole]
        values: list[JsonValue] = []
        for number, line in enumerate(data.splitlines(), 1):
            if line.strip():
                try:
                    values.append(parse_json(line, self._bounds.json))
                except MessageError as error:
                    raise DecodeError(f"line {number}", str(error)) from None
        return values

    def _value(self, data: bytes, place: str) -> JsonValue:
        """Parse JSON; None if it is invalid, or has too many values, which is noted."""
        try:
            require_few_values(data, self._bounds.json)
        except DecodeError as error:
            self._overfull = self._overfull or DecodeError(place, error.reason)
            return None
        try:
            return parse_json(data, self._bounds.json)
        except (MessageError, ValueError):
            return None

    async def _read_all(self) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for line in self._lines():
            size += line.size_bytes
            if line.data is None or size > DOCUMENT_LIMIT_BYTES:
                raise DocumentTooLarge(DOCUMENT_LIMIT_BYTES)
            parts.append(line.data)
        return b"\n".join(parts)


class _Held(NamedTuple):
    """A line that is held back, and its place in the tree."""

    line: TranscriptLine
    id: str | None
    parent: str | None


class _ParentsFirst:
    """Moves a line that stands before its parent behind the parent; a `Gatherer`.

    Such a line is held back with all that follow it, until its parent is read. At the bounds, it counts as a line
    whose parent is missing.
    """

    def __init__(self, tree: tuple[str, str], bounds: TranscriptBounds) -> None:
        """
        Args:
            tree: see `Format.tree`.
            bounds: bounds on the lines held back.
        """
        (self._id, self._parent), self._bounds = tree, bounds
        self._seen: set[str] = set()
        self._held: dict[int, _Held] = {}
        """the lines held back, by number and in their order"""
        self._numbers: dict[str, int] = {}
        """id → number of the held line"""
        self._size_bytes = 0

    def take(self, line: TranscriptLine) -> Iterable[TranscriptLine]:
        fields = line.value if isinstance(line.value, dict) else {}
        name, parent = fields.get(self._id), fields.get(self._parent)
        held = _Held(line, name if isinstance(name, str) else None, parent if isinstance(parent, str) else None)
        if not self._held and (held.id is None or held.parent is None or held.parent in self._seen):  # hot path
            return (self._passed(held),)
        self._held[line.number] = held
        self._size_bytes += line.size_bytes
        if held.id is not None:
            self._numbers.setdefault(held.id, line.number)
        return self._ready(is_end=False)

    def end(self) -> Iterable[TranscriptLine]:
        return self._ready(is_end=True)

    def _ready(self, *, is_end: bool) -> list[TranscriptLine]:
        """Return the lines that need not wait: the first line, after its parents, as long as these were read."""
        ready: list[TranscriptLine] = []
        while self._held:
            bounds = self._bounds
            is_full = len(self._held) > bounds.waiting_lines or self._size_bytes > bounds.waiting_bytes
            family, is_known = self._family()
            if not is_known and not is_full and not is_end:
                break
            for number in family:
                held = self._held.pop(number)
                self._size_bytes -= held.line.size_bytes
                if held.id is not None and self._numbers.get(held.id) == number:
                    del self._numbers[held.id]
                ready.append(self._passed(held))
        return ready

    def _family(self) -> tuple[list[int], bool]:
        """Return the first line and those of its ancestors that are held back, ancestors first; and whether the parent
        of the first ancestor was read."""
        first = next(iter(self._held))
        family = {first: None}
        at = self._held[first]
        while at.id is not None and at.parent is not None and at.parent not in self._seen:
            number = self._numbers.get(at.parent)
            if number is None:
                return [*reversed(family)], False
            if number in family:  # the parents lead back to a line of theirs: keep the order of the file
                return [first], True
            family[number] = None
            at = self._held[number]
        return [*reversed(family)], True

    def _passed(self, held: _Held) -> TranscriptLine:
        if held.id is not None:
            self._seen.add(held.id)
        return held.line


class _NoGatherer:
    """The gatherer of a format in which each line is a whole message."""

    def take(self, line: TranscriptLine) -> Iterable[TranscriptLine]:
        return (line,)

    def end(self) -> Iterable[TranscriptLine]:
        return ()


def gathered(form: Format, values: Iterable[JsonValue]) -> Iterator[tuple[int, JsonValue]]:
    """Join the lines of a transcript in memory, or split its JSON document. Yield (number, value for `form.read`).

    The number is that of the first joined line, or of the message in the document, from 1.

    Raises:
        MessageError: the format is one JSON document, but the values are not one conversation of the format.
    """
    gatherer = form.gather(DEFAULT_TRANSCRIPT_BOUNDS) if form.gather else _NoGatherer()
    split = form.split([*values]) if form.split else values
    for number, value in enumerate(split, 1):
        for complete in gatherer.take(TranscriptLine(number, 0, value, b"")):
            yield complete.number, complete.value
    for complete in gatherer.end():
        yield complete.number, complete.value


def canonical_json(value: JsonValue) -> bytes:
    """Encode a value as JSON, with sorted keys and without spaces, so that equal values have equal bytes."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def _parsed_line(raw: RawLine, bounds: TranscriptBounds) -> TranscriptLine | SourcePiece | None:
    """Parse a line. Return a piece with the reason if the line is invalid, and None if the line is blank."""
    if raw.data is None:
        reason = f"line of {raw.size_bytes} bytes is over {LINE_LIMIT_BYTES} bytes"
        return SourcePiece(raw.number, raw.size_bytes, reason)
    if not raw.data.strip():
        return None
    try:
        return TranscriptLine(raw.number, raw.size_bytes, parse_json(raw.data, bounds.json), raw.data)
    except (MessageError, ValueError) as error:  # ValueError: a number with thousands of digits
        reason = f"the file ends within this line: {error}" if _is_cut(raw) else str(error)
        return SourcePiece(raw.number, raw.size_bytes, reason)


def _is_cut(line: RawLine) -> bool:
    """Whether the file ends within the JSON of a line."""
    return not line.is_ended and line.data is not None and _ends_early(line.data)


def _ends_early(data: bytes) -> bool:
    """Whether an object or a list begins in these bytes and does not end in them."""
    signs = _TEXT.sub(b"", data)
    is_open = signs.count(b"{") + signs.count(b"[") > signs.count(b"}") + signs.count(b"]")
    return is_open and signs.lstrip().startswith((b"{", b"["))


def _read_line(form: Format, line: TranscriptLine) -> SourcePiece:
    try:
        entry: TranscriptEntry | str = form.read(line.value)
    except (MessageError, ValueError) as error:
        entry = str(error)
    return SourcePiece(line.number, line.size_bytes, entry, line.others, line.content)
