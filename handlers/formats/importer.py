"""Import a transcript into a session: every line once, in the file's order, even if the import is repeated. A line that
stands before its parent comes after it.

Each entry is published under a key made from the content of its line. So a repeated import, for example after a crash,
adds only the missing entries. The import receives the positions of all entries, also of those that the log already has.

The entries are marked as imported, so that workers do not act on them: see `Envelope.is_imported`.
"""

import hashlib
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from anyio import Event, create_task_group
from anyio.abc import TaskGroup
from pydantic import JsonValue

from lanebus.bus import Session
from lanebus.bus.errors import BusError, Conflict, MessageError, StreamError
from lanebus.bus.messages import Lane, Publishable
from lanebus.bus.wire import START, Cursor, Envelope, Receipt, ReservedKey
from lanebus.handlers.formats.claude_code import CLAUDE_CODE
from lanebus.handlers.formats.coding_agent.transcript import CODING_AGENT_FORMAT
from lanebus.handlers.formats.lanebus_export import OWN
from lanebus.handlers.formats.openai_chat import OPENAI_CHAT
from lanebus.handlers.formats.pi import PI
from lanebus.handlers.formats.source import Source, SourcePiece, gathered, stream_lines
from lanebus.handlers.formats.transcript import (
    DEFAULT_TRANSCRIPT_BOUNDS,
    CyclicTree,
    ExportOrigin,
    Format,
    Put,
    TranscriptBounds,
    TranscriptEntry,
    TreePlacement,
)

# The progress and the result of an import.


class BadLine(NamedTuple):
    """A line that was not imported."""

    number: int
    """number of the line, or of the message in a JSON document, from 1"""
    reason: str
    """text for people that says why the line was not imported"""


class MissingParent(NamedTuple):
    """A line that was imported without its parent: the file has none, or it was not imported before the line.

    In a file of Claude Code, or after a bad line, such a line follows the previous line. Else it begins a branch.
    """

    number: int
    """number of the line, from 1"""
    parent: str
    """id of the parent"""


class MissingEntries(NamedTuple):
    """Positions that an export should have, by its header, and that no line of the file has."""

    first: int
    """the first missing position in the exported log"""
    last: int
    """the last missing position in the exported log"""


class ImportProgress(NamedTuple):
    """The progress of an import."""

    lines: int
    """lines read"""
    read_bytes: int
    """bytes read"""
    total_bytes: int | None
    """size of the file; None for a pipe"""
    entries: int
    """entries acknowledged so far: entries added, and entries that the log already had"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """The result of an import. One line can become several entries of the log."""

    format: str
    """name of the transcript's format"""
    lines: int
    """lines read"""
    added: int
    """entries added"""
    already_there: int
    """entries that an earlier import had added"""
    bad: tuple[BadLine, ...]
    """lines that were not imported"""
    missing_parents: tuple[MissingParent, ...] = ()
    """lines that were imported without their parent: what the model saw there is a guess"""
    missing_entries: tuple[MissingEntries, ...] = ()
    """positions that are not in the file, although the header of the export says so. Of an export of one lane, only its
    missing end is known"""
    is_cut: bool = False
    """whether the file ends within its last line, or before the last entry that its header names"""
    first: int | None
    """lowest position of the transcript's entries; None if there are no entries"""
    last: int | None
    """highest position of the transcript's entries; None if there are no entries"""
    unit: Literal["line", "message"] = "line"
    """unit of the numbers in `bad`: `message` if the file is one JSON document, otherwise `line`"""


FORMATS: tuple[Format, ...] = (OWN, CODING_AGENT_FORMAT, PI, CLAUDE_CODE, OPENAI_CHAT)
"""The known formats. Each of the first lines is compared with the formats in this order. The `coding-agent` format
comes before pi's format, because pi's format also recognises a header of `coding-agent`."""


class OwnLog(StreamError):
    """The file is an export of the same session as the import's target. Nothing was published."""

    def __init__(self, session: str) -> None:
        super().__init__(f"the file is an export of session {session!r} itself", "import it into another session")
        self.session = session


