"""A cache of folded states, for a process that reads the same sessions repeatedly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from lanebus.bus.errors import SessionErased, check_bounds, require_instance
from lanebus.handlers.projections.errors import InvalidProjection
from lanebus.handlers.projections.projection import Projected, look
from lanebus.handlers.recent import ENTRY_BYTES, RecentSessions

if TYPE_CHECKING:
    from lanebus.bus.log.log import Log
    from lanebus.bus.session.session import Session
    from lanebus.handlers.projections.projection import Projection

__all__ = ("DEFAULT_VIEW_BOUNDS", "ViewBounds", "Views")

S = TypeVar("S")


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
        require_instance("bounds", bounds, ViewBounds, "pass ViewBounds(…)")
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
