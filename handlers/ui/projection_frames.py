"""The state of a projection as JSON, once or as the frames of an event stream."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import anyio

from lanebus.bus.error_text import without_secrets
from lanebus.bus.errors import BusError, CursorTrimmed, LogRolledBack, NoSuchPosition
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import Cursor
from lanebus.bus.wire.notice import Notice
from lanebus.handlers.json_text import spliced
from lanebus.handlers.projections.projection import Projected, Projection, fold, load_stored, start_of
from lanebus.handlers.ui.budget import Share
from lanebus.handlers.ui.frames import Frame, failed_frame
from lanebus.handlers.ui.gate import SessionRight
from lanebus.handlers.ui.replies import AccessDenied

__all__ = ("projected_json", "projection_frames", "state_at")


def projected_json(projection: Projection[object], now: Projected[object]) -> str:
    """Return `{"name", "version", "position", "cursor", "countedFrom", "unreadable", "state"}`.

    Raises:
        InvalidProjection: the state cannot be written as JSON.
    """
    place = {
        "name": projection.name,
        "version": projection.version,
        "position": now.position,
        "cursor": str(now.cursor),
        "countedFrom": now.counted_from,
        "unreadable": now.unreadable,
    }
    return spliced(place, "state", projection.dump(now.state).decode())


async def state_at(session: Session, projection: Projection[object], position: int) -> Projected[object]:
    """Return a projection's state as of a past position. It is folded from the stored state, if that is older.

    Raises:
        NoSuchPosition: the session does not have the position.
        BusError: the log could not be read.
    """
    last = (await session.head()).position
    if position > last:
        raise NoSuchPosition(session.id, position, last)
    start = await load_stored(session, projection)
    if start is None or start.position > position:
        start = await start_of(session, projection)
    return start if start.position > position else await fold(session, projection, start, until=position)


async def projection_frames(
    look: Callable[[], Awaitable[Projected[object]]],
    session: Session,
    projection: Projection[object],
    after: Cursor | None,
    share: Share,
    *,
    pause_seconds: float,
    small_bytes: int,
    wait_seconds: float,
    right: SessionRight | None = None,
) -> AsyncGenerator[Frame]:
    """Yield the state of a projection, and again after changes. The id of a frame is its cursor.

    Changes within a pause make one frame, so a client sees the newest state and perhaps not each one before it.

    Args:
        look: returns the present state.
        session: the session.
        projection: the projection.
        after: cursor of the last state that the client has; a state of the same cursor is not sent again.
        share: holds the memory of a frame.
        pause_seconds: shortest time between two states.
        small_bytes: size up to which a frame takes no memory of the share.
        wait_seconds: longest wait for the memory of a frame.
        right: the client's right to the session, as for `session_frames`.
    """
    sent = after
    while True:
        try:
            now = await look()
            if now.cursor != sent:
                text = projected_json(projection, now)
                if (size := len(text)) > small_bytes and not share.take_nowait(size):
                    del text
                    await share.take(size, seconds=wait_seconds)
                    text = projected_json(projection, now)
                if right is not None:
                    await right.confirm()
                yield Frame(session.id, "state", text, now.cursor)
                del text
                share.keep(0)
                sent = now.cursor
            await _wait_changed(session, projection, now.cursor, right)
        except (LogRolledBack, CursorTrimmed):
            sent = None  # the next state is folded from what is left of the log
        except AccessDenied as refused:
            yield failed_frame(session.id, refused.status_code, refused.error, refused.message)
            return
        except BusError as error:
            failed = {"session": session.id, "message": without_secrets(str(error))}
            yield Frame(session.id, "failed", json.dumps(failed), None)
            return
        await anyio.sleep(pause_seconds)


async def _wait_changed(
    session: Session, projection: Projection[object], after: Cursor, right: SessionRight | None
) -> None:
    """Wait until the session has another entry that the projection reads."""
    items = session.subscribe(lanes=projection.lanes, kinds=projection.kinds, after=after)
    async with aclosing(items if right is None else right.guarded(items)) as found:
        async for item in found:
            if not isinstance(item, Notice) and not item.delta:
                return
