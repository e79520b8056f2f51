"""Follow a projection: yield its state as the entries of one session arrive."""

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import TypeVar

from lanebus.bus.errors import LogRolledBack, Unavailable, require_count
from lanebus.bus.iteration import resumable
from lanebus.bus.servers.backoff import Backoff
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
    require_projection,
    start_of,
    store_newer,
)

__all__ = ("STORE_EVERY", "follow")

S = TypeVar("S")

STORE_EVERY = 1000
"""Default number of entries that `follow` reads between two checkpoints."""


@resumable
async def follow(
    session: Session, projection: Projection[S], *, after: Cursor | str | None = None, store_every: int = STORE_EVERY
) -> AsyncGenerator[Projected[S], None]:
    """Yield the present state, then the state after each new entry. The iterator ends only if it fails or is closed.

    A slow caller gets the state after every entry. Memory is bounded: one subscription buffers the next entries.

    If the log is rolled back, the entries that remain are folded from the beginning. The resulting state is yielded,
    and its position may be lower than the position of the previous state.

    The first state is stored, and then one state every `store_every` entries. Cancellation loses no entries: the next
    call continues from the last stored state.

    Args:
        session: the session to follow.
        projection: the projection to fold.
        after: `Projected.cursor` of the last state that the caller has seen, or its text. Only states after this cursor
            are yielded. None yields the present state first.
        store_every: number of entries between two checkpoints; 1 or more.

    Raises:
        InvalidProjection: the state cannot be stored as JSON.
        CursorTrimmed: entries that the fold needs were trimmed away.
        SessionErased: the session was erased.
        Unavailable: the server cannot be reached at the start. Later, the iterator waits for the server.
        BusError: the log could not be read.
    """
    require_projection(session, projection)
    require_count("store_every", store_every, least=1)
    resumed = None
    if after is not None:
        cursor = Cursor.of(after)
        with suppress(LogRolledBack):
            resumed = await _state_at(session, projection, cursor)
    has_started, backoff = False, Backoff(0.01, 0.5)
    while True:
        try:
            if resumed is None:
                now = await project(session, projection)
                has_started = True
                yield now
            else:
                now, resumed = resumed, None
            stored = now.position
            reading = session.subscribe(lanes=projection.lanes, kinds=projection.kinds, after=now.cursor)
            async with aclosing(reading) as items:
                async for item in items:
                    has_started = True
                    backoff.reset()
                    if not isinstance(item, Notice):
                        now = folded(projection, now, item)
                        yield now
                    elif item.cursor.is_after(now.cursor):
                        now = replace(now, cursor=item.cursor)  # no entry up to this cursor is selected
                    if now.position - stored >= store_every:
                        stored = now.position
                        with suppress(Unavailable):  # the next checkpoint includes these entries too
                            await store_newer(session, projection, now)
        except LogRolledBack:
            continue
        except Unavailable as error:  # the server went away after a rollback, before the log was read again
            if not (has_started and error.is_transient):
                raise
            await backoff.wait()
            continue
        return


async def _state_at(session: Session, projection: Projection[S], cursor: Cursor) -> Projected[S]:
    """Return the projection's state at a cursor.

    The state is folded from the checkpoint, or from the start if the checkpoint is missing or after the cursor. If the
    start is after the cursor too, return the start state.
    """
    start = await load_stored(session, projection)
    if start is None or start.position > cursor.position:
        start = await start_of(session, projection)
    if start.position > cursor.position:
        return start
    now = await fold(session, projection, start, until=cursor.position)
    # `cursor` names its incarnation. Reading after it fails if the log no longer holds this cursor.
    return replace(now, cursor=cursor)
