"""Feed a session's entries and live deltas to an encoder of another protocol, until its stream is complete."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

from lanebus.bus.error_text import without_secrets
from lanebus.bus.errors import BusError, CursorTrimmed, LogRolledBack
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import Cursor, Envelope
from lanebus.handlers.ui.bounds import DEFAULT_UI_BOUNDS, UiBounds
from lanebus.handlers.ui.budget import Share
from lanebus.handlers.ui.history import History

__all__ = ("RunFrames", "run_frames")


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
        """Return the last frames if the run is over as of the last stored entry; otherwise b""."""
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
    bounds: UiBounds = DEFAULT_UI_BOUNDS,
) -> AsyncGenerator[bytes]:
    """Yield the frames of a run, from both lanes and the live deltas.

    Args:
        session: the session.
        first: position of the first entry to read.
        share: holds the memory of the frames that were read and not sent.
        history: reads the stored entries.
        frames: encodes the entries.
        bounds: sizes.
    """
    after = Cursor(first - 1)
    try:
        while not frames.is_done:
            async with aclosing(history.pieces(session, after, None, share, frames.add)) as pieces:
                async for rendered, cursor in pieces:
                    rendered.reverse()
                    while rendered:
                        if frame := rendered.pop():
                            yield frame
                    after = cursor
                    if frames.is_done:
                        return
            share.keep(0)
            if frame := frames.caught_up(after.position):
                yield frame
                return
            async with aclosing(session.subscribe(after=after, live=True)) as items:
                async for item in items:
                    after = item.cursor
                    if not isinstance(item, Envelope):
                        if item.kind == "fellBehind":
                            break  # read the stored entries again, in small pieces
                        continue
                    frame = frames.add(item)
                    if len(frame) > bounds.small_bytes:
                        await share.take(len(frame))
                    if frame:
                        yield frame
                    del frame
                    share.keep(0)
                    if frames.is_done:
                        return
                else:
                    return
    except CursorTrimmed:
        yield frames.fail("The beginning of this answer is no longer kept.")
    except LogRolledBack:
        yield frames.fail("The server has lost its last entries: load the conversation again.")
    except BusError as error:
        yield frames.fail(without_secrets(str(error)))
