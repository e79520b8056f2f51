"""A transcript into a session: every line once, in the file's order, however often it is tried.

Each entry is published under a key made from its content, so a second import, or one after a crash in the middle, adds
only what is missing and is told the positions of the rest.
"""

import hashlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from anyio import Event, create_task_group
from anyio.abc import TaskGroup

from bus.errors import BusError, MessageError
from bus.messages.reading import Publishable, parse_json
from bus.receipt import Receipt
from bus.session import Session
from handlers.transcripts.format import Format, TranscriptEntry, UnknownFormat
from handlers.transcripts.lines import LINE_LIMIT_BYTES, RawLine, stream_lines
from handlers.transcripts.pi import PI
from handlers.transcripts.places import Places, Put
from handlers.transcripts.report import BadLine, ImportProgress, ImportReport
from handlers.transcripts.seed000 import SEED000

__all__ = ("FORMATS", "BadLine", "ImportProgress", "ImportReport", "import_transcript")

FORMATS: tuple[Format, ...] = (SEED000, PI)
"""What is recognised, tried in this order on each of the first lines. The headers of these two differ in their times
alone, and seed 000's is the narrower."""

_LINES_TO_DETECT = 100
_UNDER_WAY = 64
_UNDER_WAY_BYTES = 16 * 1024 * 1024


@dataclass(slots=True)
class _Publish:
    """One line under way: published by a task of its own, looked at in the file's order."""

    number: int
    size_bytes: int
    ordinal: int
    put: Put
    outcome: Receipt | BusError | None = None
    is_done: Event = field(default_factory=Event)


async def import_transcript(
    session: Session,
    source: Path | BinaryIO,
    *,
    formats: tuple[Format, ...] = FORMATS,
    on_progress: Callable[[ImportProgress], None] | None = None,
) -> ImportReport:
    """Publish every line of a transcript to the session, without waking a worker.

    A line that cannot be read, or that is over a limit, is in the report's `bad`; the others go in. A cancelled import
    leaves a beginning of the transcript in the log, and running it again adds the rest.

    Raises:
        UnknownFormat: none of `formats` recognises any of the first lines; nothing was published.
        OSError: the file could not be read.
        BusError: the session refused, or could not be reached; the import may be run again.
    """
    if isinstance(source, Path):
        # Opening and stat are quick; the reading itself is done by another thread.
        with source.open("rb") as file:
            size = source.stat().st_size or None  # noqa: ASYNC240
            return await _Import(session, formats, on_progress, size).run(file)
    return await _Import(session, formats, on_progress, None).run(source)


