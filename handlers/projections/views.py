"""A cache of folded states, for a process that reads the same sessions repeatedly."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

from lanebus.bus.errors import SessionErased, check_bounds, require_instance
from lanebus.handlers.projections.projection import look

if TYPE_CHECKING:
    from lanebus.bus.session.session import Session
    from lanebus.handlers.projections.projection import Projected, Projection

__all__ = ("DEFAULT_VIEW_BOUNDS", "ViewBounds", "Views")

S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewBounds:
    """Bounds on a `Views` cache. The least recently used session is dropped first. The most recently used session is
    never dropped."""

    sessions: int = 64
    """maximum number of sessions in the cache"""
    entries: int = 100_000
    """maximum number of entries that the states in the cache were folded from, summed over all states. `TURNS` takes
    about 2 kB for each entry; the other states take far less"""

    def __post_init__(self) -> None:
        check_bounds(self)


DEFAULT_VIEW_BOUNDS = ViewBounds()


class Views:
    """A cache of the states of one bus's sessions. Each `look` reads only the entries after the previous `look`.

    The cache is in memory; nothing is stored on the server. A state is folded again from the start if the log no longer
    holds the state's cursor: the log was rolled back, trimmed past the cursor, or replaced.

    Args:
        bounds: bounds on the cache. `sessions` defaults to 64, `entries` to 100,000.
    """

    def __init__(self, bounds: ViewBounds = DEFAULT_VIEW_BOUNDS) -> None:
        require_instance("bounds", bounds, ViewBounds, "pass ViewBounds(…)")
        self._bounds = bounds
        self._sessions: OrderedDict[str, dict[str, Projected[object]]] = OrderedDict()

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
        known = self._sessions.get(session.id, {}).get(name)
        try:
            now = await look(session, projection, known=cast("Projected[S] | None", known))
        except SessionErased:
            self._sessions.pop(session.id, None)
            raise
        self._keep(session.id, name, cast("Projected[object]", now))
        return now

    def _keep(self, session: str, name: str, now: Projected[object]) -> None:
        states = self._sessions.setdefault(session, {})
        self._sessions.move_to_end(session)
        if now.cursor.incarnation:
            states[name] = now
        else:  # an empty log has no incarnation, so its cursor cannot show whether the log was replaced
            states.pop(name, None)
        while len(self._sessions) > 1 and self._is_full():
            self._sessions.popitem(last=False)

    def _is_full(self) -> bool:
        if len(self._sessions) > self._bounds.sessions:
            return True
        entries = sum(each.position for states in self._sessions.values() for each in states.values())
        return entries > self._bounds.entries