class OtherEntries(StreamError):
    """The session has entries that are not of an earlier import of the beginning of the file. Nothing was published.

    Fields: `session`, its id.
    """

    def __init__(self, session: str) -> None:
        super().__init__(
            f"session {session!r} has entries besides those of an earlier import, or this file was changed since",
            f"if the file shall go there, name the session: --session {session}; else name another one",
        )
        self.session = session


@dataclass(slots=True)
class _Publish:
    """One publish in flight. Each publish has its own task. The results are processed in the file's order."""

    number: int
    others: tuple[int, ...]
    """numbers of the other lines of the message"""
    size_bytes: int
    ordinal: int
    put: Put
    old_position: int | None
    """the entry's position in the log that it was exported from; None if the transcript is not an export"""
    is_lost: bool
    """see `TranscriptEntry.is_lost`"""
    outcome: Receipt | BusError | None = None
    is_done: Event = field(default_factory=Event)


class _Positions:
    """Finds the positions of an export that no line of the file has."""

    def __init__(self, origin: ExportOrigin | None) -> None:
        self._origin = origin
        self._last = max(0 if origin is None else origin.first - 1, 0)
        self._gaps: list[MissingEntries] = []
        """in order; each is before the last position found"""

    def add(self, piece: SourcePiece) -> None:
        """Note the position of a line, also of one that cannot be imported."""
        position = None if self._origin is None or isinstance(piece.entry, str) else piece.entry.position
        if position is None:
            return
        if position > self._last:
            if position > self._last + 1:
                self._gaps.append(MissingEntries(self._last + 1, position - 1))
            self._last = position
            return
        at = bisect_right(self._gaps, position, key=lambda gap: gap.first) - 1
        if at >= 0 and position <= self._gaps[at].last:  # the file is not in order
            first, last = self._gaps[at]
            self._gaps[at : at + 1] = [
                MissingEntries(*gap) for gap in ((first, position - 1), (position + 1, last)) if gap[0] <= gap[1]
            ]

    @property
    def is_cut(self) -> bool:
        """Whether the last positions were not found, once all lines were read."""
        return self._origin is not None and self._last < self._origin.last

    def missing(self) -> tuple[MissingEntries, ...]:
        """Return the missing positions, once all lines were read."""
        if self._origin is None or not self._origin.last:
            return ()
        gaps = self._gaps if self._origin.is_dense else []
        end = [MissingEntries(self._last + 1, self._origin.last)] if self.is_cut else []
        return (*gaps, *end)


async def import_transcript(
    session: Session,
    source: Path | BinaryIO,
    *,
    formats: tuple[Format, ...] = FORMATS,
    beside_others: bool = True,
    on_progress: Callable[[ImportProgress], None] | None = None,
    bounds: TranscriptBounds = DEFAULT_TRANSCRIPT_BOUNDS,
) -> ImportReport:
    """Publish every line of a transcript to a session, without waking workers.

    The entries stay as they are in the file, but are marked as imported. So no worker answers an imported message,
    obeys an imported command or runs an imported tool call. Before a worker answers a new message, it appends a result
    for each imported call without one, which says that the call was not run.

    Lines that are invalid or over a limit are listed in the report's `bad` and skipped. A line that stands before its
    parent is imported after it, if the parent is among the next `TranscriptBounds.waiting_lines`. A line whose parent
    is missing is listed in `missing_parents`. Positions that an export should have, by its header, and that are not in
    the file, are listed in `missing_entries`. If the import is cancelled, the log has the first part of the transcript.
    A repeated import adds the rest.

    Args:
        session: the session to publish to.
        source: path of the file, or an open binary file.
        formats: formats to try, in order.
        beside_others: whether to add to a session that has entries besides those of an earlier import of the beginning
            of this file. Pass False if the file itself chose the session.
        on_progress: called about every 64 lines, and at the end.
        bounds: bounds on the memory and the publishes in flight.

    Raises:
        UnknownFormat: none of `formats` recognises any of the first lines. Nothing was published.
        MessageError: the file is one JSON document that is too large or not one conversation. Nothing was published.
        OwnLog: the file is an export of this session. Nothing was published.
        OtherEntries: the session has other entries, and `beside_others` is False. Nothing was published.
        OSError: the file could not be read.
        BusError: the session refused a publish, or could not be reached. The import may be repeated.
    """
    if isinstance(source, Path):
        # Opening and stat are fast; a worker thread reads the file.
        with source.open("rb") as file:
            size = source.stat().st_size or None  # noqa: ASYNC240
            return await _Import(session, formats, on_progress, size, bounds, beside_others=beside_others).run(file)
    return await _Import(session, formats, on_progress, None, bounds, beside_others=beside_others).run(source)


