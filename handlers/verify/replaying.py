"""Projections folded anew from the first entry, side by side in one reading, and compared with what is stored."""

from collections.abc import Callable, Collection, Mapping
from contextlib import aclosing
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from bus.envelope import START, Cursor, Envelope
from bus.log import Checkpoint
from bus.session import Session
from handlers.projections.projection import Projection
from handlers.projections.sessions import SESSIONS
from handlers.projections.turns import TURNS
from handlers.projections.usage import USAGE

__all__ = ("PROJECTION_KEYS", "PROJECTION_NAMES", "Replayed", "replay", "store_replayed")

S = TypeVar("S")


class Fold(Protocol):
    """A projection that is being folded."""

    name: str
    version: int

    def take(self, envelope: Envelope) -> None:
        """The next entry."""
        ...

    def dump(self) -> bytes:
        """The state as it would be stored."""
        ...


class _Folding(Generic[S]):
    """The `Fold` of one projection, from its beginning."""

    def __init__(self, projection: Projection[S]) -> None:
        self.name, self.version = projection.name, projection.version
        self._projection, self._state = projection, projection.initial

    def take(self, envelope: Envelope) -> None:
        self._state = self._projection.evolve(self._state, envelope)

    def dump(self) -> bytes:
        return self._projection.dump(self._state)


_FOLDS: Mapping[str, Callable[[], Fold]] = {
    USAGE.name: partial(_Folding, USAGE),
    TURNS.name: partial(_Folding, TURNS),
    SESSIONS.name: partial(_Folding, SESSIONS),
}

PROJECTION_NAMES = tuple(_FOLDS)
"""What can be folded."""

PROJECTION_KEYS = frozenset(f"{p.name}@{p.version}" for p in (USAGE, TURNS, SESSIONS))
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
        self.fold, self.stored = fold, stored
        self._agrees: bool | None = None

    def take(self, envelope: Envelope) -> None:
        """The next entry."""
        self.fold.take(envelope)
        if self.stored is not None and envelope.position == self.stored.position:
            self._agrees = self.fold.dump() == self.stored.state

    def end(self, cursor: Cursor, until: int) -> Replayed:
        """What came of it."""
        stored = None if self.stored is None else self.stored.position
        if stored is not None and self._agrees is None and stored <= until:
            self._agrees = False  # nothing of the log stands where it was folded up to
        return Replayed(self.fold.name, self.fold.version, cursor, self.fold.dump(), stored, self._agrees)


async def replay(
    session: Session, names: Collection[str] = PROJECTION_NAMES, *, until: int, stored_only: bool = False
) -> list[Replayed]:
    """The projections of these names, each folded from the first entry up to `until`. Nothing is stored.

    Args:
        stored_only: leave out those of which nothing is stored.

    Raises:
        CursorTrimmed: the first entries are not there any more.
        BusError: the log could not be read.
    """
    replays: list[_Replay] = []
    for name in names:
        fold = _FOLDS[name]()
        stored = await session.load_projection(fold.name, fold.version)
        if stored is not None or not stored_only:
            replays.append(_Replay(fold, stored))
    cursor = START
    if not replays:
        return []
    async with aclosing(session.read(until=until)) as entries:
        async for envelope in entries:
            cursor = envelope.cursor
            for each in replays:
                each.take(envelope)
    return [each.end(cursor, until) for each in replays]


async def store_replayed(session: Session, replayed: Replayed) -> bool:
    """Let a state that was folded anew take the place of the stored one; False if that was changed meanwhile.

    Raises:
        Unavailable: the server cannot be reached.
    """
    return await session.save_projection(
        replayed.name, replayed.version, replayed.state, cursor=replayed.cursor, expected=replayed.stored or 0
    )
