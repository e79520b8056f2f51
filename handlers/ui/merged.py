"""Merge the frames of several sessions into one stream. The id of a frame holds the cursor of each session.

An id is `<session>:<cursor>,<session>:<cursor>,…`: a client that sends it back continues each session after its last
frame, also after the list of sessions has changed.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

import anyio
import anyio.lowlevel

from lanebus.bus.errors import BusError, InvalidCursor
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import Cursor
from lanebus.bus.wire.keys import check_session_id
from lanebus.handlers.ui.budget import Share
from lanebus.handlers.ui.frames import Frame, Outlet
from lanebus.handlers.ui.gate import StreamAccess
from lanebus.handlers.ui.sse import encode_end

__all__ = ("MergedFrames", "PartFrames", "cursors_text", "parse_cursors")

_FORM = "write <session>:<cursor> with commas, such as a:12,b:7, or send the id of an earlier frame"

PartFrames = Callable[[Session, Share, Outlet], AsyncGenerator[Frame]]
"""Returns the frames of one session."""


def cursors_text(cursors: Mapping[str, Cursor]) -> str:
    """Return cursors of sessions as one text."""
    return ",".join(f"{session}:{cursor}" for session, cursor in cursors.items())


def parse_cursors(text: str, most: int) -> dict[str, Cursor]:
    """Return the cursors of a text that `cursors_text` made.

    Args:
        text: the text.
        most: maximum number of sessions.

    Raises:
        InvalidCursor: the text has another form, names a session twice, or names too many.
        InvalidSessionId: a session's id is not allowed.
    """
    found: dict[str, Cursor] = {}
    parts = text.split(",", most) if text else []
    for part in parts:
        session, colon, cursor = part.partition(":")
        if not colon or not part.isascii() or len(parts) > most or session in found:
            raise InvalidCursor(text, _FORM)
        try:
            found[check_session_id(session)] = Cursor.parse(cursor)
        except InvalidCursor:
            raise InvalidCursor(text, _FORM) from None
    return found


class MergedFrames:
    """The frames of several sessions on one stream. Sends one frame at a time."""

    def __init__(self, cursors: Mapping[str, Cursor]) -> None:
        """
        Args:
            cursors: where the client is in the sessions that it has seen before.
        """
        self._cursors = dict(cursors)
        self._lock = anyio.Lock()
        self._frame: Frame | None = None
        self._offered, self._taken = anyio.Event(), anyio.Event()

    def encode(self, frame: Frame) -> bytes:
        """Return the bytes of a frame when it is sent. Its id has the cursors of all frames sent so far."""
        if frame.cursor is None:
            return frame.named_lines + encode_end(None)
        self._cursors[frame.session] = frame.cursor
        return frame.named_lines + encode_end(cursors_text(self._cursors))

    async def run(
        self,
        sessions: Mapping[str, Session],
        part: PartFrames,
        share: Share,
        outlet: Outlet,
        *,
        access: StreamAccess | None = None,
    ) -> AsyncGenerator[Frame]:
        """Yield the frames of all sessions, in the order of each session.

        A session that was erased, or that the client may not read any more, ends with a `failed` frame, and the others
        go on. After any other `failed`, and after `rolledback`, the stream ends: the client reconnects, and continues
        after the id of its last frame.

        Args:
            sessions: the sessions by id.
            part: returns the frames of one session.
            share: the memory of the response.
            outlet: where new frames go, if they can be written at once.
            access: the client's right to the stream; None means that it may read all sessions until the end.
        """
        gate, left = _Outlet(outlet, self._lock), len(sessions)
        over = False

        async def pump(session: Session) -> None:
            nonlocal left, over
            async with share.part() as own, aclosing(part(session, own, gate)) as frames:
                async for frame in frames:
                    event = frame.event
                    await self._offer(frame)
                    del frame
                    is_failed = event == "failed" and not await _is_gone(session, access)
                    over = over or event == "rolledback" or is_failed
            left -= 1
            self._offered.set()

        async with anyio.create_task_group() as tasks:
            for session in sessions.values():
                tasks.start_soon(pump, session)
                await anyio.lowlevel.checkpoint()  # other clients have their turn between the starts
            while left and not over:
                await self._offered.wait()
                self._offered = anyio.Event()
                if (frame := self._frame) is not None:
                    self._frame = None
                    try:
                        yield frame
                    except GeneratorExit:  # the task group would raise it in a group
                        break
                    del frame
                    self._taken.set()
            tasks.cancel_scope.cancel()

    async def _offer(self, frame: Frame) -> None:
        """Hand a frame to `run`, and wait until it was sent."""
        async with self._lock:
            self._frame, self._taken = frame, anyio.Event()
            del frame
            self._offered.set()
            await self._taken.wait()


class _Outlet:
    """The stream's outlet for one session. It is not ready while a frame of any session is on its way."""

    def __init__(self, outlet: Outlet, lock: anyio.Lock) -> None:
        self._outlet, self._lock = outlet, lock

    def is_ready(self) -> bool:
        return not self._lock.locked() and self._outlet.is_ready()

    def write(self, frame: Frame) -> None:
        self._outlet.write(frame)


async def _is_gone(session: Session, access: StreamAccess | None) -> bool:
    """Return whether a session was erased, or the client may not read it any more."""
    right = None if access is None else access.right(session.id)
    if right is not None and not right.is_open:
        return True
    try:
        return (await session.head()).is_erased
    except BusError:
        return False