class _Import:
    def __init__(
        self,
        session: Session,
        formats: tuple[Format, ...],
        on_progress: Callable[[ImportProgress], None] | None,
        total_bytes: int | None,
        bounds: TranscriptBounds,
        *,
        beside_others: bool,
    ) -> None:
        self._beside_others, self._end = beside_others, START
        self._session, self._formats, self._on_progress = session, formats, on_progress
        self._total_bytes, self._bounds = total_bytes, bounds
        self._identity = b""
        self._placement: TreePlacement
        self._repeats: Counter[bytes] = Counter()
        self._under_way: deque[_Publish] = deque()
        self._under_way_bytes = 0
        self._added = self._already_there = 0
        self._first: int | None = None
        self._last: int | None = None
        self._bad: list[BadLine] = []
        self._missing_parents: list[MissingParent] = []
        self._source: Source

    async def run(self, file: BinaryIO) -> ImportReport:
        async with aclosing(stream_lines(file, bounds=self._bounds)) as lines:
            source = self._source = Source(lines, self._formats, self._bounds)
            form, self._identity, origin = await source.open()
            found = _Positions(origin)
            self._placement = TreePlacement(follows_previous=form.follows_previous)
            await self._require_another(origin)
            failure: BusError | OSError | None = None
            async with create_task_group() as tasks, aclosing(source.pieces(form)) as pieces:
                try:
                    async for piece in pieces:
                        found.add(piece)
                        await self._piece(tasks, piece)
                    await self._settle(0)
                except (BusError, OSError) as error:
                    # The task group would wrap the error in an exception group, so it is raised after the task group.
                    failure = error
                    tasks.cancel_scope.cancel()
            if failure is not None:
                raise failure
        self._report_progress()
        return ImportReport(
            format=form.name,
            lines=source.lines,
            added=self._added,
            already_there=self._already_there,
            bad=tuple(sorted(self._bad)),
            missing_parents=tuple(sorted(self._missing_parents)),
            missing_entries=found.missing(),
            is_cut=source.is_cut or found.is_cut,
            first=self._first,
            last=self._last,
            unit="message" if form.split else "line",
        )

    async def _require_another(self, origin: ExportOrigin | None) -> None:
        """Raise OwnLog if the file is an export of this session. Its import would duplicate every entry."""
        if origin and origin[:2] == (self._session.id, (await self._session.head()).created):
            raise OwnLog(self._session.id)

    async def _piece(self, tasks: TaskGroup, piece: SourcePiece) -> None:
        if isinstance(piece.entry, str):
            self._placement.add(None)
            self._note_bad(piece.number, piece.others, piece.entry)
            return
        try:
            ordinal = self._placement.add(piece.entry)
        except MessageError as error:
            self._placement.add(None)
            self._note_bad(piece.number, piece.others, str(error))
        else:
            if self._placement.is_orphan(ordinal):
                self._missing_parents.append(MissingParent(piece.number, str(piece.entry.parent)))
            await self._submit(tasks, piece, ordinal, piece.entry, self._key(piece.content))

    def _note_bad(self, number: int, others: tuple[int, ...], reason: str) -> None:
        self._bad.append(BadLine(number, reason))
        self._bad += (BadLine(each, f"part of the message of line {number}, which was not imported") for each in others)

    async def _submit(
        self, tasks: TaskGroup, piece: SourcePiece, ordinal: int, entry: TranscriptEntry, key: ReservedKey
    ) -> None:
        if self._placement.needs_positions(ordinal, entry):
            await self._settle(0)
        put = self._placement.put(ordinal, entry)
        publish = _Publish(piece.number, piece.others, piece.size_bytes, ordinal, put, entry.position, entry.is_lost)
        self._under_way.append(publish)
        self._under_way_bytes += publish.size_bytes
        # Tasks start in the order of `start_soon`, and publishes to a session are appended in the order of the calls.
        tasks.start_soon(self._publish, publish, put.messages, key)
        await self._settle(0 if self._is_first else self._bounds.publishes_in_flight - 1)

    @property
    def _is_first(self) -> bool:
        """Whether the next entry added has to follow the earlier import, with no other entry before it."""
        return not (self._beside_others or self._added)

    async def _publish(self, publish: _Publish, messages: tuple[Publishable, ...], key: ReservedKey) -> None:
        # If fewer entries were found than the session has up to the last of them, the others are not of this file.
        end = self._end if self._already_there == self._end.position else START
        expected = end if self._is_first else None
        try:
            publish.outcome = await self._session.publish(
                *messages, key=key, expected=expected, wake=False, imported=True
            )
        except Conflict as error:
            publish.outcome = error if expected is None else OtherEntries(self._session.id)
        except BusError as error:
            publish.outcome = error
        publish.is_done.set()

    async def _settle(self, most: int) -> None:
        """Wait until at most `most` publishes, and at most `under_way_bytes` bytes, are in flight.

        Raises:
            BusError: a publish failed, and not because its message is invalid.
        """
        limit_bytes = self._bounds.bytes_in_flight
        while len(self._under_way) > most or (self._under_way and self._under_way_bytes > limit_bytes):
            publish = self._under_way[0]
            await publish.is_done.wait()
            self._under_way.popleft()
            self._under_way_bytes -= publish.size_bytes
            self._take(publish)
            if publish.number % 64 == 0:
                self._report_progress()

    def _take(self, publish: _Publish) -> None:
        outcome = publish.outcome
        if isinstance(outcome, MessageError):
            self._note_bad(publish.number, publish.others, str(outcome))
            if publish.put.own:
                self._placement.failed(publish.ordinal, publish.put.before)
                if publish.old_position is not None:
                    self._placement.position_map.lose(publish.old_position)
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
            if self._last == positions[-1]:
                self._end = outcome.cursor
            if publish.put.own:
                self._placement.placed(publish.ordinal, [positions[at] for at in publish.put.own])
            if publish.old_position is not None and (publish.is_lost or publish.put.has_left_lane):
                self._placement.position_map.lose(publish.old_position)
            elif publish.old_position is not None:
                self._placement.position_map.note(publish.old_position, positions[-1], is_llm=bool(publish.put.own))

    def _key(self, data: bytes) -> ReservedKey:
        """Return the publish key of an entry, made from `data` and the number of earlier lines with the same `data`.

        The line number is not part of the key, because one more blank or damaged line would change all later keys.
        """
        content = hashlib.sha256(data).digest()
        self._repeats[content] += 1
        count = self._repeats[content].to_bytes(8, "big")
        return ReservedKey(f"import:{hashlib.sha256(self._identity + content + count).hexdigest()[:32]}")

    def _report_progress(self) -> None:
        if self._on_progress is not None:
            entries = self._added + self._already_there
            self._on_progress(ImportProgress(self._source.lines, self._source.read_bytes, self._total_bytes, entries))


