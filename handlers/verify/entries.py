"""The entries of both lanes, one after the other, as they are stored: is each where it belongs, and can it be read?"""

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from bus.codec import Entry, decode, token_of
from bus.envelope import Unreadable
from bus.head import start_of
from bus.inspection import Inspector
from bus.messages.lanes import Lane
from handlers.verify.problem import Findings, look

__all__ = ("EntryCheck", "merged_entries", "place_of")

HIGHEST = 2**64 - 1
"""the highest second number of an id"""

_HEADER = re.compile(rb"[0-9]{1,9} [0-9]{1,15} [^ ]+( [^ ]+)?")


class EntryCheck:
    """Takes the entries of both lanes in the order of their ids, and finds what is wrong with them. Pure."""

    def __init__(self, findings: Findings, first: int) -> None:
        """`first` is the position that has to come first; 0 is any."""
        self._findings, self._next = findings, first
        self._token = ""
        self.entries = 0
        """how many have a place"""
        self.size_bytes = 0
        """of their messages' JSON"""

    def begin(self, first: int) -> None:
        """Begin at this position, and count the bytes from there: nothing is missing up to it."""
        self._require_up_to(first - 1)
        self.size_bytes = 0

    def take(self, lane: Lane, entry: Entry) -> None:
        """The next entry."""
        entry_id, fields = entry
        position, rest = place_of(entry)
        if rest:
            text = f"entry {entry_id.decode()} of the {lane} lane is none of the bus's: {look(_body(fields))}"
            self._findings.add("id", position, text)
            return
        self._next = self._next or position
        if position < self._next:
            self._findings.add("double", position, "it is in both lanes")
        else:
            self._require_up_to(position - 1)
            self._next = position + 1
        self.entries += 1
        self.size_bytes += len(_body(fields))
        self._read(lane, entry, position)

    def end(self, last: int) -> None:
        """There are no more; `last` is the position that was to come last."""
        self._require_up_to(last)

    def _require_up_to(self, position: int) -> None:
        if not self._next:
            return
        if position >= self._next:
            few = position == self._next
            text = "it is in no lane" if few else f"it and those up to {position} are in no lane"
            self._findings.add("hole", self._next, text)
        self._next = max(self._next, position + 1)

    def _read(self, lane: Lane, entry: Entry, position: int) -> None:
        names, header, body = entry[1][::2], entry[1][1:2], _body(entry[1])
        if list(names) != [b"h", b"m"] or _HEADER.fullmatch(header[0]) is None:
            seen = b" ".join(entry[1])
            self._findings.add("header", position, f"in the {lane} lane, not written by the bus: {look(seen)}")
            return
        self._check_token(token_of(entry), position)
        message = decode(self._findings.session, lane, entry).message
        if isinstance(message, Unreadable):
            self._findings.add("unreadable", position, f"in the {lane} lane: {message.error}; {look(body)}")

    def _check_token(self, token: str, position: int) -> None:
        """Each entry names its incarnation, which began behind an earlier position and after the previous one."""
        if not token:
            return
        start = start_of(token)
        if not 0 <= start < position or (token != self._token and start <= start_of(self._token)):
            self._findings.add("incarnation", position, f"the entry is of {token}, the previous one of {self._token}")
        self._token = token


def place_of(entry: Entry) -> tuple[int, int]:
    """Both numbers of an entry's id."""
    position, _, rest = entry[0].partition(b"-")
    return int(position), int(rest)


async def merged_entries(
    inspector: Inspector, session: str, first: int, last: int
) -> AsyncGenerator[tuple[Lane, Entry], None]:
    """The entries of both lanes between two positions, in the order of their ids; a page of each lane in memory.

    Raises:
        Refused: a lane's key is of another type.
        Unavailable: the server cannot be reached.
    """
    begin, end = f"{first}-0", f"{last}-{HIGHEST}"
    lanes = {lane: _single(inspector, inspector.keys.lane(session, lane), begin, end) for lane in Lane}
    try:
        waiting: dict[Lane, Entry] = {}
        for lane in Lane:
            await _refill(waiting, lanes, lane)
        while waiting:
            lane = min(waiting, key=lambda lane: place_of(waiting[lane]))
            yield lane, waiting.pop(lane)
            await _refill(waiting, lanes, lane)
    finally:
        for entries in lanes.values():
            await entries.aclose()


async def _refill(waiting: dict[Lane, Entry], lanes: dict[Lane, AsyncGenerator[Entry, None]], lane: Lane) -> None:
    entry = await anext(lanes[lane], None)
    if entry is not None:
        waiting[lane] = entry


async def _single(inspector: Inspector, key: str, first: str, last: str) -> AsyncGenerator[Entry, None]:
    async with aclosing(inspector.stream_pages(key, first, last)) as pages:
        async for page in pages:
            for entry in page:
                yield entry


def _body(fields: Sequence[bytes]) -> bytes:
    """What stands where a message's JSON does."""
    return fields[3] if len(fields) > 3 else b""
