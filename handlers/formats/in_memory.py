"""A transcript as a log in memory: the entries that an import would publish, without a server."""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

from pydantic import JsonValue

from lanebus.bus.errors import MessageError
from lanebus.bus.messages import Lane
from lanebus.bus.wire import START, Cursor, Envelope
from lanebus.handlers.formats.importer import BadLine
from lanebus.handlers.formats.placement import CyclicTree, TreePlacement
from lanebus.handlers.formats.source import gathered
from lanebus.handlers.formats.transcript import Format, TranscriptEntry


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
