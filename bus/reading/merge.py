"""Merge pages of several lanes into one list of envelopes. Pure."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from lanebus.bus.wire.codec import decode, position_of
from lanebus.bus.wire.envelope import Envelope

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lanebus.bus.messages.lanes import Lane
    from lanebus.bus.wire.codec import Entry

__all__ = ("cut", "merge")

_PLACE = itemgetter(Envelope._fields.index("position"), Envelope._fields.index("delta"))
"""The sort key of envelopes. A foreign id such as 7-5 sorts after 7-0, even if 7-0 is in the other lane."""


def cut(pages: Iterable[Sequence[Entry]], bound: int) -> list[Sequence[Entry]]:
    """Return the pages without the entries after position `bound`."""
    return [_cut(page, bound) for page in pages]


def merge(session: str, pages: Iterable[tuple[Lane, Sequence[Entry]]], bound: int) -> list[Envelope]:
    """Return the envelopes of several lanes up to `bound`, in the order of their ids."""
    merged, filled = list[Envelope](), 0
    for lane, page in pages:
        filled += bool(page)
        merged += [decode(session, lane, entry) for entry in _cut(page, bound)]
    if filled > 1:
        merged.sort(key=_PLACE)
    return merged


def _cut(page: Sequence[Entry], bound: int) -> Sequence[Entry]:
    if not page or position_of(page[-1]) <= bound:
        return page
    return [entry for entry in page if position_of(entry) <= bound]
