"""What is being spoken right now: pieces on their way in, and what a reader who comes late is told of them.

A message is open from its first piece until it is whole in the LLM lane, under its own id, or cut. That is read off the
live stream and the log alone, so every process tells the same.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict, deque
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

import anyio

from bus.codec import decode, decode_delta, encode, position_of
from bus.envelope import Cursor, Envelope
from bus.errors import DecodeError, MessageTooLarge, PreviewFull, Refused, Unavailable
from bus.limits import MESSAGE_LIMIT_BYTES
from bus.log import Log, Previewed
from bus.messages.delta import Delta
from bus.messages.lanes import Lane
from bus.pager import Pager

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from bus.messages.turn import TurnId

__all__ = ("Endings", "Live", "LiveBounds", "Missed", "OpenMessage", "woven")

_LLM = (Lane.LLM,)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBounds:
    """How long ended messages are remembered, here and by the server."""

    trim_bytes: int = 256 * 1024
    """Each time a session's live deltas grow beyond another so many bytes, those of ended messages go."""
    cut_seconds: float = 60.0
    """How long a cut stays at least, for those who have seen its message begin."""
    endings: int = 1_000
    """Ended messages that a follower remembers."""
    longest_pause: float = 1.0
    """Seconds between two tries to reach the server, at most."""
    spoken: int = 1_000
    """Sessions of which it is remembered what this process showed last."""


class OpenMessage(NamedTuple):
    """A message that is being spoken: neither whole in the log nor cut."""

    message_id: str
    turn_id: TurnId | None
    blocks: tuple[Delta, ...]
    """what was said so far, a snapshot for each block, in their order"""
    time: float
    """of the last piece, seconds UTC by the server's clock"""


class Missed(NamedTuple):
    """What a follower that joins has missed of the messages that are open."""

    snapshots: list[Envelope]
    """what was said of them up to the follower's cursor, a snapshot for each block"""
    pieces: deque[Envelope]
    """what was said of them since, in order"""
    ended: set[str]
    """the messages that are not open any more, though there are pieces of them"""


