"""Folded states that a process which looks again and again keeps in memory."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

from lanebus.bus.errors import SessionErased
from lanebus.handlers.projections.projection import look

if TYPE_CHECKING:
    from lanebus.bus.session.session import Session
    from lanebus.handlers.projections.projection import Projected, Projection

__all__ = ("DEFAULT_VIEW_BOUNDS", "ViewBounds", "Views")

S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewBounds:
    """How much is kept. The session looked at last always is; of the others the least recently used leave first."""

    sessions: int = 64
    """most sessions"""
    entries: int = 100_000
    """Most entries that the kept states were folded from, summed over all of them. The turns take 2 kB for each
    entry, other states next to nothing."""


DEFAULT_VIEW_BOUNDS = ViewBounds()


class Views:
    """States of the sessions of one bus, each with its cursor, so that the next look reads only what is new.

    Nothing is stored on the server. A state whose cursor the log no longer holds is folded anew: the log was rolled
    back, trimmed past it, or another one has taken its place.
    """

    def __init__(self, bounds: ViewBounds = DEFAULT_VIEW_BOUNDS) -> None:
        self._bounds = bounds
        self._sessions: OrderedDict[str, dict[str, Projected[object]]] = OrderedDict()

    async def look(self, session: Session, projection: Projection[S]) -> Projected[S]:
        """Return the state as of now, as `projection.look` does.

        Raises:
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
        else:  # an empty log, which may yet begin as a fork, or a foreign entry: such a cursor proves nothing
            states.pop(name, None)
        while len(self._sessions) > 1 and self._is_full():
            self._sessions.popitem(last=False)

    def _is_full(self) -> bool:
        if len(self._sessions) > self._bounds.sessions:
            return True
        entries = sum(each.position for states in self._sessions.values() for each in states.values())
        return entries > self._bounds.entries
