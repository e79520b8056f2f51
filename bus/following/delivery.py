"""Pass the entries that a hub has read to the subscriptions, in order and without a gap."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lanebus.bus.errors import CursorTrimmed, EntriesMissing, HeadMissing, Refused
from lanebus.bus.following.log_checks import why_lost
from lanebus.bus.log.incarnations import cursor_at
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.reading.gaps import Gap, find_gap, has_all, lane_of, last_own
from lanebus.bus.reading.merge import cut, merge
from lanebus.bus.reading.pages import size_of, whole, with_rest
from lanebus.bus.wire.codec import decode_delta, position_of
from lanebus.bus.wire.envelope import Cursor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lanebus.bus.following.followed_session import FollowedSession
    from lanebus.bus.following.followed_sessions import FollowedSessions
    from lanebus.bus.following.read_request import ReadRequest
    from lanebus.bus.following.subscription import Sized
    from lanebus.bus.log.head import SessionHead
    from lanebus.bus.log.log import Log
    from lanebus.bus.wire.codec import Entry

__all__ = ("Delivery",)

_log = logging.getLogger(__name__)


class Delivery:
    """Checks and orders the entries that a hub has read, and offers the entries to the subscriptions."""

    def __init__(self, log: Log, sessions: FollowedSessions) -> None:
        self._log, self._sessions = log, sessions
        self._has_warned = False

    async def deliver(
        self, request: ReadRequest, found: Mapping[str, list[Entry]], head: SessionHead, count: int, *, is_whole: bool
    ) -> None:
        """Offer the entries of one session, up to the last position that the read covers in all lanes.

        If entries remain, the session is marked to be read again. If the log lost or trimmed entries that subscriptions
        need, all subscriptions of the session fail.

        Args:
            request: the request that was answered.
            found: the entries of each stream.
            head: the session's head, read after the entries.
            count: maximum number of entries of each stream that the read asked for.
            is_whole: whether all streams were read at one moment. False for a blocking read: Redis 7.0 returns only
                the stream that ended the wait, even if one script wrote to several streams.
        """
        followed, lanes = request.followed, request.lanes
        if followed not in self._sessions:
            return  # no subscription is left
        if not {*followed.lanes} <= {*lanes} or (followed.live is not None and followed.live != request.live):
            self._sessions.mark(followed)  # a new subscription needs another lane or live deltas: read again
            return
        if followed.foreign and head.position > followed.position:  # its entries may be below the foreign ones
            followed.foreign.clear()
            self._sessions.mark(followed)
            return
        if (lost := await why_lost(self._log, followed, head)) is not None:
            followed.fail(lost)
            return
        if head.trimmed > followed.position:
            if head.lacks(lanes, followed.position):
                followed.fail(CursorTrimmed(followed.session, str(Cursor(followed.position)), head.trimmed + 1))
                return
            followed.cursor = head.cursor_at(head.trimmed)  # the trimmed positions held no entries of these lanes
        try:
            pages, ends = await self._complete(followed, lanes, found, head, count)
        except HeadMissing as missing:
            followed.fail(missing)
            return
        live = found.get(followed.live_name, []) if followed.live is not None else []
        if ends:  # a delta after the end of a full page must wait for the entries that were not read yet
            live = [delta for delta in live if position_of(delta) <= min(ends)]
        if len(live) == count:
            ends.append(position_of(live[-1]))
        end = max((position_of(page[-1]) for page in pages if page), default=followed.position)
        if len(lanes) < len(Lane):  # positions without an entry are in the other lane. With both lanes they are a loss
            end = max(end, request.newest.position)
        bound = min([end, *ends])
        if bound < end:
            pages = cut(pages, bound)
        is_incomplete = bound < end or bool(ends)
        is_dense = len(lanes) < len(Lane) or has_all(pages, followed.position, bound)
        sized = _sized(followed, lanes, pages, is_dense=is_dense)
        deltas = [decode_delta(followed.session, entry) for entry in live]
        hole = None if is_dense else find_gap([envelope for envelope, *_ in sized], followed.position, bound)
        if hole is None and not is_incomplete:
            hole = _missing_end(request, head, pages, sized)
        if hole is not None and not is_whole:
            self._sessions.mark(followed)
            return
        if hole is not None:
            sized = [each for each in sized if each[0].position <= hole.after]
            followed.advance(sized, head, sized[-1][0].cursor if sized else followed.cursor, None)
            lane = lane_of(hole, head, lanes, pages, count)
            followed.fail(EntriesMissing(followed.session, str(Cursor(hole.after)), hole.first_kept, lane))
            return
        if deltas:
            sized += [(delta, size_of(entry), True) for delta, entry in zip(deltas, live, strict=True)]
            sized.sort(key=lambda each: each[0].cursor)
        cursor = await cursor_at(self._log, head, bound, pages) if bound > followed.position else followed.cursor
        followed.advance(sized, head, cursor, deltas[-1].cursor if deltas else None)
        if is_incomplete:
            self._sessions.mark(followed)

    async def _complete(
        self,
        followed: FollowedSession,
        lanes: Sequence[Lane],
        found: Mapping[str, list[Entry]],
        head: SessionHead,
        count: int,
    ) -> tuple[list[Sequence[Entry]], list[int]]:
        """Return the page of each lane, and for each full page the last position at which it is complete.

        Entries above the head position were written by a foreign client. They are left out of the page and quarantined.
        """
        pages: list[Sequence[Entry]] = []
        ends: list[int] = []
        for lane in lanes:
            page = found.get(followed.names[lane], [])
            if page and position_of(page[-1]) > head.position:
                await self._quarantine(followed, lane, page[-1][0])
                page = [entry for entry in page if position_of(entry) <= head.position]
            elif len(page) == count:
                page = await with_rest(self._log, followed.session, lane, page, count)
                ends.append(whole(page))
            pages.append(page)
        return pages, ends

    async def _quarantine(self, followed: FollowedSession, lane: Lane, last: bytes) -> None:
        """Quarantine foreign entries up to the id `last`.

        A process that may not write logs this once, leaves them in the stream, and reads this lane after them until the
        session has new entries of its own.
        """
        try:
            await self._log.quarantine(followed.session, lane)
        except Refused as refusal:
            if refusal.code != "NOPERM":
                raise
            followed.foreign[lane] = last.decode()
            if not self._has_warned:
                self._has_warned = True
                _log.warning(
                    "session %s has entries of a foreign client, and this process may not quarantine them: it leaves"
                    " them out, and the next process that publishes to the session quarantines them",
                    followed.session,
                )


def _missing_end(
    request: ReadRequest, head: SessionHead, pages: Sequence[Sequence[Entry]], sized: Sequence[Sized]
) -> Gap | None:
    """Return the gap if the streams end before the last entry that they had when they were read; None if they do not.

    The heads before and after the read both know that entry. An append during the read is known to the second only.
    """
    last = min(request.newest.last_in(request.lanes), head.last_in(request.lanes))
    position = request.followed.position
    found = max([position, *(last_own(page, last) for page in pages)])
    return Gap(len(sized), found, last + 1) if found < last else None


def _sized(
    followed: FollowedSession, lanes: Sequence[Lane], pages: Sequence[Sequence[Entry]], *, is_dense: bool
) -> list[Sized]:
    """Return the envelopes that a subscription may select, in the order of their ids.

    If `is_dense` is False, return all envelopes, because a gap is possible.
    """
    sized: list[Sized] = []
    filled = 0
    for lane, page in zip(lanes, pages, strict=True):
        if page and is_dense and followed.selection.names is not None:
            page = [entry for entry in page if followed.selection.may_take(lane, entry)]  # noqa: PLW2901  # shorter
        if page:
            filled += 1
            envelopes = merge(followed.session, ((lane, page),), position_of(page[-1]))
            sized += [(envelope, size_of(entry), False) for envelope, entry in zip(envelopes, page, strict=True)]
    if filled > 1:
        sized.sort(key=lambda each: (each[0].position, each[0].delta))
    return sized