class Live:
    """The live deltas of all sessions, for one process."""

    def __init__(self, log: Log, producer: str, bounds: LiveBounds | None = None) -> None:
        self._log, self._producer = log, producer
        self.bounds = bounds or LiveBounds()
        # One count for all sessions: a number only has to be higher than the one before it.
        self._numbers = count(1)
        self._shown: dict[str, int] = {}
        """the number of the last call that was answered, of the sessions that were spoken in last"""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def preview(self, session: str, deltas: Sequence[Delta], *, epoch: int | None, seconds: float) -> None:
        """Show pieces, behind those of earlier calls; once, also if an answer is lost and they are sent again.

        Raises:
            DecodeError, MessageTooLarge: a delta cannot be shown; nothing was.
            Fenced, SessionClosed, PreviewFull: refused; nothing was shown.
            LogRolledBack: the server has lost what was shown last; nothing was shown, and the next call may be.
            Unavailable: no answer within `seconds`; it may have been shown.
        """
        bodies = [_body(delta) for delta in deltas]
        if not bodies:
            return
        is_end = all(delta.kind == "cut" for delta in deltas)
        shown: Previewed | None = None
        with anyio.move_on_after(seconds):
            async with self._turns.setdefault(session, asyncio.Lock()):
                shown = await self._show(session, bodies, epoch=epoch, is_end=is_end)
        if shown is None:
            raise Unavailable(f"preview in session {session!r}: no answer within {seconds:g} s")
        step = self.bounds.trim_bytes
        if shown.bytes_before // step < shown.bytes_after // step:
            await self._trim_if_possible(session)

    async def _show(self, session: str, bodies: Sequence[bytes], *, epoch: int | None, is_end: bool) -> Previewed:
        number, pause, may_be_full = next(self._numbers), 0.05, True
        before = self._shown.pop(session, 0)
        while True:
            try:
                shown = await self._log.preview(
                    session, self._producer, number, bodies, epoch=epoch, is_end=is_end, shown=before
                )
                self._shown[session] = number
                if len(self._shown) > self.bounds.spoken:
                    del self._shown[next(iter(self._shown))]
                return shown
            except PreviewFull:
                if not may_be_full:
                    raise
                may_be_full = False
                await self._trim_if_possible(session)
            except Unavailable as error:
                if isinstance(error, Refused) and not error.is_transient:
                    raise
                await anyio.sleep(pause)
                pause = min(pause * 2, self.bounds.longest_pause)

    # --- reading --------------------------------------------------------------------------------------------------

    async def open_messages(self, session: str, log: Log | None = None) -> list[OpenMessage]:
        """The messages that are being spoken, in the order they began.

        Args:
            log: where to read; None is this one's own.

        Raises:
            Unavailable: the server cannot be reached.
        """
        previews = _previews(await self._read(session, log=log))
        spoken = {id: pieces for id, pieces in previews.items() if _cut_of(pieces) is None}
        whole = await self._whole(session, spoken, None)
        return [_open_message(id, pieces) for id, pieces in spoken.items() if id not in whole]

    async def missed(self, session: str, after: Cursor, start: Cursor, until: Cursor) -> Missed:
        """What a follower lacks that has seen everything up to `after`, or joins there.

        Args:
            start: where the hub is: what ends behind it is told by the hub.
            until: the last delta that the hub does not tell.

        Raises:
            Unavailable: the server cannot be reached.
        """
        deltas = await self._read(session)
        previews = _previews(deltas)
        concerned: dict[str, list[Envelope]] = {}
        for id, pieces in previews.items():
            cut = _cut_of(pieces)
            # One that was cut matters only to those who may have seen it begin, and must see it end.
            if cut is None or (cut.is_after(after) and (cut.is_after(until) or not pieces[0].cursor.is_after(after))):
                concerned[id] = pieces
        ended = previews.keys() - concerned.keys()
        for id in await self._whole(session, concerned, max(start.position, after.position)):
            ended.add(id)
            del concerned[id]
        snapshots: list[Envelope] = []
        since = [each for each in deltas if type(each.message) is not Delta]  # unreadable: shown, not left out
        for pieces in concerned.values():
            snapshots += _snapshots([piece for piece in pieces if not piece.cursor.is_after(after)], after)
            since += pieces
        since = [each for each in since if each.cursor.is_after(after) and not each.cursor.is_after(until)]
        since.sort(key=lambda each: each.cursor)
        return Missed(snapshots, deque(_joined(since)), ended)

    async def _read(self, session: str, log: Log | None = None) -> list[Envelope]:
        """All deltas that are kept, but for those of messages that fell silent too long ago."""
        entries = await (log or self._log).deltas(session)
        deltas = [decode_delta(session, entry) for entry in entries]
        silent = _silent(deltas, self._log.bounds.live_seconds)
        return [each for each in deltas if type(each.message) is not Delta or each.message.message_id not in silent]

    async def _whole(self, session: str, spoken: Mapping[str, Sequence[Envelope]], until: int | None) -> set[str]:
        """Which of the messages are whole in the LLM lane, up to a position."""
        whole: set[str] = set()
        if not spoken:
            return whole
        # Looked for in the bytes first: most entries are none of them, and may be long.
        wanted = {id: f'"id":{json.dumps(id, ensure_ascii=False)}'.encode() for id in spoken}
        after = min(pieces[0].position for pieces in spoken.values())
        pager = Pager(self._log.bounds.page_bytes, self._log.bounds.page_entries)
        while until is None or after < until:
            fetched = await self._log.page(session, _LLM, after, until, pager)
            (page,) = fetched.pages
            for entry in page:
                for id, mark in wanted.items():
                    if mark in entry[1][-1] and getattr(decode(session, Lane.LLM, entry).message, "id", None) == id:
                        whole.add(id)
            if len(page) < fetched.count:
                break
            after = position_of(page[-1])
        return whole

    # --- making room ----------------------------------------------------------------------------------------------

    async def _trim_if_possible(self, session: str) -> None:
        try:
            await self.drop_ended(session)
        except Unavailable:  # it is tried again with the next that is shown
            return

    async def drop_ended(self, session: str) -> None:
        """Take out what belongs to messages that have ended. Cuts stay a while, as nothing else may tell of the end.

        Raises:
            Unavailable: the server cannot be reached.
        """
        everything = [decode_delta(session, entry) for entry in await self._log.deltas(session)]
        silent = _silent(everything, self._log.bounds.live_seconds)
        spoken = _previews(everything)
        candidates = {id: pieces for id, pieces in spoken.items() if id not in silent and _cut_of(pieces) is None}
        is_open = candidates.keys() - await self._whole(session, candidates, None)
        ids: list[str] = []
        for each in everything:
            message = each.message
            if type(message) is not Delta or message.message_id in is_open:
                continue
            if message.kind != "cut" or each.time < everything[-1].time - self.bounds.cut_seconds:
                ids.append(each.cursor.id)
        await self._log.trim_live(session, ids)


