"""Gaps in a session's positions: an entry was deleted by another client. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lanebus.bus.wire.codec import position_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lanebus.bus.wire.codec import Entry
    from lanebus.bus.wire.envelope import Envelope

__all__ = ("Gap", "find_gap", "has_all")


class Gap(NamedTuple):
    """Where positions do not follow each other: an entry between them was deleted by somebody else."""

    until: int
    """how many envelopes stand before it"""
    after: int
    """the last position before it"""
    first_kept: int


def find_gap(envelopes: Sequence[Envelope], after: int) -> Gap | None:
    """Return the first hole in envelopes of both lanes behind position `after`, or None.

    An id such as 5-1 is of another client. It comes behind 5-0 and does not replace it.
    """
    position = after
    for index, envelope in enumerate(envelopes):
        own = envelope.position + (envelope.delta > 0)
        if own > position + 1:
            return Gap(index, position, own)
        if not envelope.delta:
            position = max(position, envelope.position)
    return None


def has_all(pages: Iterable[Sequence[Entry]], after: int, bound: int) -> bool:
    """Whether pages of both lanes, which end at `bound`, lack no position behind `after`.

    Only ids that end in -0 count. Another client may have written 4-5, which does not replace a deleted 4-0.
    """
    found = {position_of(entry) for page in pages for entry in page if entry[0].endswith(b"-0")}
    return len(found) == bound - after and (not found or min(found) > after)
