"""Read the messages that are still being streamed.

A message is open from its first delta until it is cut, or until the LLM lane has the complete message with its id. Only
the live stream and the log decide whether a message is open, so every process gets the same result.
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
    """The live deltas that a follower has missed when it joins."""

    snapshots: list[Envelope]
    """text of the open messages up to the follower's cursor, as one snapshot for each block"""
    pieces: deque[Envelope]
    """deltas of the open messages after the follower's cursor, in order"""
    ended: set[str]
    """ids of the messages that have ended but still have deltas in the live stream"""


class Previews:
    """Reads the live deltas of all sessions, for one process."""

    def __init__(self, log: Log, bounds: LiveBounds | None = None) -> None:
        self.bounds = bounds or LiveBounds()
        self._log = log
        self._streams = LiveStreams(log, pieces=self.bounds.cached_deltas, seconds=self.bounds.cached_seconds)

    async def open_messages(self, session: str, log: Log | None = None) -> list[OpenMessage]:
        """Return the open messages in the order in which they began.

        Args:
            session: id of the session.
            log: the log to read; None means the log given at construction.

        Raises:
            Unavailable: the server did not answer.
        """
        found = await self._open(session, await self._streams.read(session, log))
        return [preview.open_message(id) for id, preview in found.items()]

    async def catch_up(self, session: str, after: Cursor, start: Cursor, until: Cursor) -> PreviewCatchUp:
        """Return the live deltas that a follower has missed: those after its cursor that the hub will not deliver.

        The hub is the shared reader that delivers new entries and deltas to all followers.

        Args:
            session: id of the session.
            after: cursor of the follower.
            start: cursor of the hub; the hub delivers the entries after it.
            until: cursor of the last live delta that the hub does not deliver.

        Raises:
            Unavailable: the server did not answer.
        """
        deltas = await self._streams.read(session)
        silent = deltas.silent(self._log.bounds.live_seconds)
        previews = {id: preview for id, preview in deltas.messages.items() if id not in silent}
        relevant: dict[str, MessageDeltas] = {}
        for id, preview in previews.items():
            cut = preview.cut
            # Only a follower that may have seen a message begin needs the message's cut.
            if cut is None or (
                cut.is_after(after) and (cut.is_after(until) or not preview.pieces[0].cursor.is_after(after))
            ):
                relevant[id] = preview
        ended = previews.keys() - relevant.keys()
        for id in await self._complete(session, relevant, max(start.position, after.position)):
            ended.add(id)
            del relevant[id]
        snapshots = [each for preview in relevant.values() for each in preview.snapshots(after)]
        return PreviewCatchUp(snapshots, deque(deltas.since(after, until, relevant)), ended)

    async def ended_ids(self, session: str) -> list[str]:
        """Return the ids of the live deltas that may be removed.

        These are the deltas of ended messages. A delta of kind "cut" is kept for `LiveBounds.cut_seconds`.

        Raises:
            Unavailable: the server did not answer.
        """
        live = await self._streams.read(session)
        is_open = await self._open(session, live)
        ids: list[str] = []
        for each in live.deltas:
            message = each.message
            if type(message) is not Delta or message.message_id in is_open:
                continue
            if message.kind != "cut" or each.time < live.deltas[-1].time - self.bounds.cut_seconds:
                ids.append(each.cursor.id)
        return ids

    async def _open(self, session: str, deltas: SessionDeltas) -> dict[str, MessageDeltas]:
        """Return the messages that are neither cut nor complete, and not silent (`SessionDeltas.silent`)."""
        silent = deltas.silent(self._log.bounds.live_seconds)
        found = {id: preview for id, preview in deltas.messages.items() if preview.cut is None and id not in silent}
        complete = await self._complete(session, found, None)
        return {id: preview for id, preview in found.items() if id not in complete}

    async def _complete(self, session: str, deltas: Mapping[str, MessageDeltas], until: int | None) -> set[str]:
        """Return the ids of the messages that the LLM lane holds complete, up to position `until` (None: its end)."""
        complete: set[str] = set()
        if not deltas:
            return complete
        # Search the entries' bytes before decoding, because most entries are other messages and may be long.
        wanted = {id: f'"id":{json.dumps(id, ensure_ascii=False)}'.encode() for id in deltas}
        after = min(preview.pieces[0].position for preview in deltas.values())
        pager = Pager(self._log.bounds.page_bytes, self._log.bounds.page_entries)
        while until is None or after < until:
            fetched = await fetch_page(self._log, session, _LLM, after, until, pager=pager)
            (page,) = fetched.pages
            for entry in page:
                for id, id_text in wanted.items():
                    if id_text in entry[1][-1] and getattr(decode(session, Lane.LLM, entry).message, "id", None) == id:
                        complete.add(id)
            if len(page) < fetched.count:
                break
            after = position_of(page[-1])
        return complete
