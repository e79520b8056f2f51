"""Fold projections from the first entry, all in one read of the log. Compare the results with the stored states."""

import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from copy import deepcopy
from dataclasses import replace
from typing import Generic, NamedTuple, Protocol, TypeVar

from lanebus.bus import Checkpoint, Session
from lanebus.bus.wire import Cursor, Envelope
from lanebus.handlers.projections import (
    SESSIONS,
    STATUS,
    TIMELINE,
    TURNS,
    USAGE,
    Projected,
    Projection,
    folded,
    start_of,
)

S = TypeVar("S")


class Fold(Protocol):
    """A projection whose state is being folded."""

    name: str
    version: int
    start: Cursor
    """cursor after which the fold starts"""

    @property
    def unreadable(self) -> int:
        """Number of entries that were skipped because they could not be read."""
        ...

    def take(self, envelope: Envelope) -> None:
        """Fold the next entry."""
        ...

    def dump(self) -> bytes:
        """Return the state in its stored encoding."""
        ...

    def agrees(self, stored: bytes) -> bool:
        """Return whether a stored state equals the folded state."""
        ...


BeginFold = Callable[[Session], Awaitable[Fold]]
"""Begins the fold of one projection for a session."""


class _Folding(Generic[S]):
    """The `Fold` of one projection, from the projection's start."""

    def __init__(self, projection: Projection[S], start: Projected[S]) -> None:
        self.name, self.version, self.start = projection.name, projection.version, start.cursor
        self._projection, self._now = projection, start

    @property
    def unreadable(self) -> int:
        return self._now.unreadable

    def take(self, envelope: Envelope) -> None:
        self._now = folded(self._projection, self._now, envelope)

    def dump(self) -> bytes:
        return self._projection.dump(self._now.state)

    def agrees(self, stored: bytes) -> bool:
        return self._projection.agrees(stored, self._now.state, self._now.unreadable)


def fold_of(projection: Projection[S]) -> BeginFold:
    """Return a function that begins the fold of a projection. Pass the function to `replay`."""

    async def begin(session: Session) -> Fold:
        start = await start_of(session, projection)
        # A copy, because the fold may change its state in place.
        return _Folding(projection, replace(start, state=deepcopy(start.state)))

    return begin


_FOLDS: Mapping[str, BeginFold] = {
    USAGE.name: fold_of(USAGE),
    TURNS.name: fold_of(TURNS),
    SESSIONS.name: fold_of(SESSIONS),
    STATUS.name: fold_of(STATUS),
    TIMELINE.name: fold_of(TIMELINE),
}

PROJECTION_NAMES = tuple(_FOLDS)
"""names of lanebus's own projections, which `replay` accepts by name"""

PROJECTION_KEYS = frozenset(each.key for each in (USAGE, TURNS, SESSIONS, STATUS, TIMELINE))
"""name and version of each of lanebus's own projections, as `<name>@<version>`"""


class Replayed(NamedTuple):
    """The result of folding one projection from the log."""

    name: str
    version: int
    cursor: Cursor
    """cursor of the last folded entry"""
    state: bytes
    """the folded state in its stored encoding"""
    stored: int | None
    """position of the stored state's checkpoint; None if no state is stored"""
    agrees: bool | None
    """whether the stored state equals the state folded up to the stored state's checkpoint. None if no state is stored,
    or the checkpoint is after the last folded entry"""
    unreadable: int = 0
    """number of entries that were skipped because they could not be read"""

    @property
    def key(self) -> str:
        """The projection's name and version, as `<name>@<version>`."""
        return f"{self.name}@{self.version}"


class _Replay:
    """The fold of one projection, and the comparison with the stored state."""

    def __init__(self, fold: Fold, stored: Checkpoint | None) -> None:
        self.fold, self.stored, self.cursor = fold, stored, fold.start
        self._agrees: bool | None = None
        self._compare()

    def take(self, envelope: Envelope) -> None:
        """Fold the next entry."""
        if envelope.position > self.fold.start.position:
            self.fold.take(envelope)
            self.cursor = envelope.cursor
            self._compare()

    def end(self, until: int) -> Replayed:
        """Return the result. `until` is the last position that was read."""
        stored = None if self.stored is None else self.stored.position
        if stored is not None and self._agrees is None and stored <= until:
            self._agrees = False  # the log has no entry at the checkpoint
        fold = self.fold
        return Replayed(fold.name, fold.version, self.cursor, fold.dump(), stored, self._agrees, fold.unreadable)

    def _compare(self) -> None:
        if self.stored is not None and self.cursor.position == self.stored.position:
            cursor = self.stored.cursor
            is_here = not self.cursor.incarnation or cursor.incarnation in {"", self.cursor.incarnation}
            self._agrees = is_here and self.fold.agrees(self.stored.state)


async def replay(
    session: Session,
    names: Iterable[str] = PROJECTION_NAMES,
    *,
    others: Iterable[BeginFold] = (),
    until: int,
    stored_only: bool = False,
) -> list[Replayed]:
    """Fold projections from the first entry, and compare the results with the stored states. Nothing is stored.

    Args:
        session: the session.
        names: names of lanebus's own projections; each must be in `PROJECTION_NAMES`.
        others: further projections, as results of `fold_of`.
        until: last position to fold.
        stored_only: skip projections without a stored state.

    Returns:
        One result for each projection, in the order of the arguments.

    Raises:
        CursorTrimmed: the first entries were trimmed.
        BusError: the log could not be read.
    """
    replays: list[_Replay] = []
    for begin in (*(_FOLDS[name] for name in names), *others):
        fold = await begin(session)
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
    """Return the text and remedy of the problem that a stored state differs from a fold of the log."""
    return (
        f"the stored state of projection {key} differs from a fold of the log; "
        f"remove it with: lanebus projections remove {session} {shlex.quote(key)}"
    )
