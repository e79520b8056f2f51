"""Find gaps in a session's positions: entries that are missing, although no trim removed them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lanebus.bus.wire.codec import position_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lanebus.bus.log.head import SessionHead
    from lanebus.bus.messages.lanes import Lane
    from lanebus.bus.wire.codec import Entry
    from lanebus.bus.wire.envelope import Envelope

__all__ = ("Gap", "find_gap", "has_all", "lane_of", "last_own")


class Gap(NamedTuple):
    """A range of positions whose entries are missing."""

    until: int
    """number of envelopes before the gap"""
    after: int
    """the last position before the gap"""
    first_kept: int
    """the first position after the gap"""


def find_gap(envelopes: Sequence[Envelope], after: int, bound: int) -> Gap | None:
    """Return the first gap after position `after` in the envelopes of both lanes, which must end at `bound`; or None.

    Entries of the bus have ids that end in -0. An entry 5-1 of a foreign client does not fill the gap of a deleted 5-0.
    """
    position = after
    for index, envelope in enumerate(envelopes):
        own = envelope.position + (envelope.delta > 0)
        if own > position + 1:
            return Gap(index, position, own)
        if not envelope.delta:
            position = max(position, envelope.position)
    return Gap(len(envelopes), position, bound + 1) if position < bound else None


def lane_of(gap: Gap, head: SessionHead, lanes: Sequence[Lane], pages: Sequence[Sequence[Entry]], count: int) -> str:
    """Return the name of the lane that lacks the entries of a gap; "" if the head does not tell it.

    Args:
        gap: the gap.
        head: the session's head.
        lanes: the lanes that were read.
        pages: the entries of each lane.
        count: number of entries that were requested of each lane. A page with fewer holds the rest of its lane.
    """
    if len(lanes) == 1:
        return lanes[0].value
    ended = [
        lane
        for lane, page in zip(lanes, pages, strict=True)
        if len(page) < count and last_own(page, head.position) <= gap.after < head.last_in((lane,))
    ]
    return ended[0].value if len(ended) == 1 else ""


def has_all(pages: Iterable[Sequence[Entry]], after: int, bound: int) -> bool:
    """Return whether the pages of both lanes together contain every position after `after` and up to `bound`.

    The pages must end at `bound`. Ids that do not end in -0 are ignored, because a foreign client wrote such entries.
    """
    found = {position_of(entry) for page in pages for entry in page if entry[0].endswith(b"-0")}
    return len(found) == bound - after and (not found or min(found) > after)


def last_own(page: Sequence[Entry], bound: int) -> int:
    """Return the position of the last entry of the bus in a page, up to position `bound`; 0 if there is none."""
    own = (position_of(entry) for entry in reversed(page) if entry[0].endswith(b"-0"))
    return next((position for position in own if position <= bound), 0)