# A transcript as a log in memory: the entries that an import would publish, without a server.


class ListedTranscript:
    """The entries of a transcript, at the positions that an import into an empty session gives them.

    A listed transcript can be read like a session, so `build_context` and `read_tree` accept it. Lines may be in any
    order: each entry is put after its parent. An entry whose parent is missing is treated as a first entry. But in a
    format with `Format.follows_previous`, and after an invalid line, which may have been the parent, the entry follows
    the previous line.
    """

    def __init__(self, lines: Iterable[JsonValue], form: Format, *, session: str = "transcript") -> None:
        """Read the lines. Invalid lines are listed in `bad` and skipped.

        Args:
            lines: the parsed lines.
            form: the format of the lines.
            session: session id to put into the envelopes.

        Raises:
            CyclicTree: the parents of an entry lead back to the entry itself.
        """
        self.id = session
        self.bad: tuple[BadLine, ...] = ()
        self._placement = TreePlacement(follows_previous=form.follows_previous)
        self._entries: list[Envelope] = []
        for entry in _parents_first(self._read(lines, form)):
            self._append(entry)

    @property
    def entries(self) -> tuple[Envelope, ...]:
        """The entries of both lanes, in position order."""
        return tuple(self._entries)

    async def read(
        self, *, lanes: frozenset[Lane], after: Cursor = START, until: int | None = None
    ) -> AsyncIterator[Envelope]:
        """Yield the entries of `lanes` after the cursor `after`, up to and including `until`, in position order.

        If `until` is None, yield all entries after the cursor.
        """
        for envelope in self._entries[after.position : until]:
            if envelope.lane in lanes:
                yield envelope

    def leaf(self, entry: str | None) -> int:
        """Return the leaf position with which to build the context at an entry.

        Args:
            entry: the entry's id. None means the place before the first entry, whose leaf position is 0.

        Raises:
            UnknownEntry: the transcript has no entry with this id.
        """
        return 0 if entry is None else self._placement.leaf_at(entry)

    def _read(self, lines: Iterable[JsonValue], form: Format) -> Iterator[TranscriptEntry | None]:
        for number, line in gathered(form, lines):
            try:
                yield form.read(line)
            except MessageError as error:
                self.bad = (*self.bad, BadLine(number, str(error)))
                yield None

    def _append(self, entry: TranscriptEntry | None) -> None:
        ordinal = self._placement.add(entry)
        if entry is None:
            return
        put = self._placement.put(ordinal, entry)
        first = len(self._entries) + 1
        for position, message in enumerate(put.messages, first):
            time = getattr(message, "timestamp", None)
            self._entries.append(
                Envelope(self.id, position, message.lane, message, time / 1000 if time else 0.0, "import")
            )
        if put.own:
            self._placement.placed(ordinal, [first + at for at in put.own])
        if entry.position is not None and (entry.is_lost or put.has_left_lane):
            self._placement.position_map.lose(entry.position)
        elif entry.position is not None:
            self._placement.position_map.note(entry.position, len(self._entries), is_llm=bool(put.own))


