"""Check the stored entries of both lanes: their positions, headers, incarnations and checksums."""

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from lanebus.bus.errors import EntryDamaged
from lanebus.bus.inspection import Inspector
from lanebus.bus.log.head import Incarnation, start_of
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.wire.codec import Entry, decode, token_of
from lanebus.bus.wire.envelope import DecodeFailure
from lanebus.handlers.verify.problem import Findings, ProblemKind, look

__all__ = ("EntryCheck", "merged_entries", "place_of")

HIGHEST = 2**64 - 1
"""highest possible number after the dash in an entry id"""

_HEADER = re.compile(rb"[0-9]{1,9} [0-9]{1,15} [^ ]+ [^ ]+ i?[0-9]{1,10}")


class EntryCheck:
    """Checks the entries of both lanes, which are passed in the order of their ids. Pure."""

    def __init__(
        self, findings: Findings, first: int, incarnations: Sequence[Incarnation] = (), begin: int = 0
    ) -> None:
        """Start a check.

        Args:
            findings: receives the problems.
            first: expected first position; 0 accepts any position.
            incarnations: the incarnations that the head lists.
            begin: position before the session's first own entry. The session's first incarnation starts after it.
        """
        self._findings, self._next = findings, first
        self._token, self._reported, self._begin, self._previous = "", "", begin, begin
        self._begins = {each.start + 1: each.token for each in incarnations}
        self._listed = frozenset(each.token for each in incarnations)
        self._oldest_listed = min((each.start for each in incarnations), default=None)
        self.entries = 0
        """number of checked entries that have a position"""
        self.size_bytes = 0
        """size in bytes of these entries' JSON messages, counted since `begin` was called"""

    def begin(self, first: int) -> None:
        """Begin with the entries in the lanes: report missing positions before `first`, and count bytes from 0."""
        self._require_up_to(first - 1)
        self.size_bytes = 0

    def take(self, lane: Lane, entry: Entry) -> None:
        """Check the next entry."""
        entry_id, fields = entry
        position, rest = place_of(entry)
        if rest:
            text = f"entry {entry_id.decode()} of the {lane} lane was not written by the bus: {look(_body(fields))}"
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
        """End the check. Report missing positions up to `last`, the expected last position."""
        self._require_up_to(last)

    def _require_up_to(self, position: int) -> None:
        if not self._next:
            return
        if position >= self._next:
            is_single = position == self._next
            text = "it is in no lane" if is_single else f"positions {self._next} to {position} are in no lane"
            self._findings.add("hole", self._next, text)
        self._next = max(self._next, position + 1)

    def _read(self, lane: Lane, entry: Entry, position: int) -> None:
        names, header, body = entry[1][::2], entry[1][1:2], _body(entry[1])
        if list(names) != [b"h", b"m"] or _HEADER.fullmatch(header[0]) is None:
            raw = b" ".join(entry[1])
            self._findings.add("header", position, f"in the {lane} lane, not written by the bus: {look(raw)}")
            return
        self._check_token(token_of(entry), position)
        message = decode(self._findings.session, lane, entry).message
        if not isinstance(message, DecodeFailure):
            return
        kind: ProblemKind = "checksum" if isinstance(message.error, EntryDamaged) else "unreadable"
        self._findings.add(kind, position, f"in the {lane} lane: {message.error}; {look(body)}")

    def _check_token(self, token: str, position: int) -> None:
        """Check the incarnation `token` that the entry at `position` names.

        A new incarnation must start right after the previous entry, and the head must list it at that position. This
        check finds a batch that was cut off: the incarnation of the next entry then starts at another position.
        """
        start, previous = start_of(token), self._previous
        if position == previous:
            return  # the position is in both lanes, which is already reported
        follows = previous == position - 1
        is_possible = 0 <= start < position
        is_new = token not in {self._token, self._reported}
        if is_new and follows and (self._token or previous == self._begin):
            is_possible = start == previous
        elif is_new:  # the previous entry is missing, and the first entry of the new incarnation may be missing too
            is_possible = is_possible and start > start_of(self._token)
        if not is_possible:
            text = f"the entry is from incarnation {token}, the previous one from {self._token}"
            self._findings.add("incarnation", position, text)
            self._reported, self._previous = token, position  # report each incarnation once
            return
        if self._begins.get(position, token) != token:
            text = f"the entry is from incarnation {token}; by the head, {self._begins[position]} starts with it"
            self._findings.add("incarnation", position, text)
            self._reported, token = token, self._begins[position]
        elif self._oldest_listed is not None and start > self._oldest_listed and token not in self._listed:
            text = f"the entry is from incarnation {token}, which the head does not list"
            self._findings.add("incarnation", position, text)
        self._token, self._previous = token, position


def place_of(entry: Entry) -> tuple[int, int]:
    """Return the two numbers of an entry's id: before and after the dash."""
    position, _, rest = entry[0].partition(b"-")
    return int(position), int(rest)


async def merged_entries(
    inspector: Inspector, session: str, first: int, last: int
) -> AsyncGenerator[tuple[Lane, Entry], None]:
    """Yield the entries of both lanes from position `first` to `last`, in the order of their ids.

    Holds one page of each lane in memory.

    Raises:
        Refused: the key of a lane has the wrong type.
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
    """Return the field that holds a message's JSON, or b"" if there is no such field."""
    return fields[3] if len(fields) > 3 else b""