class Endings:
    """The messages that a follower has seen end, so that no late piece is shown behind the end.

    A worker that was held up, or a command that a server carries out late, may still add one.
    """

    def __init__(self, limit: int) -> None:
        self._ids: dict[str, None] = {}
        self._limit = limit

    def add(self, ids: Iterable[str]) -> None:
        """Take note of messages that have ended."""
        for id in ids:
            self._ids[id] = None
        while len(self._ids) > self._limit:
            del self._ids[next(iter(self._ids))]

    def has_seen(self, envelope: Envelope) -> bool:
        """Whether it is a piece of a message that has ended already; else takes note of what it ends."""
        message = envelope.message
        if type(message) is not Delta:
            id = getattr(message, "id", None) if envelope.lane is Lane.LLM else None
        elif message.message_id in self._ids:
            return True
        else:
            id = message.message_id if message.kind == "cut" else None
        if id is not None:
            self.add((id,))
        return False


def woven(page: Iterable[Envelope], pieces: deque[Envelope]) -> Iterator[Envelope]:
    """The entries of a page, each behind the pieces that stand before it; these are taken off `pieces`."""
    for envelope in page:
        while pieces and pieces[0].position < envelope.position:
            yield pieces.popleft()
        yield envelope


def _body(delta: Delta) -> bytes:
    if delta.is_snapshot:
        raise DecodeError("isSnapshot", "is for those who follow; a publisher sends pieces")
    body = encode(delta)
    if len(body) > MESSAGE_LIMIT_BYTES:
        raise MessageTooLarge(len(body), MESSAGE_LIMIT_BYTES)
    return body


def _previews(deltas: Iterable[Envelope]) -> dict[str, list[Envelope]]:
    """The pieces of each message up to its cut, in the order the messages began."""
    found: defaultdict[str, list[Envelope]] = defaultdict(list)
    for each in deltas:
        if type(each.message) is Delta:
            pieces = found[each.message.message_id]
            if not (pieces and _is_cut(pieces[-1])):
                pieces.append(each)
    return found


def _silent(deltas: Sequence[Envelope], seconds: float) -> set[str]:
    """The messages of which nothing was heard for so long that they would have expired, if no other had been spoken."""
    last = {each.message.message_id: each.time for each in deltas if type(each.message) is Delta}
    return {id for id, time in last.items() if time < deltas[-1].time - seconds}


def _is_cut(piece: Envelope) -> bool:
    return type(piece.message) is Delta and piece.message.kind == "cut"


def _cut_of(pieces: Sequence[Envelope]) -> Cursor | None:
    return pieces[-1].cursor if _is_cut(pieces[-1]) else None


def _open_message(id: str, pieces: Sequence[Envelope]) -> OpenMessage:
    blocks = [each.message for each in _snapshots(pieces, pieces[-1].cursor)]
    deltas = [block for block in blocks if type(block) is Delta]
    turn_id = next((delta.turn_id for delta in deltas if delta.turn_id is not None), None)
    return OpenMessage(id, turn_id, tuple(deltas), pieces[-1].time)


def _snapshots(pieces: Sequence[Envelope], at: Cursor) -> Iterator[Envelope]:
    """One envelope a block of a message with all its text, at the place of an entry."""
    blocks: defaultdict[int, list[Delta]] = defaultdict(list)
    for each in pieces:
        if type(each.message) is Delta:
            blocks[each.message.block].append(each.message)
    for _, deltas in sorted(blocks.items()):
        snapshot = _sum(deltas).model_copy(update={"is_snapshot": True})
        yield pieces[-1]._replace(position=at.position, delta=0, incarnation=at.incarnation, message=snapshot)


def _joined(pieces: Iterable[Envelope]) -> Iterator[Envelope]:
    """Neighbours of one block as one piece, at the place of the last of them: who leaves behind any has all before."""
    run: list[Envelope] = []
    for each in pieces:
        if run and not _continues(run[-1], each):
            yield _as_one(run)
            run = []
        run.append(each)
    if run:
        yield _as_one(run)


def _continues(one: Envelope, other: Envelope) -> bool:
    first, second = one.message, other.message
    return (
        one.position == other.position
        and type(first) is Delta
        and type(second) is Delta
        and (first.message_id, first.block, first.kind) == (second.message_id, second.block, second.kind)
        and first.kind != "cut"
    )


def _as_one(run: Sequence[Envelope]) -> Envelope:
    deltas = [each.message for each in run if type(each.message) is Delta]
    return run[-1] if len(run) == 1 else run[-1]._replace(message=_sum(deltas))


def _sum(deltas: Sequence[Delta]) -> Delta:
    name = next((delta.tool_name for delta in deltas if delta.tool_name is not None), None)
    return deltas[0].model_copy(update={"delta": "".join(delta.delta for delta in deltas), "tool_name": name})
