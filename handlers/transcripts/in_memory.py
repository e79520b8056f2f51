"""A transcript as a log in memory: what an import would put into a session, without a server. Pure."""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

from pydantic import JsonValue

from lanebus.bus.errors import MessageError
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.wire.envelope import START, Cursor, Envelope
from lanebus.handlers.transcripts.errors import CyclicTree
from lanebus.handlers.transcripts.format import Format, TranscriptEntry
from lanebus.handlers.transcripts.report import BadLine
from lanebus.handlers.transcripts.source import gathered
from lanebus.handlers.transcripts.tree_placement import Places

__all__ = ("ListedTranscript",)


class ListedTranscript:
    """The entries of a transcript at the positions that an import into an empty session gives them.

    It is read like a session, so `build_context` and `read_tree` take it. The entries may stand in any order: each is
    put behind the one that it continues. A parent that is not there is the place before the first entry.
    """

    def __init__(self, lines: Iterable[JsonValue], form: Format, *, session: str = "transcript") -> None:
        """Read the lines. One that cannot be read is in `bad`, the others go in.

        Raises:
            CyclicTree: the parents of an entry lead back to it.
        """
        self.id = session
        self.bad: tuple[BadLine, ...] = ()
        self._places = Places()
        self._entries: list[Envelope] = []
        for entry in _parents_first(self._read(lines, form)):
            self._append(entry)

    @property
    def entries(self) -> tuple[Envelope, ...]:
        """Both lanes, in the order of their positions."""
        return tuple(self._entries)

    async def read(
        self, *, lanes: frozenset[Lane], after: Cursor = START, until: int | None = None
    ) -> AsyncIterator[Envelope]:
        """The lanes' entries after a cursor, up to and with `until`, in the order of their positions."""
        for envelope in self._entries[after.position : until]:
            if envelope.lane in lanes:
                yield envelope

    def leaf(self, entry: str | None) -> int:
        """Where to stand for the context at the entry of this id; None is the place before the first, which is 0.

        Raises:
            UnknownEntry: the transcript has no such entry.
        """
        return 0 if entry is None else self._places.standing_at(entry)

    def _read(self, lines: Iterable[JsonValue], form: Format) -> Iterator[TranscriptEntry | None]:
        for number, line in gathered(form, lines):
            try:
                yield form.read(line)
            except MessageError as error:
                self.bad = (*self.bad, BadLine(number, str(error)))
                yield None

    def _append(self, entry: TranscriptEntry | None) -> None:
        ordinal = self._places.add(entry)
        if entry is None:
            return
        put = self._places.put(ordinal, entry)
        first = len(self._entries) + 1
        for position, message in enumerate(put.messages, first):
            time = getattr(message, "timestamp", None)
            self._entries.append(
                Envelope(self.id, position, message.lane, message, time / 1000 if time else 0.0, "import")
            )
        if put.own:
            self._places.placed(ordinal, [first + at for at in put.own])
        if entry.position is not None and (entry.is_lost or put.has_left_lane):
            self._places.moves.lose(entry.position)
        elif entry.position is not None:
            self._places.moves.note(entry.position, len(self._entries), is_llm=bool(put.own))


def _parents_first(entries: Iterable[TranscriptEntry | None]) -> Sequence[TranscriptEntry | None]:
    """The entries in their order, but each behind its parent where that comes later.

    Raises:
        CyclicTree: one waits for itself.
    """
    listed = list(entries)
    later = {entry.id for entry in listed if entry and entry.is_in_tree and entry.id is not None}
    waiting: dict[str, list[TranscriptEntry]] = {}
    seen: set[str] = set()
    ordered: list[TranscriptEntry | None] = []
    for entry in listed:
        if entry and entry.is_in_tree and entry.parent in later and entry.parent not in seen:
            waiting.setdefault(entry.parent, []).append(entry)
            continue
        ready: list[TranscriptEntry | None] = [entry]
        while ready:
            placed = ready.pop(0)
            ordered.append(placed)
            if placed and placed.is_in_tree and placed.id is not None:
                seen.add(placed.id)
                ready += waiting.pop(placed.id, [])
    held = [entry for children in waiting.values() for entry in children]
    if held:
        raise CyclicTree(_in_cycle(held))
    return ordered


def _in_cycle(held: Sequence[TranscriptEntry]) -> str:
    """The id of an entry that waits for itself: those who wait only for such a one are not at fault."""
    parents = {entry.id: entry.parent for entry in held}
    at, passed = held[0].parent, set[str | None]()
    while at not in passed:
        passed.add(at)
        at = parents.get(at)
    return str(at)
