"""The live deltas of one session, decoded, in the form in which those who join ask for them. Pure.

Deltas are only ever added, at the end. What was said up to any place is found by bisection and joined, without a look
at each delta: a message of 10,000 pieces costs those who join together little more than one of them.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from lanebus.bus.messages.delta import Delta

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from lanebus.bus.messages.turn import TurnId
    from lanebus.bus.wire.envelope import Cursor, Envelope

__all__ = ("MessageDeltas", "OpenMessage", "SessionDeltas")

_Place = tuple[int, int]
"""The position and the number below it."""


class OpenMessage(NamedTuple):
    """A message that is being spoken: neither whole in the log nor cut."""

    message_id: str
    turn_id: TurnId | None
    blocks: tuple[Delta, ...]
    """what was said so far, a snapshot for each block, in their order"""
    time: float
    """of the last piece, seconds UTC by the server's clock"""


@dataclass(slots=True)
class _Block:
    """A block of a message."""

    first: Delta
    tool_name: str | None = None
    places: list[_Place] = field(default_factory=list[_Place])
    texts: list[str] = field(default_factory=list[str])

    def snapshot(self, count: int) -> Delta:
        """All that the first `count` pieces say."""
        text = "".join(self.texts[:count])
        return self.first.model_copy(update={"delta": text, "tool_name": self.tool_name, "is_snapshot": True})


class MessageDeltas:
    """What was said of one message, up to its cut."""

    def __init__(self) -> None:
        self.pieces: list[Envelope] = []
        self.heard = 0.0
        """when the last delta of it came, also one behind its cut; seconds UTC by the server's clock"""
        self.cut: Cursor | None = None
        self._places: list[_Place] = []
        self._blocks: dict[int, _Block] = {}

    def add(self, place: _Place, piece: Envelope, delta: Delta) -> None:
        """Take the next piece."""
        self.pieces.append(piece)
        self._places.append(place)
        if delta.kind == "cut":
            self.cut = piece.cursor
            return
        block = self._blocks.get(delta.block)
        if block is None:
            block = self._blocks[delta.block] = _Block(delta)
        if block.tool_name is None:
            block.tool_name = delta.tool_name
        block.places.append(place)
        block.texts.append(delta.delta)

    def snapshots(self, at: Cursor) -> Iterator[Envelope]:
        """One envelope a block with all its text up to a place, and at that place."""
        place = at[:2]
        if not (told := bisect_right(self._places, place)):
            return
        last = self.pieces[told - 1]
        for _, block in sorted(self._blocks.items()):
            if count := bisect_right(block.places, place):
                message = block.snapshot(count)
                yield last._replace(position=at.position, delta=0, incarnation=at.incarnation, message=message)

    def open_message(self, id: str) -> OpenMessage:
        """The message as it stands."""
        blocks = tuple(block.snapshot(len(block.texts)) for _, block in sorted(self._blocks.items()))
        turn_id = next((block.turn_id for block in blocks if block.turn_id is not None), None)
        return OpenMessage(id, turn_id, blocks, self.pieces[-1].time)


class _Run(NamedTuple):
    """Neighbours of one block, from one place in the list of all deltas up to another."""

    start: int
    end: int
    message_id: str | None
    """None of an unreadable entry, which is shown"""


class SessionDeltas:
    """All live deltas of a session."""

    def __init__(self) -> None:
        self.deltas: list[Envelope] = []
        """in order, also those behind a cut and unreadable ones"""
        self.messages: dict[str, MessageDeltas] = {}
        """in the order they began"""
        self._places: list[_Place] = []
        self._texts: list[str] = []
        self._runs: list[_Run] = []
        self._starts: list[int] = []

    def add(self, delta: Envelope) -> None:
        """Take the next delta."""
        message, place, index = delta.message, (delta.position, delta.delta), len(self.deltas)
        self.deltas.append(delta)
        self._places.append(place)
        self._texts.append(message.delta if type(message) is Delta else "")
        if type(message) is not Delta:
            self._run(index, None)
            return
        said = self.messages.get(message.message_id)
        if said is None:
            said = self.messages[message.message_id] = MessageDeltas()
        said.heard = delta.time
        if said.cut is None:
            said.add(place, delta, message)
            self._run(index, message)

    def _run(self, index: int, message: Delta | None) -> None:
        last = self._runs[-1] if self._runs else None
        if message is not None and last is not None and last.end == index and self._continues(index, message):
            self._runs[-1] = last._replace(end=index + 1)
        else:
            self._runs.append(_Run(index, index + 1, None if message is None else message.message_id))
            self._starts.append(index)

    def _continues(self, index: int, message: Delta) -> bool:
        before = self.deltas[index - 1].message
        return (
            self._places[index - 1][0] == self._places[index][0]
            and type(before) is Delta
            and (before.message_id, before.block, before.kind) == (message.message_id, message.block, message.kind)
            and message.kind != "cut"
        )

    def silent(self, seconds: float) -> set[str]:
        """The messages of which nothing was heard for so long that they would have expired, if no other had been
        spoken."""
        last = self.deltas[-1].time if self.deltas else 0.0
        return {id for id, said in self.messages.items() if said.heard < last - seconds}

    def since(self, after: Cursor, until: Cursor, ids: Collection[str]) -> Iterator[Envelope]:
        """What was said of these messages behind a place and up to another, and what cannot be read. Neighbours of one
        block are one piece, at the place of the last of them: a reader that leaves behind any has all before it."""
        low, high = (bisect_right(self._places, cursor[:2]) for cursor in (after, until))
        for at in range(max(bisect_right(self._starts, low) - 1, 0), len(self._runs)):
            start, end, id = self._runs[at]
            if start >= high:
                return
            start, end = max(start, low), min(end, high)
            if start < end and (id is None or id in ids):
                yield self._joined(self.deltas[start:end], self._texts[start:end])

    def _joined(self, run: Sequence[Envelope], texts: Sequence[str]) -> Envelope:
        first = run[0].message
        if len(run) == 1 or type(first) is not Delta:
            return run[-1]
        names = (each.message.tool_name for each in run if type(each.message) is Delta)
        name = next((name for name in names if name is not None), None)
        return run[-1]._replace(message=first.model_copy(update={"delta": "".join(texts), "tool_name": name}))
