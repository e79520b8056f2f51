"""The decoded live deltas of one session, indexed for followers that join. Pure.

Deltas are only appended. The text up to any cursor is found by bisection and joined, without examining each delta. So
many followers that join a message of 10,000 deltas cost little more than one follower.
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

_Key = tuple[int, int]
"""A cursor's position, and the number of the live delta at this position."""


class OpenMessage(NamedTuple):
    """A message that a model is still streaming: neither complete in the log nor cut."""

    message_id: str
    """id that the complete message will have"""
    turn_id: TurnId | None
    """turn that the message belongs to; None if no delta names it"""
    blocks: tuple[Delta, ...]
    """the text so far, as one snapshot for each block, in order"""
    time: float
    """time of the last delta: seconds since 1970 UTC, by the server's clock"""


@dataclass(slots=True)
class _Block:
    """The deltas of one block of a message."""

    first: Delta
    tool_name: str | None = None
    keys: list[_Key] = field(default_factory=list[_Key])
    texts: list[str] = field(default_factory=list[str])

    def snapshot(self, count: int) -> Delta:
        """Return one snapshot with the text of the first `count` deltas."""
        text = "".join(self.texts[:count])
        return self.first.model_copy(update={"delta": text, "tool_name": self.tool_name, "is_snapshot": True})


class MessageDeltas:
    """The live deltas of one message, up to the delta of kind "cut" that ends the message."""

    def __init__(self) -> None:
        self.pieces: list[Envelope] = []
        self.last_time = 0.0
        """time of the message's last delta, even if that is after the cut: seconds since 1970 UTC, by the server's
        clock"""
        self.cut: Cursor | None = None
        """cursor of the cut; None if the message is not cut"""
        self._keys: list[_Key] = []
        self._blocks: dict[int, _Block] = {}

    def add(self, key: _Key, piece: Envelope, delta: Delta) -> None:
        """Add the message's next delta."""
        self.pieces.append(piece)
        self._keys.append(key)
        if delta.kind == "cut":
            self.cut = piece.cursor
            return
        block = self._blocks.get(delta.block)
        if block is None:
            block = self._blocks[delta.block] = _Block(delta)
        if block.tool_name is None:
            block.tool_name = delta.tool_name
        block.keys.append(key)
        block.texts.append(delta.delta)

    def snapshots(self, at: Cursor) -> Iterator[Envelope]:
        """Yield one snapshot for each block, with the block's text up to cursor `at`. Each snapshot has this cursor."""
        key = at[:2]
        if not (index := bisect_right(self._keys, key)):
            return
        last = self.pieces[index - 1]
        for _, block in sorted(self._blocks.items()):
            if count := bisect_right(block.keys, key):
                message = block.snapshot(count)
                yield last._replace(
                    position=at.position, delta=0, incarnation=at.incarnation, proof=at.proof, message=message
                )

    def open_message(self, id: str) -> OpenMessage:
        """Return the message with its text so far."""
        blocks = tuple(block.snapshot(len(block.texts)) for _, block in sorted(self._blocks.items()))
        turn_id = next((block.turn_id for block in blocks if block.turn_id is not None), None)
        return OpenMessage(id, turn_id, blocks, self.pieces[-1].time)


class _Run(NamedTuple):
    """Index range in `SessionDeltas.deltas` of adjacent deltas with the same message, block, kind and position.

    An unreadable entry has a range of its own.
    """

    start: int
    end: int
    message_id: str | None
    """id of the deltas' message; None for an unreadable entry, which every follower gets"""


class SessionDeltas:
    """All live deltas of one session."""

    def __init__(self) -> None:
        self.deltas: list[Envelope] = []
        """all deltas in order, including unreadable entries, and deltas after a cut"""
        self.messages: dict[str, MessageDeltas] = {}
        """the messages by id, in the order in which they began"""
        self._keys: list[_Key] = []
        self._texts: list[str] = []
        self._runs: list[_Run] = []
        self._starts: list[int] = []

    def add(self, delta: Envelope) -> None:
        """Add the session's next delta."""
        message, key, index = delta.message, (delta.position, delta.delta), len(self.deltas)
        self.deltas.append(delta)
        self._keys.append(key)
        self._texts.append(message.delta if type(message) is Delta else "")
        if type(message) is not Delta:
            self._run(index, None)
            return
        message_deltas = self.messages.get(message.message_id)
        if message_deltas is None:
            message_deltas = self.messages[message.message_id] = MessageDeltas()
        message_deltas.last_time = delta.time
        if message_deltas.cut is None:
            message_deltas.add(key, delta, message)
            self._run(index, message)

    def _run(self, index: int, message: Delta | None) -> None:
        last = self._runs[-1] if self._runs else None
        if message is not None and last is not None and last.end == index and self._continues(index, message):
            self._runs[-1] = last._replace(end=index + 1)
        else:
            self._runs.append(_Run(index, index + 1, None if message is None else message.message_id))
            self._starts.append(index)

    def _continues(self, index: int, message: Delta) -> bool:
        previous = self.deltas[index - 1].message
        return (
            self._keys[index - 1][0] == self._keys[index][0]
            and type(previous) is Delta
            and (previous.message_id, previous.block, previous.kind)
            == (message.message_id, message.block, message.kind)
            and message.kind != "cut"
        )

    def silent(self, seconds: float) -> set[str]:
        """Return the ids of the messages whose last delta is more than `seconds` older than the newest delta.

        A message without a delta for `LogBounds.live_seconds` counts as ended. The server still keeps its deltas only
        because the session has streamed another message since.
        """
        last = self.deltas[-1].time if self.deltas else 0.0
        return {id for id, message_deltas in self.messages.items() if message_deltas.last_time < last - seconds}

    def since(self, after: Cursor, until: Cursor, ids: Collection[str]) -> Iterator[Envelope]:
        """Yield the deltas of the messages `ids` between two cursors, and all unreadable entries between them.

        Adjacent deltas of one block are joined into one delta, which has the cursor of the last joined delta. So a
        reader that stops after any delta has everything up to the delta's cursor.

        Args:
            after: start after this cursor.
            until: stop at this cursor.
            ids: ids of the messages.
        """
        low, high = (bisect_right(self._keys, cursor[:2]) for cursor in (after, until))
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
