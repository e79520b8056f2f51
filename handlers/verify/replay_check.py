"""Projections folded anew from the first entry, side by side in one reading, and compared with what is stored."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import aclosing
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from lanebus.bus.log.checkpoints import Checkpoint
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import Cursor, Envelope
from lanebus.handlers.projections.agent_status import STATUS
from lanebus.handlers.projections.projection import Projected, Projection, start_of
from lanebus.handlers.projections.sessions import SESSIONS
from lanebus.handlers.projections.turns import TURNS
from lanebus.handlers.projections.usage import USAGE

__all__ = ("PROJECTION_KEYS", "PROJECTION_NAMES", "Replayed", "differs", "replay")

S = TypeVar("S")


class Fold(Protocol):
    """A projection that is being folded."""

    name: str
    version: int
    start: Cursor
    """the place that it begins behind"""

    def take(self, envelope: Envelope) -> None:
        """The next entry."""
        ...

    def dump(self) -> bytes:
        """The state as it would be stored."""
        ...


class _Folding(Generic[S]):
    """The `Fold` of one projection, from its beginning."""

    def __init__(self, projection: Projection[S], start: Projected[S]) -> None:
        self.name, self.version, self.start = projection.name, projection.version, start.cursor
        self._projection, self._state = projection, start.state

    def take(self, envelope: Envelope) -> None:
        self._state = self._projection.evolve(self._state, envelope)

    def dump(self) -> bytes:
        return self._projection.dump(self._state)


async def _begin(projection: Projection[S], session: Session) -> Fold:
    return _Folding(projection, await start_of(session, projection))


_FOLDS: Mapping[str, Callable[[Session], Awaitable[Fold]]] = {
    USAGE.name: partial(_begin, USAGE),
    TURNS.name: partial(_begin, TURNS),
    SESSIONS.name: partial(_begin, SESSIONS),
    STATUS.name: partial(_begin, STATUS),
}

PROJECTION_NAMES = tuple(_FOLDS)
"""What can be folded."""

PROJECTION_KEYS = frozenset(each.key for each in (USAGE, TURNS, SESSIONS, STATUS))
"""The same with their versions."""


class Replayed(NamedTuple):
    """A projection that was folded anew."""

    name: str
    version: int
    cursor: Cursor
    """up to where"""
    state: bytes
    stored: int | None
    """up to where the stored state was folded; None if there is none"""
    agrees: bool | None
    """the stored state is what the log gives there, byte for byte; None if there is none, or it lies beyond"""

    @property
    def key(self) -> str:
        """Name and version."""
        return f"{self.name}@{self.version}"


class _Replay:
    """One projection on its way, and whether it met what is stored of it."""

    def __init__(self, fold: Fold, stored: Checkpoint | None) -> None:
        self.fold, self.stored, self.cursor = fold, stored, fold.start
        self._agrees: bool | None = None
        self._compare()

    def take(self, envelope: Envelope) -> None:
        """The next entry."""
        if envelope.position > self.fold.start.position:
            self.fold.take(envelope)
            self.cursor = envelope.cursor
            self._compare()

    def end(self, until: int) -> Replayed:
        """What came of it."""
        stored = None if self.stored is None else self.stored.position
        if stored is not None and self._agrees is None and stored <= until:
            self._agrees = False  # nothing of the log stands where it was folded up to
        return Replayed(self.fold.name, self.fold.version, self.cursor, self.fold.dump(), stored, self._agrees)

    def _compare(self) -> None:
        if self.stored is not None and self.cursor.position == self.stored.position:
            cursor = self.stored.cursor
            is_here = not self.cursor.incarnation or cursor.incarnation in {"", self.cursor.incarnation}
            self._agrees = is_here and self.fold.dump() == self.stored.state


async def replay(
    session: Session, names: Collection[str] = PROJECTION_NAMES, *, until: int, stored_only: bool = False
) -> list[Replayed]:
    """The projections of these names, each folded from its beginning up to `until`. Nothing is stored.

    Args:
        stored_only: leave out those of which nothing is stored.

    Raises:
        CursorTrimmed: the first entries are not there any more.
        BusError: the log could not be read.
    """
    replays: list[_Replay] = []
    for name in names:
        fold = await _FOLDS[name](session)
        stored = await session.load_projection(fold.name, fold.version)
        if stored is not None or not stored_only:
            replays.append(_Replay(fold, stored))
    if not replays:
        return []
    start = min((each.fold.start for each in replays), key=lambda cursor: cursor.position)
    async with aclosing(session.read(after=start, until=until)) as entries:
        async for envelope in entries:
            for each in replays:
                each.take(envelope)
    return [each.end(until) for each in replays]


def differs(session: str, key: str) -> str:
    """What to say of a stored state that is not what the log gives, with the command that helps."""
    return (
        f"projection {key} is stored with another state than the log gives; "
        f"remove it with: lanebus projections remove {session} {key}"
    )
