"""Feed a session's entries and live deltas to an encoder of another protocol, until its stream is complete."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

from lanebus.bus.error_text import without_secrets
from lanebus.bus.errors import BusError, CursorTrimmed, LogRolledBack
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import Cursor, Envelope
from lanebus.bus.wire.notice import Notice
from lanebus.handlers.ui.bounds import DEFAULT_UI_BOUNDS, UiBounds
from lanebus.handlers.ui.budget import Share
from lanebus.handlers.ui.gate import SessionRight
from lanebus.handlers.ui.history import History
from lanebus.handlers.ui.replies import AccessDenied

__all__ = ("RunFrames", "run_frames")


class Correction(Protocol):
    """Makes frames that replace what a client shows, from the stored entries."""

    def add(self, envelope: Envelope, /) -> bytes:
        """Read an entry. Return b"". The last entry may be repeated."""
        ...

    def caught_up(self) -> bytes:
        """Return the frames."""
        ...


class RunFrames(Protocol):
    """Encodes a run as the frames of a stream."""

    @property
    def is_done(self) -> bool:
        """Whether all frames were returned."""
        ...

    def add(self, envelope: Envelope, /) -> bytes:
        """Return the frames of an entry or a live delta; b"" if there are none. The last entry may be repeated."""
        ...

    def caught_up(self, position: int, /) -> bytes:
        """Return frames that follow when all stored entries and live deltas so far were added; b"" if there are none.

        It may be called again, if the reader was too slow and caught up again.
        """
        ...

    def correction(self) -> "Correction | None":
        """Return what the stored entries are to be read into again; None if that is not necessary."""
        ...

    def fail(self, text: str, /) -> bytes:
        """Return the last frames of a stream that cannot go on. People see the text."""
        ...


async def run_frames(
    session: Session,
    first: int,
    share: Share,
    history: History,
    frames: RunFrames,
    *,
    right: SessionRight | None = None,
    bounds: UiBounds = DEFAULT_UI_BOUNDS,
) -> AsyncGenerator[bytes]:
    """Yield the frames of a run, from both lanes and the live deltas.

    Args:
        session: the session.
        first: position of the first entry to read.
        share: holds the memory of the frames that were read and not sent.
        history: reads the stored entries.
        frames: encodes the entries.
        right: the client's right to the session, as for `session_frames`.
        bounds: sizes.
    """
    after = Cursor(first - 1)

    async def corrected(until: int) -> bytes:
        correction = frames.correction()
        if correction is None:
            return b""
        stored = history.pieces(session, Cursor(first - 1), until, share, correction.add, right=right)
        async with aclosing(stored) as pieces:
            async for _ in pieces:
                pass
        frame = correction.caught_up()
        if len(frame) > bounds.small_bytes:
            await share.take(len(frame))
        return frame

    try:
        while not frames.is_done:
            async with aclosing(history.pieces(session, after, None, share, frames.add, right=right)) as pieces:
                async for rendered, cursor in pieces:
                    rendered.reverse()
                    while rendered:
                        if frame := rendered.pop():
                            yield frame
                    after = cursor
                    if frames.is_done:
                        return
            share.keep(0)
            if frame := await corrected(after.position):
                yield frame
                share.keep(0)
            items = session.subscribe(after=after, live=True)
            async with aclosing(items if right is None else right.guarded(items)) as found:
                async for item in found:
                    after = item.cursor
                    if isinstance(item, Notice) and item.kind == "fellBehind":
                        break  # read the stored entries again, in small pieces
                    frame = _frame_of(item, frames)
                    if len(frame) > bounds.small_bytes:
                        await share.take(len(frame))
                    if frame:
                        yield frame
                    del frame
                    share.keep(0)
                    if frame := await corrected(after.position):
                        yield frame
                        share.keep(0)
                    if frames.is_done:
                        return
                else:
                    return
    except AccessDenied:
        yield frames.fail("The session was handed over, or the rules have changed: this token does not allow it.")
    except CursorTrimmed:
        yield frames.fail("The beginning of this answer is no longer kept.")
    except LogRolledBack:
        yield frames.fail("The server has lost its last entries: load the conversation again.")
    except BusError as error:
        yield frames.fail(without_secrets(str(error)))


def _frame_of(item: Envelope | Notice, frames: RunFrames) -> bytes:
    if isinstance(item, Envelope):
        return frames.add(item)
    if item.kind == "caughtUp":
        return frames.caught_up(item.cursor.position)
    if item.kind == "closed":  # no worker can append the rest
        return frames.fail("The session was closed before this answer was complete.")
    return b""
