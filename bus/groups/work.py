"""Work: a session that a consumer has fetched because it has something to do."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lanebus.bus.log.first_page import FirstPage
    from lanebus.bus.log.lease import Lease

__all__ = ("InFlight", "Work", "by_bucket")


class Work(NamedTuple):
    """A session that has something to do, at least up to `position`. One consumer at a time has it."""

    session: str
    position: int
    """position of the session's newest waking entry at the time of the fetch"""
    bucket: int
    order: int
    """number of that wake-up; it grows with each wake-up in the bucket"""
    attempt: int = 1
    """how often the work was delivered, this delivery included; above 1 after a consumer died or called `nack`"""
    error: str = ""
    """the `error` of the last `Consumer.nack`; "" if there was none"""
    is_retry: bool = False
    """the work was delayed by `nack` or redriven from a dead letter, and is now due"""
    lease: Lease | None = None
    """lease of the session, acquired with the fetch; None if it was not free or `Bus.consumer` got no `owner`"""
    page: FirstPage | None = None
    """first page of the session, read after its lease was acquired; None if it was not requested"""
    asked: float = 0.0
    """when the fetch was sent, in seconds of the event loop's clock"""


class InFlight:
    """Works that a consumer has fetched and not finished: the newest one of each session."""

    def __init__(self) -> None:
        self._works: dict[str, Work] = {}

    def __len__(self) -> int:
        return len(self._works)

    def add(self, works: Iterable[Work]) -> list[Work]:
        """Add fetched works and return them as a list.

        A work replaces an earlier one of its session: the server has ended that, even if its answer is late or lost.
        """
        added = list(works)
        self._works.update((work.session, work) for work in added)
        return added

    def drop(self, works: Iterable[Work]) -> None:
        """Remove works; ignore those that are not held."""
        for work in works:
            if self._works.get(work.session) == work:
                del self._works[work.session]

    def sessions(self, bucket: int) -> tuple[str, ...]:
        """Return the held sessions of one bucket."""
        return tuple(work.session for work in self._works.values() if work.bucket == bucket)

    def works(self) -> list[Work]:
        """Return all held works."""
        return list(self._works.values())


def by_bucket(works: Sequence[Work]) -> list[tuple[int, list[Work]]]:
    """Group works by bucket, as each bucket is one script call. Pure."""
    shares: dict[int, list[Work]] = defaultdict(list)
    for work in works:
        shares[work.bucket].append(work)
    return list(shares.items())