class _Import:
    def __init__(
        self,
        session: Session,
        formats: tuple[Format, ...],
        on_progress: Callable[[ImportProgress], None] | None,
        total_bytes: int | None,
    ) -> None:
        self._session, self._formats, self._on_progress = session, formats, on_progress
        self._total_bytes, self._read_bytes, self._lines = total_bytes, 0, 0
        self._places = Places()
        self._repeats: Counter[bytes] = Counter()
        self._under_way: deque[_Publish] = deque()
        self._under_way_bytes = 0
        self._added = self._already_there = 0
        self._first: int | None = None
        self._last: int | None = None
        self._bad: list[BadLine] = []

    async def run(self, file: BinaryIO) -> ImportReport:
        async with aclosing(stream_lines(file)) as lines:
            ahead, found, identity = await self._detect(lines)
            failure: BusError | OSError | None = None
            async with create_task_group() as tasks:
                try:
                    for line in ahead:
                        await self._line(tasks, found, identity, line)
                    async for line in lines:
                        await self._line(tasks, found, identity, line)
                    await self._settle(0)
                except (BusError, OSError) as error:
                    # Raised outside, as a task group would wrap it in a group of its own.
                    failure = error
                    tasks.cancel_scope.cancel()
            if failure is not None:
                raise failure
        self._tell()
        return ImportReport(
            format=found.name,
            lines=self._lines,
            added=self._added,
            already_there=self._already_there,
            bad=tuple(sorted(self._bad)),
            first=self._first,
            last=self._last,
        )

    async def _detect(self, lines: AsyncIterator[RawLine]) -> tuple[list[RawLine], Format, bytes]:
        """The lines looked at, the format, and the transcript's identity: the first line that its format recognises.

        A name would not do: a transcript that was moved or copied is the same one.
        """
        ahead: list[RawLine] = []
        looked_at, size = 0, 0
        async for line in lines:
            ahead.append(line)
            looked_at += bool(line.data)
            size += line.size_bytes
            for candidate in self._formats if line.data else ():
                if _recognizes(candidate, line.data or b""):
                    identity = hashlib.sha256(candidate.name.encode() + b"\0" + (line.data or b"")).digest()
                    return ahead, candidate, identity
            if looked_at == _LINES_TO_DETECT or size > LINE_LIMIT_BYTES:
                break
        raise UnknownFormat({known.name: known.sign for known in self._formats}, len(ahead))

    async def _line(self, tasks: TaskGroup, found: Format, identity: bytes, line: RawLine) -> None:
        self._lines += 1
        self._read_bytes += line.size_bytes
        if line.data is None:
            self._places.add(None)
            self._bad.append(BadLine(line.number, f"line of {line.size_bytes} bytes is over {LINE_LIMIT_BYTES} bytes"))
        elif line.data.strip():
            try:
                entry = found.read(parse_json(line.data))
                ordinal = self._places.add(entry)
            except (MessageError, ValueError) as error:  # the latter from a number of thousands of digits
                self._places.add(None)
                self._bad.append(BadLine(line.number, str(error)))
            else:
                await self._submit(tasks, line, ordinal, entry, self._key(identity, line.data))

    async def _submit(self, tasks: TaskGroup, line: RawLine, ordinal: int, entry: TranscriptEntry, key: str) -> None:
        if self._places.needs_positions(ordinal, entry):
            await self._settle(0)
        put = self._places.put(ordinal, entry)
        publish = _Publish(line.number, line.size_bytes, ordinal, put)
        self._under_way.append(publish)
        self._under_way_bytes += publish.size_bytes
        # Tasks begin in the order they are started, and a session's publishes are appended in the order they are made.
        tasks.start_soon(self._publish, publish, put.messages, key)
        await self._settle(_UNDER_WAY - 1)

    async def _publish(self, publish: _Publish, messages: tuple[Publishable, ...], key: str) -> None:
        try:
            publish.outcome = await self._session.publish(*messages, key=key, wake=False)
        except BusError as error:
            publish.outcome = error
        publish.is_done.set()

    async def _settle(self, most: int) -> None:
        """Wait until no more than `most` publishes, and no more than a bound of bytes, are under way.

        Raises:
            BusError: one of them failed for another reason than its own message.
        """
        while len(self._under_way) > most or (self._under_way and self._under_way_bytes > _UNDER_WAY_BYTES):
            publish = self._under_way[0]
            await publish.is_done.wait()
            self._under_way.popleft()
            self._under_way_bytes -= publish.size_bytes
            self._take(publish)
            if publish.number % 64 == 0:
                self._tell()

    def _take(self, publish: _Publish) -> None:
        outcome = publish.outcome
        if isinstance(outcome, MessageError):
            self._bad.append(BadLine(publish.number, str(outcome)))
            if publish.put.own:
                self._places.failed(publish.ordinal, publish.put.before)
        elif isinstance(outcome, BusError):
            raise outcome
        elif outcome is not None:
            positions = outcome.positions
            if outcome.is_duplicate:
                self._already_there += len(positions)
            else:
                self._added += len(positions)
            self._first = min(positions) if self._first is None else min(self._first, *positions)
            self._last = max(positions) if self._last is None else max(self._last, *positions)
            if publish.put.own:
                self._places.placed(publish.ordinal, [positions[at] for at in publish.put.own])

    def _key(self, identity: bytes, data: bytes) -> str:
        """The entry's name in its session: by content and how often that came before, not by line number.

        So a blank or damaged line more in the file gives no other key to those behind it.
        """
        content = hashlib.sha256(data).digest()
        self._repeats[content] += 1
        count = self._repeats[content].to_bytes(8, "big")
        return f"import:{hashlib.sha256(identity + content + count).hexdigest()[:32]}"

    def _tell(self) -> None:
        if self._on_progress is not None:
            entries = self._added + self._already_there
            self._on_progress(ImportProgress(self._lines, self._read_bytes, self._total_bytes, entries))


def _recognizes(candidate: Format, data: bytes) -> bool:
    try:
        return candidate.recognizes(parse_json(data))
    except (MessageError, ValueError):
        return False
