"""The messages that are being spoken, as live deltas show them.

A message is open from its first piece until it is complete in the LLM lane, under its own id, or cut. Only the live
stream and the log decide that, so every process comes to the same answer.
"""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.previews.bounds import LiveBounds
from lanebus.bus.previews.live_streams import LiveStreams
from lanebus.bus.reading.page_size import Pager
from lanebus.bus.reading.pages import fetch_page
from lanebus.bus.wire.codec import decode, position_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lanebus.bus.log.log import Log
    from lanebus.bus.previews.session_deltas import MessageDeltas, OpenMessage, SessionDeltas
    from lanebus.bus.wire.envelope import Cursor, Envelope

__all__ = ("PreviewCatchUp", "Previews")

_LLM = (Lane.LLM,)


class PreviewCatchUp(NamedTuple):
    """What a follower that joins has not seen of the messages that are open."""

    snapshots: list[Envelope]
    """what was said of them up to the follower's cursor, a snapshot for each block"""
    pieces: deque[Envelope]
    """what was said of them since, in order"""
    ended: set[str]
    """the messages that are not open any more, though there are pieces of them"""


class Previews:
    """Reads the live deltas of all sessions, for one process."""

    def __init__(self, log: Log, bounds: LiveBounds | None = None) -> None:
        self.bounds = bounds or LiveBounds()
        self._log = log
        self._streams = LiveStreams(log, pieces=self.bounds.kept_pieces, seconds=self.bounds.kept_seconds)

    async def open_messages(self, session: str, log: Log | None = None) -> list[OpenMessage]:
        """Return the messages that are being spoken, in the order they began.

        Args:
            log: where to read; None is this one's own.

        Raises:
            Unavailable: the server cannot be reached.
        """
        found = await self._open(session, await self._streams.read(session, log))
        return [said.open_message(id) for id, said in found.items()]

    async def catch_up(self, session: str, after: Cursor, start: Cursor, until: Cursor) -> PreviewCatchUp:
        """Return what a follower lacks that has seen everything up to `after`, or joins there.

        Args:
            start: where the hub is; it hands out what ends behind it.
            until: the last delta that the hub does not hand out.

        Raises:
            Unavailable: the server cannot be reached.
        """
        spoken = await self._streams.read(session)
        silent = spoken.silent(self._log.bounds.live_seconds)
        previews = {id: said for id, said in spoken.messages.items() if id not in silent}
        concerned: dict[str, MessageDeltas] = {}
        for id, said in previews.items():
            cut = said.cut
            # A cut message concerns only a follower that may have seen it begin, and must see it end.
            if cut is None or (
                cut.is_after(after) and (cut.is_after(until) or not said.pieces[0].cursor.is_after(after))
            ):
                concerned[id] = said
        ended = previews.keys() - concerned.keys()
        for id in await self._complete(session, concerned, max(start.position, after.position)):
            ended.add(id)
            del concerned[id]
        snapshots = [each for said in concerned.values() for each in said.snapshots(after)]
        return PreviewCatchUp(snapshots, deque(spoken.since(after, until, concerned)), ended)

    async def ended_ids(self, session: str) -> list[str]:
        """Return the ids of the live deltas that may be removed: all of ended messages, but for recent cuts.

        Raises:
            Unavailable: the server cannot be reached.
        """
        spoken = await self._streams.read(session)
        is_open = await self._open(session, spoken)
        ids: list[str] = []
        for each in spoken.deltas:
            message = each.message
            if type(message) is not Delta or message.message_id in is_open:
                continue
            if message.kind != "cut" or each.time < spoken.deltas[-1].time - self.bounds.cut_seconds:
                ids.append(each.cursor.id)
        return ids

    async def _open(self, session: str, spoken: SessionDeltas) -> dict[str, MessageDeltas]:
        """The messages that are neither cut, nor silent for too long, nor complete in the LLM lane."""
        silent = spoken.silent(self._log.bounds.live_seconds)
        found = {id: said for id, said in spoken.messages.items() if said.cut is None and id not in silent}
        complete = await self._complete(session, found, None)
        return {id: said for id, said in found.items() if id not in complete}

    async def _complete(self, session: str, spoken: Mapping[str, MessageDeltas], until: int | None) -> set[str]:
        """Which of the messages are complete in the LLM lane, up to a position."""
        complete: set[str] = set()
        if not spoken:
            return complete
        # Search in the bytes first: most entries are none of these messages, and may be long.
        wanted = {id: f'"id":{json.dumps(id, ensure_ascii=False)}'.encode() for id in spoken}
        after = min(said.pieces[0].position for said in spoken.values())
        pager = Pager(self._log.bounds.page_bytes, self._log.bounds.page_entries)
        while until is None or after < until:
            fetched = await fetch_page(self._log, session, _LLM, after, until, pager=pager)
            (page,) = fetched.pages
            for entry in page:
                for id, mark in wanted.items():
                    if mark in entry[1][-1] and getattr(decode(session, Lane.LLM, entry).message, "id", None) == id:
                        complete.add(id)
            if len(page) < fetched.count:
                break
            after = position_of(page[-1])
        return complete
