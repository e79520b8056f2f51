"""The states of a projection as the entries of one session arrive."""

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import TypeVar

from lanebus.bus.errors import LogRolledBack, Unavailable
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import Cursor
from lanebus.bus.wire.notice import Notice
from lanebus.handlers.projections.projection import (
    Projected,
    Projection,
    fold,
    folded,
    load_stored,
    project,
    start_of,
    store,
)

__all__ = ("STORE_EVERY", "follow")

S = TypeVar("S")

STORE_EVERY = 1000
"""Entries that `follow` reads between two checkpoints."""


async def follow(
    session: Session, projection: Projection[S], *, after: Cursor | None = None, store_every: int = STORE_EVERY
) -> AsyncGenerator[Projected[S], None]:
    """Yield the present state, then the state after each new entry. It ends only with an error or when it is closed.

    Entries wait in the buffer of one subscription, which is bounded. A slow caller loses none of them. After a rollback
    of the log the state is folded anew and yielded, and its position may be lower than the previous one.

    The state is stored at the beginning and then every `store_every` entries. Cancelling loses nothing: the next call
    folds the entries after the checkpoint again.

    Args:
        after: the cursor of the last state that the caller has seen, as `Projected.cursor`. States after it are
            yielded, and the present one is not. None yields the present state first.
        store_every: entries between two checkpoints; 1 or more.

    Raises:
        InvalidProjection: the state cannot be stored as JSON.
        CursorTrimmed: entries that are needed were trimmed away.
        SessionErased: there is nothing to follow any more.
        Unavailable: the server cannot be reached at the start; later it is waited for.
        BusError: the log could not be read.
    """
    resumed = None
    if after is not None:
        with suppress(LogRolledBack):
            resumed = await _state_at(session, projection, after)
    while True:
        if resumed is None:
            now = await project(session, projection)
            yield now
        else:
            now, resumed = resumed, None
        stored = now.position
        reading = session.subscribe(lanes=projection.lanes, kinds=projection.kinds, after=now.cursor)
        try:
            async with aclosing(reading) as items:
                async for item in items:
                    if not isinstance(item, Notice):
                        now = folded(projection, now, item)
                        yield now
                    elif item.cursor.is_after(now.cursor):
                        now = replace(now, cursor=item.cursor)  # no entry up to there is selected
                    if now.position - stored >= store_every:
                        stored = now.position
                        with suppress(Unavailable):  # the next checkpoint has it too
                            await _store_later(session, projection, now)
        except LogRolledBack:
            continue
        return


async def _state_at(session: Session, projection: Projection[S], cursor: Cursor) -> Projected[S]:
    """Return the projection's state at a cursor.

    It is folded from the checkpoint, or from the start if the checkpoint is missing or later. If the start is later,
    too, return the start state.
    """
    start = await load_stored(session, projection)
    if start is None or start.position > cursor.position:
        start = await start_of(session, projection)
    if start.position > cursor.position:
        return start
    now = await fold(session, projection, start, until=cursor.position)
    return replace(now, cursor=cursor)  # with its incarnation: following after it proves that the log still holds it


async def _store_later(session: Session, projection: Projection[S], now: Projected[S]) -> None:
    """Store the state, unless another process has stored one that is as late."""
    checkpoint = await session.load_projection(projection.name, projection.version)
    expected = checkpoint.position if checkpoint is not None else 0
    if expected < now.position:
        await store(session, projection, now, expected)
