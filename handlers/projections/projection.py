"""A view of a session as a fold over its log, kept with its checkpoint, and the fold's runner.

Only the log is truth: a stored state shortens the next fold and may be lost at any time.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from lanebus.bus.errors import ArchiveDamaged, CursorTrimmed, LogRolledBack
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import START, Cursor, Envelope

__all__ = (
    "Projected",
    "Projection",
    "fold",
    "follow",
    "load_stored",
    "look",
    "project",
    "project_kept",
    "rebuild",
    "start_of",
)

S = TypeVar("S")


@dataclass(frozen=True, kw_only=True)  # with slots, `Projection[State](…)` would fail to note its type
class Projection(Generic[S]):
    """What is folded, and how. `name` and `version` say where its state is kept."""

    name: str
    version: int
    """goes up whenever `evolve` or the state's shape changes; what was stored under another one is not read"""
    state: TypeAdapter[S]
    """of a frozen type whose JSON gives an equal value back"""
    initial: S
    evolve: Callable[[S, Envelope], S]
    """pure; sees every entry of both lanes in position order, and never a live delta"""
    forked: S | None = None
    """What a fork begins with, where it counts only its own entries: what it shares was counted for its parent, and a
    sum over all sessions has it once. None: a fork is folded from its first position, what it shares included."""

    @property
    def key(self) -> str:
        """Name and version, as `usage@3`."""
        return f"{self.name}@{self.version}"

    def dump(self, state: S) -> bytes:
        """The state as JSON, the same bytes for the same history."""
        return self.state.dump_json(state, by_alias=True, exclude_none=True)


@dataclass(frozen=True)
class Projected(Generic[S]):
    """A state, and the place it was folded up to; `START` is before the first entry."""

    state: S
    cursor: Cursor
    counted_from: int | None = None
    """The first entry that was folded, where those before it are gone and no state of them was stored. None: none is
    missing."""

    @property
    def position(self) -> int:
        """Up to which it was folded."""
        return self.cursor.position


async def project(session: Session, projection: Projection[S]) -> Projected[S]:
    """The state as of now: the stored one, and what was appended since. The result is stored.

    A log that is shorter than the checkpoint, and a stored state that cannot be read, are folded anew.
    If another process stored a later state meanwhile, that one is given.

    Raises:
        BusError: the log could not be read.
    """
    stored = await load_stored(session, projection)
    if stored is None:
        return await rebuild(session, projection)
    try:
        now = await fold(session, projection, stored)
    except LogRolledBack:
        return await rebuild(session, projection)
    return now if now.position == stored.position else await _store(session, projection, now, stored.position)


async def look(session: Session, projection: Projection[S], *, known: Projected[S] | None = None) -> Projected[S]:
    """Return the state as of now. Nothing is stored, so a look holds no trim back.

    If the beginning of the log can no longer be read and no state of it is stored, the rest is folded, and
    `Projected.counted_from` says where that begins.

    Args:
        known: the result of an earlier look, to go on from. It is passed over if the log no longer holds its cursor.

    Raises:
        BusError: the log could not be read.
    """
    if known is not None:
        with suppress(LogRolledBack, CursorTrimmed, ArchiveDamaged):
            return await fold(session, projection, known)
    if (stored := await load_stored(session, projection)) is not None:
        with suppress(LogRolledBack, CursorTrimmed, ArchiveDamaged):
            return await fold(session, projection, stored)
    try:
        return await fold(session, projection, await start_of(session, projection))
    except (CursorTrimmed, ArchiveDamaged):
        return await project_kept(session, projection)


async def project_kept(session: Session, projection: Projection[S]) -> Projected[S]:
    """The state of what is left of a log whose beginning was trimmed away. Never stored: it is not that of the log.

    Raises:
        BusError: the log could not be read.
    """
    head, start = await session.head(), await start_of(session, projection)
    kept = head.cursor_at(head.trimmed)
    if kept <= start.cursor:
        return await fold(session, projection, start)
    return await fold(session, projection, Projected(start.state, kept, head.first_kept))


async def rebuild(session: Session, projection: Projection[S]) -> Projected[S]:
    """The state folded from its beginning, whatever is stored; it takes the place of what is stored.

    Raises:
        BusError: the log could not be read.
    """
    checkpoint = await session.load_projection(projection.name, projection.version)
    start = await start_of(session, projection)
    now = await fold(session, projection, start)
    if now.position == start.position and checkpoint is None:
        return now  # an empty session has nothing to keep
    return await _store(session, projection, now, checkpoint.position if checkpoint else 0)


async def follow(session: Session, projection: Projection[S]) -> AsyncGenerator[Projected[S], None]:
    """The state as of now, then again after each new entry; never ends by itself.

    The stored state is the one of the beginning: what is folded on top of it is in the log, and cheap to fold again.
    After a log went back, the state is folded anew and its position is lower than the one before.
    """
    while True:
        now = await project(session, projection)
        yield now
        try:
            async with aclosing(session.follow(after=now.cursor)) as entries:
                async for envelope in entries:
                    now = Projected(projection.evolve(now.state, envelope), envelope.cursor)
                    yield now
        except LogRolledBack:
            continue
        return


async def start_of(session: Session, projection: Projection[S]) -> Projected[S]:
    """The state before the first entry that is folded.

    Raises:
        Unavailable: the server cannot be reached.
    """
    if projection.forked is not None and (head := await session.head()).origin is not None:
        return Projected(projection.forked, head.own_start)
    return Projected(projection.initial, START)


async def fold(
    session: Session, projection: Projection[S], start: Projected[S], *, until: int | None = None
) -> Projected[S]:
    """A state with the entries behind it, up to a position; None is all of them. Nothing is stored.

    Raises:
        BusError: the log could not be read.
    """
    state, cursor = start.state, start.cursor
    async with aclosing(session.read(after=cursor, until=until)) as entries:
        async for envelope in entries:
            state, cursor = projection.evolve(state, envelope), envelope.cursor
    return replace(start, state=state, cursor=cursor)


async def _store(session: Session, projection: Projection[S], now: Projected[S], expected: int) -> Projected[S]:
    """Store the state if the stored checkpoint is still at `expected`, else give the newer of both."""
    is_stored = await session.save_projection(
        projection.name, projection.version, projection.dump(now.state), cursor=now.cursor, expected=expected
    )
    if not is_stored:
        other = await load_stored(session, projection)
        if other is not None and other.position > now.position:
            return other
    return now


async def load_stored(session: Session, projection: Projection[S]) -> Projected[S] | None:
    """The stored state; None if there is none, or none that this version of the package can read."""
    checkpoint = await session.load_projection(projection.name, projection.version)
    if checkpoint is None:
        return None
    try:
        return Projected(projection.state.validate_json(checkpoint.state), checkpoint.cursor)
    except ValidationError:
        return None
