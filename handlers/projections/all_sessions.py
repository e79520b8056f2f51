"""Merge the states of all sessions of a bus into one.

`project` stores each session's state with that session. After a crash, a rollback or an erasure, only the affected
sessions are folded again. A new version of the projection folds every session again. No entry counts twice.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, TypeVar

import anyio

from lanebus.bus.errors import ArchiveDamaged, CursorTrimmed, SessionErased, StreamError, Unavailable
from lanebus.bus.log.batches import batched
from lanebus.handlers.projections.errors import InvalidProjection
from lanebus.handlers.projections.projection import (
    Projected,
    load_stored,
    project_from,
    project_kept,
    rebuild,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Sequence

    from lanebus.bus.bus import Bus
    from lanebus.bus.groups.activity import Activity
    from lanebus.bus.log.head import SessionHead
    from lanebus.handlers.projections.projection import Projection

__all__ = ("AllProjected", "AllSessionsBounds", "follow_all", "project_all", "rebuild_all")

S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class AllSessionsBounds:
    """How a projection over all sessions is read."""

    at_a_time: int = 8
    """The most sessions that are read side by side."""
    poll_seconds: float = 0.5
    """Seconds between two looks at which sessions have changed."""
    sweep_seconds: float = 60.0
    """Seconds between two looks at all sessions, which find erased ones."""


@dataclass(frozen=True)
class AllProjected(Generic[S]):
    """The merged state of all sessions."""

    state: S
    sessions: int = 0
    """The number of sessions in it."""
    entries: int = 0
    """The sum of the positions up to which they were read."""
    unreadable: int = 0
    """Entries that were skipped because they could not be read."""
    trimmed: int = 0
    """Sessions whose first entries are gone and were not folded before. What is left of them is in the state."""
    failed: int = 0
    """Sessions that could not be read and are not in the state, such as a fork whose parent was erased."""


async def project_all(
    bus: Bus, projection: Projection[S], merge: Callable[[S, S], S], *, bounds: AllSessionsBounds | None = None
) -> AllProjected[S]:
    """Return the present state over all sessions. The state of each session is stored, as by `project`.

    Memory holds the heads of one bucket's sessions, one merged state for each bucket, and the states of the sessions
    that are being read. Cancelled, it loses nothing: what was stored is not folded again.

    Args:
        projection: with `forked`, so that the entries that a fork shares count once.
        merge: returns one state for those of two sets of sessions, in any order and grouping. Pure. The initial state
            merged with another gives that other.
        bounds: None means the defaults.

    Raises:
        InvalidProjection: the projection has no `forked` state, or a state cannot be stored as JSON.
        Unavailable: the server cannot be reached.
    """
    totals = _Totals(bus, projection, merge, bounds or AllSessionsBounds())
    await totals.refresh(range(bus.buckets))
    return totals.merged()


async def rebuild_all(
    bus: Bus, projection: Projection[S], merge: Callable[[S, S], S], *, bounds: AllSessionsBounds | None = None
) -> AllProjected[S]:
    """Return what `project_all` does, with each session folded from its first entry.

    A session whose first entries were trimmed away keeps its stored state. Arguments and errors are those of
    `project_all`.
    """
    totals = _Totals(bus, projection, merge, bounds or AllSessionsBounds())
    await totals.refresh(range(bus.buckets), is_anew=True)
    return totals.merged()


async def follow_all(
    bus: Bus, projection: Projection[S], merge: Callable[[S, S], S], *, bounds: AllSessionsBounds | None = None
) -> AsyncGenerator[AllProjected[S], None]:
    """Yield the present state over all sessions, then again after each change. It never ends by itself.

    A change is yielded within about `poll_seconds`, an erased session within `sweep_seconds`. Several changes may come
    as one: a slow caller misses intermediate states only.

    A change costs its new entries, and one read of each stored state in the session's bucket: as a rule, one 64th of
    all states. Memory is bounded as for `project_all`.

    The checkpoints are those of the sessions. After a crash, call it again: only entries after them are folded.

    Args: as for `project_all`.

    Raises:
        InvalidProjection: the projection has no `forked` state, or a state cannot be stored as JSON.
        Unavailable: the server cannot be reached at the start; later it is waited for.
    """
    bounds = bounds or AllSessionsBounds()
    totals = _Totals(bus, projection, merge, bounds)
    activity = await bus.activity()  # before the sessions are read: what comes meanwhile is named by the next one
    await totals.refresh(range(bus.buckets))
    now, swept_at = totals.merged(), anyio.current_time()
    yield now
    while True:
        await anyio.sleep(bounds.poll_seconds)
        looked_at = anyio.current_time()
        try:
            latest = await bus.activity(activity)
            if looked_at - swept_at >= bounds.sweep_seconds or not _names_all(activity, latest):
                await totals.refresh(range(bus.buckets))
                swept_at = looked_at
            else:
                await totals.refresh({bus.bucket_of(session) for session in latest.sessions})
        except Unavailable:
            continue  # `activity` stays, so the next look names what this one did
        activity, merged = latest, totals.merged()
        if replace(merged, entries=now.entries) != now:
            now = merged
            yield now


def _names_all(before: Activity, latest: Activity) -> bool:
    """Whether a look names every session that was published to. It does not after many publishes or a rollback."""
    return latest.published - before.published == latest.named


@dataclass
class _Totals(Generic[S]):
    """The merged state of each bucket."""

    bus: Bus
    projection: Projection[S]
    merge: Callable[[S, S], S]
    bounds: AllSessionsBounds
    by_bucket: dict[int, AllProjected[S]] = field(default_factory=dict[int, "AllProjected[S]"])

    def __post_init__(self) -> None:
        if self.projection.forked is None:
            raise InvalidProjection(
                self.projection.name,
                "over all sessions, the entries that a fork shares would count again",
                "Give @projection(forked=…), the initial state of a fork's own entries",
            )

    async def refresh(self, buckets: Iterable[int], *, is_anew: bool = False) -> None:
        """Read the sessions of some buckets, and merge their states anew."""
        for bucket in buckets:
            total = self._nothing()
            heads = sorted(await self.bus.sessions(bucket=bucket), key=lambda head: head.session)
            for some in batched(heads, self.bounds.at_a_time):
                for found in await self._read(some, is_anew=is_anew):
                    total = self._with(total, found)
            self.by_bucket[bucket] = total

    def merged(self) -> AllProjected[S]:
        """Return the state over all buckets."""
        total = self._nothing()
        for _, each in sorted(self.by_bucket.items()):
            if each.sessions or each.failed:
                total = AllProjected(
                    self.merge(total.state, each.state),
                    total.sessions + each.sessions,
                    total.entries + each.entries,
                    total.unreadable + each.unreadable,
                    total.trimmed + each.trimmed,
                    total.failed + each.failed,
                )
        return total

    def _nothing(self) -> AllProjected[S]:
        return AllProjected(deepcopy(self.projection.initial))  # a merge may change it in place

    def _with(self, total: AllProjected[S], found: Projected[S] | StreamError) -> AllProjected[S]:
        if isinstance(found, SessionErased):
            return total
        if isinstance(found, StreamError):
            return replace(total, failed=total.failed + 1)
        return AllProjected(
            self.merge(total.state, found.state),
            total.sessions + 1,
            total.entries + found.position,
            total.unreadable + found.unreadable,
            total.trimmed + (found.counted_from is not None),
            total.failed,
        )

    async def _read(self, heads: Sequence[SessionHead], *, is_anew: bool) -> list[Projected[S] | StreamError]:
        """Return the states of some sessions, in their order, or why there is none."""
        found: dict[str, Projected[S] | StreamError] = {}
        failures: list[Exception] = []

        async def read(head: SessionHead) -> None:
            try:
                found[head.session] = await self._state(head, is_anew=is_anew)
            except StreamError as error:
                found[head.session] = error
            except Exception as error:  # noqa: BLE001  # raised below: here it would come out in an ExceptionGroup
                failures.append(error)
                tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for head in heads:
                tasks.start_soon(read, head)
        if failures:
            raise failures[0]
        return [found[head.session] for head in heads]

    async def _state(self, head: SessionHead, *, is_anew: bool) -> Projected[S]:
        session = self.bus.session(head.session, grouped=True)
        try:
            if is_anew:
                try:
                    return await rebuild(session, self.projection)
                except (CursorTrimmed, ArchiveDamaged):
                    pass  # its stored state cannot be had again
            stored = await load_stored(session, self.projection)
            if stored is not None and stored.cursor == head.cursor:
                return stored
            return await project_from(session, self.projection, stored)
        except (CursorTrimmed, ArchiveDamaged):
            return await project_kept(session, self.projection)
