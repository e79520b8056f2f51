"""What a consumer is given: a session that has something to do."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lanebus.bus.log.first_page import FirstPage
    from lanebus.bus.log.lease import Lease

__all__ = ("InFlight", "Work", "by_bucket")


class Work(NamedTuple):
    """A session has something to do, up to `position` at least. Each session is given to one consumer at a time."""

    session: str
    position: int
    """of its newest entry that woke a worker, as it was given"""
    bucket: int
    order: int
    """the number of that wake-up: each in a bucket has a higher one"""
    attempt: int = 1
    """how often it was given, this time counted: more than once if a consumer died with it or put it off"""
    error: str = ""
    """why it was put off the last time; "" if it was not"""
    is_retry: bool = False
    """it was put off, or sent on its way again, and is due"""
    lease: Lease | None = None
    """of the session, taken with it; None where it was not free, or not asked for"""
    page: FirstPage | None = None
    """of the session, read behind its lease; None where it was not asked for"""
    asked: float = 0.0
    """when it was asked for, on the event loop's clock"""


class InFlight:
    """What a consumer was given and is not done with: the newest work of each session."""

    def __init__(self) -> None:
        self._works: dict[str, Work] = {}

    def __len__(self) -> int:
        return len(self._works)

    def add(self, works: Iterable[Work]) -> list[Work]:
        """Take works into hand. One replaces an earlier work of its session, which the server has ended by then: the
        answer that says so may still be on its way, or lost."""
        added = list(works)
        self._works.update((work.session, work) for work in added)
        return added

    def drop(self, works: Iterable[Work]) -> None:
        """Let go of works; those that are not in hand are left out."""
        for work in works:
            if self._works.get(work.session) == work:
                del self._works[work.session]

    def sessions(self, bucket: int) -> tuple[str, ...]:
        """Those of one bucket."""
        return tuple(work.session for work in self._works.values() if work.bucket == bucket)

    def works(self) -> list[Work]:
        """All of them."""
        return list(self._works.values())


def by_bucket(works: Sequence[Work]) -> list[tuple[int, list[Work]]]:
    """Works of one bucket go out in one step. Pure."""
    shares: dict[int, list[Work]] = defaultdict(list)
    for work in works:
        shares[work.bucket].append(work)
    return list(shares.items())