def _parents_first(entries: Iterable[TranscriptEntry | None]) -> Sequence[TranscriptEntry | None]:
    """Return the entries in their order, except that an entry before its parent is moved after the parent.

    Raises:
        CyclicTree: the parents of an entry lead back to the entry itself.
    """
    listed = list(entries)
    ids = {entry.id for entry in listed if entry and entry.is_in_tree and entry.id is not None}
    waiting: dict[str, list[TranscriptEntry]] = {}
    ordered_ids: set[str] = set()
    ordered: list[TranscriptEntry | None] = []
    for entry in listed:
        if entry and entry.is_in_tree and entry.parent in ids and entry.parent not in ordered_ids:
            waiting.setdefault(entry.parent, []).append(entry)
            continue
        ready: list[TranscriptEntry | None] = [entry]
        while ready:
            placed = ready.pop(0)
            ordered.append(placed)
            if placed and placed.is_in_tree and placed.id is not None:
                ordered_ids.add(placed.id)
                ready += waiting.pop(placed.id, [])
    remaining = [entry for children in waiting.values() for entry in children]
    if remaining:
        raise CyclicTree(_in_cycle(remaining))
    return ordered


def _in_cycle(remaining: Sequence[TranscriptEntry]) -> str:
    """Return the id of an entry that is in a cycle. Some entries of `remaining` only descend from such an entry."""
    parents = {entry.id: entry.parent for entry in remaining}
    at, passed = remaining[0].parent, set[str | None]()
    while at not in passed:
        passed.add(at)
        at = parents.get(at)
    return str(at)
