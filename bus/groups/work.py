"""A work item: a session that a consumer has fetched because the session has something to do."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from lanebus.bus.wire.keys import AgentBucket

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lanebus.bus.log.first_page import FirstPage
    from lanebus.bus.log.lease import Lease

__all__ = ("InFlight", "Work", "by_place")

_TENANT = re.compile(r"[-_]")


class Work(NamedTuple):
    """A work item: a session with entries to process, at least up to `position`. One consumer at a time has the
    session."""

    session: str
    position: int
    """position of the session's newest waking entry at the time of the fetch"""
    bucket: int
    order: int
    """number of the wake-up that the entry at `position` caused. A bucket numbers its wake-ups in ascending order"""
    attempt: int = 1
    """number of deliveries of the work item, including this one. It is above 1 after a consumer died or called
    `nack`"""
    error: str = ""
    """the `error` of the last `Consumer.nack`; "" if no consumer gave the work item back with an error"""
    is_retry: bool = False
    """whether the work item was delayed by `nack` or redriven from a dead letter"""
    lease: Lease | None = None
    """the session's lease, acquired by the fetch. None if the lease was not acquired, for example because another owner
    holds it or `Bus.consumer` got no `owner`"""
    page: FirstPage | None = None
    """the session's first page, read after the lease was acquired; None if the page was not requested"""
    asked: float = 0.0
    """when the fetch was sent, in seconds of the event loop's clock"""
    agent: str = ""
    """the agent that the session belongs to"""

    @property
    def place(self) -> AgentBucket:
        """The bucket and agent from which the work item was fetched."""
        return AgentBucket(self.bucket, self.agent)


class InFlight:
    """The work items that a consumer has fetched and not finished. Keeps only the newest work item of each session."""

    def __init__(self) -> None:
        self._works: dict[str, Work] = {}

    def __len__(self) -> int:
        return len(self._works)

    def add(self, works: Iterable[Work]) -> list[Work]:
        """Add fetched work items and return them as a list.

        A work item replaces an earlier work item of the same session. The server has ended the earlier work item, even
        if the server's reply that says so is late or lost.
        """
        added = list(works)
        self._works.update((work.session, work) for work in added)
        return added

    def drop(self, works: Iterable[Work]) -> None:
        """Remove work items; ignore work items that are not held."""
        for work in works:
            if self._works.get(work.session) == work:
                del self._works[work.session]

    def sessions(self, place: AgentBucket) -> tuple[str, ...]:
        """Return the held sessions of one agent in one bucket."""
        return tuple(work.session for work in self._works.values() if work.place == place)

    def tenants(self) -> str:
        """Return the number of held sessions of each tenant, in the form that scripts/group_fetch.lua reads.

        A session's tenant is its id up to the first "-" or "_". Ids without these characters belong to the tenant "".
        """
        counts = Counter(found[0] if len(found := _TENANT.split(name, 1)) > 1 else "" for name in self._works)
        return ",".join(f"{tenant}:{count}" for tenant, count in counts.items())

    def works(self) -> list[Work]:
        """Return all held work items."""
        return list(self._works.values())


def by_place(works: Sequence[Work]) -> list[tuple[AgentBucket, list[Work]]]:
    """Divide work items by bucket and agent. One script call can handle all work items of a pair. Pure."""
    shares: dict[AgentBucket, list[Work]] = defaultdict(list)
    for work in works:
        shares[work.place].append(work)
    return list(shares.items())
