"""What is being spoken right now: pieces on their way in, and what a reader who comes late is told of them.

A message is open from its first piece until it is whole in the LLM lane, under its own id, or cut. That is read off the
live stream and the log alone, so every process tells the same.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

import anyio

from bus.codec import decode, encode, position_of
from bus.errors import DecodeError, MessageTooLarge, PreviewFull, Refused, Unavailable
from bus.limits import MESSAGE_LIMIT_BYTES
from bus.live_streams import LiveStreams
from bus.log import Log, Previewed
from bus.messages.delta import Delta
from bus.messages.lanes import Lane
from bus.pager import Pager
from bus.spoken import OpenMessage, Said

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from bus.envelope import Cursor, Envelope


__all__ = ("Endings", "Live", "LiveBounds", "Missed", "woven")

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
    kept_pieces: int = 20_000
    """Live deltas that are kept decoded for the next follower that joins, of all sessions, or those of one session."""
    kept_seconds: float = 10.0
    """How long they are kept after a follower has joined."""


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
        self._streams = LiveStreams(log, pieces=self.bounds.kept_pieces, seconds=self.bounds.kept_seconds)

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
        spoken = await self._streams.read(session, log)
        silent = spoken.silent(self._log.bounds.live_seconds)
        found = {id: said for id, said in spoken.messages.items() if said.cut is None and id not in silent}
        whole = await self._whole(session, found, None)
        return [said.open_message(id) for id, said in found.items() if id not in whole]

    async def missed(self, session: str, after: Cursor, start: Cursor, until: Cursor) -> Missed:
        """What a follower lacks that has seen everything up to `after`, or joins there.

        Args:
            start: where the hub is: what ends behind it is told by the hub.
            until: the last delta that the hub does not tell.

        Raises:
            Unavailable: the server cannot be reached.
        """
        spoken = await self._streams.read(session)
        silent = spoken.silent(self._log.bounds.live_seconds)
        previews = {id: said for id, said in spoken.messages.items() if id not in silent}
        concerned: dict[str, Said] = {}
        for id, said in previews.items():
            cut = said.cut
            # One that was cut matters only to those who may have seen it begin, and must see it end.
            if cut is None or (
                cut.is_after(after) and (cut.is_after(until) or not said.pieces[0].cursor.is_after(after))
            ):
                concerned[id] = said
        ended = previews.keys() - concerned.keys()
        for id in await self._whole(session, concerned, max(start.position, after.position)):
            ended.add(id)
            del concerned[id]
        snapshots = [each for said in concerned.values() for each in said.snapshots(after)]
        return Missed(snapshots, deque(spoken.since(after, until, concerned)), ended)

    async def _whole(self, session: str, spoken: Mapping[str, Said], until: int | None) -> set[str]:
        """Which of the messages are whole in the LLM lane, up to a position."""
        whole: set[str] = set()
        if not spoken:
            return whole
        # Looked for in the bytes first: most entries are none of them, and may be long.
        wanted = {id: f'"id":{json.dumps(id, ensure_ascii=False)}'.encode() for id in spoken}
        after = min(said.pieces[0].position for said in spoken.values())
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
        spoken = await self._streams.read(session)
        silent = spoken.silent(self._log.bounds.live_seconds)
        candidates = {id: said for id, said in spoken.messages.items() if said.cut is None and id not in silent}
        is_open = candidates.keys() - await self._whole(session, candidates, None)
        ids: list[str] = []
        for each in spoken.deltas:
            message = each.message
            if type(message) is not Delta or message.message_id in is_open:
                continue
            if message.kind != "cut" or each.time < spoken.deltas[-1].time - self.bounds.cut_seconds:
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
