"""The states of many sessions: merged into one state, or kept in a cache of folded states."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, cast

import anyio

from lanebus.bus import Bus, batched, resumable
from lanebus.bus.errors import (
    ArchiveDamaged,
    CursorTrimmed,
    InvalidArgument,
    Refused,
    SessionErased,
    StreamError,
    Unavailable,
    check_bounds,
    is_of_session,
)
from lanebus.handlers.context import ENTRY_BYTES, RecentSessions
from lanebus.handlers.projections.folding import (
    InvalidProjection,
    Projected,
    Projection,
    load_stored,
    look,
    project_from,
    project_kept,
    rebuild,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Sequence

    from lanebus.bus import Activity, Log, Session, SessionHead


S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class AllSessionsBounds:
    """Bounds and periods of reading a projection over all sessions."""

    reads_at_once: int = 8
    """Maximum number of sessions that are read concurrently."""
    poll_seconds: float = 0.5
    """Seconds between two checks for changed sessions."""
    sweep_seconds: float = 60.0
    """Seconds between two reads of all sessions. Only these reads find erased sessions."""

    def __post_init__(self) -> None:
        check_bounds(self, zero=("sweep_seconds",))


@dataclass(frozen=True)
class AllProjected(Generic[S]):
    """The merged state of all sessions."""

    state: S
    sessions: int = 0
    """Number of sessions in the state."""
    entries: int = 0
    """Sum over these sessions of the position up to which the session was read."""
    unreadable: int = 0
    """Number of entries that were skipped because they could not be read."""
    trimmed: int = 0
    """Number of sessions whose first entries were trimmed before they were folded. The state has the later entries."""
    failed: int = 0
    """Number of sessions that could not be read, such as a fork whose parent was erased, or a damaged session. They are
    not in the state."""


def _require(bus: object, projection: object, merge: object, bounds: object) -> None:
    if not callable(merge) or iscoroutinefunction(merge):
        raise InvalidArgument("merge", merge, "pass a function, without `async`, that merges two states into one")


async def project_all(
    bus: Bus, projection: Projection[S], merge: Callable[[S, S], S], *, bounds: AllSessionsBounds | None = None
) -> AllProjected[S]:
    """Return the present state over all sessions. Store the state of each session, as `project` does.

    Memory is bounded: it holds the session heads of one bucket, one merged state for each bucket, and the states of the
    sessions that are being read. Cancellation keeps the states that were stored; a later call does not fold their
    entries again.

    Args:
        bus: the bus whose sessions to read.
        projection: the projection. It must have a `forked` state, so that entries that a fork shares are counted once.
        merge: pure function that merges the states of two sets of sessions into one. It must accept any order and
            grouping, and must return the other state if one state is the initial state.
        bounds: None means the defaults.

    Raises:
        InvalidProjection: the projection has no `forked` state, or a state cannot be stored as JSON.
        Unavailable: the server cannot be reached.
    """
    _require(bus, projection, merge, bounds)
    totals = _Totals(bus, projection, merge, bounds or AllSessionsBounds())
    await totals.refresh(range(bus.buckets))
    return totals.merged()


async def rebuild_all(
    bus: Bus, projection: Projection[S], merge: Callable[[S, S], S], *, bounds: AllSessionsBounds | None = None
) -> AllProjected[S]:
    """Return the same as `project_all`, but fold each session from its first entry.

    A session whose first entries were trimmed away keeps its stored state. Arguments and errors are the same as for
    `project_all`.
    """
    _require(bus, projection, merge, bounds)
    totals = _Totals(bus, projection, merge, bounds or AllSessionsBounds())
    await totals.refresh(range(bus.buckets), is_anew=True)
    return totals.merged()


@resumable
async def follow_all(
    bus: Bus, projection: Projection[S], merge: Callable[[S, S], S], *, bounds: AllSessionsBounds | None = None
) -> AsyncGenerator[AllProjected[S], None]:
    """Yield the merged state of all sessions, then a new merged state after each change. The iterator does not end.

    A new entry changes the yielded state within about `poll_seconds`, the erasure of a session within `sweep_seconds`.
    One yielded state may contain several changes. A slow caller misses intermediate states, but no change.

    After a change in a session, the iterator reads the session's new entries, and the stored states of all sessions in
    the same bucket. With the default of 64 buckets, this is one 64th of all states. Memory is bounded as for
    `project_all`.

    The state of each session is stored with its checkpoint. After a crash, call `follow_all` again. The new call folds
    only the entries after the checkpoints.

    Args: as for `project_all`.

    Raises:
        InvalidProjection: the projection has no `forked` state, or a state cannot be stored as JSON.
        Unavailable: the server cannot be reached at the start. Later, the iterator waits for the server.
    """
    _require(bus, projection, merge, bounds)
    bounds = bounds or AllSessionsBounds()
    totals = _Totals(bus, projection, merge, bounds)
    # The activity is read before the sessions. So the next activity names the sessions that change meanwhile.
    activity = await bus.activity()
    await totals.refresh(range(bus.buckets))
    now, swept_at = totals.merged(), anyio.current_time()
    yield now
    while True:
        await anyio.sleep(bounds.poll_seconds)
        looked_at = anyio.current_time()
        try:
            latest = await bus.activity(activity)
            if looked_at - swept_at >= bounds.sweep_seconds or not names_all(activity, latest):
                await totals.refresh(range(bus.buckets))
                swept_at = looked_at
            else:
                await totals.refresh({bus.bucket_of(session) for session in latest.sessions})
        except Unavailable:
            continue  # `activity` is kept, so the next check names the same sessions again
        activity, merged = latest, totals.merged()
        if replace(merged, entries=now.entries) != now:
            now = merged
            yield now


def names_all(before: Activity, latest: Activity) -> bool:
    """Whether `latest` names every session that was published to since `before`.

    After many publishes or a rollback, it does not name all of them.
    """
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
                "give @projection(forked=…), the initial state of a fork's own entries",
            )

    async def refresh(self, buckets: Iterable[int], *, is_anew: bool = False) -> None:
        """Read the sessions of some buckets, and replace the merged states of these buckets."""
        for bucket in buckets:
            total = self._nothing()
            heads = sorted(await self.bus.sessions(bucket=bucket), key=lambda head: head.session)
            for some in batched(heads, self.bounds.reads_at_once):
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
        return AllProjected(deepcopy(self.projection.initial))  # a copy, because `merge` may change it in place

    def _with(self, total: AllProjected[S], found: Projected[S] | StreamError | Refused) -> AllProjected[S]:
        if isinstance(found, SessionErased):
            return total
        if isinstance(found, StreamError | Refused):
            return replace(total, failed=total.failed + 1)
        return AllProjected(
            self.merge(total.state, found.state),
            total.sessions + 1,
            total.entries + found.position,
            total.unreadable + found.unreadable,
            total.trimmed + (found.counted_from is not None),
            total.failed,
        )

    async def _read(self, heads: Sequence[SessionHead], *, is_anew: bool) -> list[Projected[S] | StreamError | Refused]:
        """Return the state of each session, or the error if the session has no state. In the order of `heads`."""
        found: dict[str, Projected[S] | StreamError | Refused] = {}
        failures: list[Exception] = []

        async def read(head: SessionHead) -> None:
            try:
                found[head.session] = await self._state(head, is_anew=is_anew)
            except (StreamError, Refused) as error:
                if not is_of_session(error):
                    failures.append(error)
                    tasks.cancel_scope.cancel()
                found[head.session] = error
            except Exception as error:  # noqa: BLE001  # raised after the task group, which would wrap the error
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
                    pass  # the session's first entries are gone, so the stored state is used
            stored = await load_stored(session, self.projection)
            if stored is not None and stored.cursor == head.cursor:
                return stored
            return await project_from(session, self.projection, stored)
        except (CursorTrimmed, ArchiveDamaged):
            return await project_kept(session, self.projection)


# A cache of folded states, for a process that reads the same sessions repeatedly.


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewBounds:
    """Bounds on a `Views` cache. The least recently used session is dropped first. The most recently used session is
    never dropped."""

    sessions: int = 64
    """maximum number of sessions in the cache"""
    size_bytes: int = 64 * 1_048_576
    """maximum number of bytes of all states in the cache, as JSON"""
    sweep_seconds: float = 60.0
    """shortest pause between two searches for erased sessions, whose states are then dropped"""

    def __post_init__(self) -> None:
        check_bounds(self)


DEFAULT_VIEW_BOUNDS = ViewBounds()


class Views:
    """A cache of the states of one bus's sessions. Each `look` reads only the entries after the previous `look`.

    The cache is in memory; nothing is stored on the server. A state is folded again from the start if the log no longer
    holds the state's cursor: the log was rolled back, trimmed past the cursor, or replaced.

    Args:
        bounds: bounds on the cache. `sessions` defaults to 64, `size_bytes` to 64 MiB.
    """

    def __init__(self, bounds: ViewBounds = DEFAULT_VIEW_BOUNDS) -> None:
        self._bounds = bounds
        self._sessions = RecentSessions[dict[str, _Weighed]](
            bounds.sessions, bounds.size_bytes, sweep_seconds=bounds.sweep_seconds
        )

    async def look(self, session: Session, projection: Projection[S]) -> Projected[S]:
        """Return a projection's present state of a session, and keep the state in the cache.

        Only entries after the cached state are read. If the call is cancelled, the cache is unchanged.

        Args:
            session: the session to read.
            projection: the projection to fold.

        Raises:
            SessionErased: the session was erased. The session's states were removed from the cache.
            BusError: the log could not be read.
        """
        name = projection.key
        await self._sessions.sweep(session.resources.log)
        known = (self._sessions.get(session.id) or {}).get(name)
        try:
            now = await look(session, projection, known=None if known is None else cast("Projected[S]", known.state))
        except SessionErased:
            self._sessions.pop(session.id)
            raise
        states = self._sessions.get(session.id) or {}
        if now.cursor.incarnation:
            states[name] = _weighed(projection, now, states.get(name))
        else:  # an empty log has no incarnation, so its cursor cannot show whether the log was replaced
            states.pop(name, None)
        self._sessions.keep(session.id, states, sum(each.size_bytes for each in states.values()))
        return now

    async def sweep(self, log: Log) -> None:
        """Drop the states of erased sessions. Raises the errors of `RecentSessions.sweep`."""
        await self._sessions.sweep(log)


class _Weighed(NamedTuple):
    state: Projected[object]
    size_bytes: int
    position: int
    """position up to which the state was folded when its size was measured"""


def _weighed(projection: Projection[S], now: Projected[S], before: _Weighed | None) -> _Weighed:
    """Return a state with its size. It is measured again only after a quarter more entries, because that takes as long
    as writing the whole state."""
    state = cast("Projected[object]", now)
    if before is not None and before.position <= now.position <= before.position * 5 // 4:
        return before._replace(state=state)
    try:
        size_bytes = len(projection.dump(now.state))
    except InvalidProjection:  # a state that cannot be stored can be looked at
        size_bytes = ENTRY_BYTES * now.position
    return _Weighed(state, size_bytes, now.position)
