"""Feed a session's entries and live deltas to an encoder of another protocol, until its stream is complete."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

from lanebus.bus.error_text import without_secrets
from lanebus.bus.errors import BusError, CursorTrimmed, LogRolledBack
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import Cursor, DecodeFailure, Envelope
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

    @property
    def held(self) -> int:
        """Bytes of frames that are kept once the stored entries were read."""
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
    after, seconds = Cursor(first - 1), bounds.stream_wait_seconds

    async def hold(state: Share) -> Share:
        """Hold the memory of a read, of the conversation that the encoder makes of it, and of its frames."""
        needed = history.needed(await session.head())
        await state.take(needed + 3 * min(needed, bounds.run_bytes), seconds=seconds)
        return state.paid()

    async def corrected(until: int, state: Share) -> bytes:
        correction = frames.correction()
        if correction is None:
            return b""
        paid = await hold(state)
        stored = history.pieces(session, Cursor(first - 1), until, paid, correction.add, right=right)
        async with aclosing(stored) as pieces:
            async for _ in pieces:
                pass
        return correction.caught_up()

    async with share.part() as state:
        try:
            while not frames.is_done:
                # All at once: a stream that waits for more while it holds some could wait for another such stream.
                paid = await hold(state)
                async with aclosing(history.pieces(session, after, None, paid, frames.add, right=right)) as pieces:
                    async for rendered, cursor in pieces:
                        rendered.reverse()
                        while rendered:
                            if frame := rendered.pop():
                                yield frame
                        after = cursor
                        if frames.is_done:
                            return
                if frame := await corrected(after.position, state):
                    yield frame
                items = session.subscribe(after=after, live=True)
                async with aclosing(items if right is None else right.guarded(items)) as found:
                    async for item in found:
                        after = item.cursor
                        if isinstance(item, Notice) and item.kind == "fellBehind":
                            break  # read the stored entries again, in small pieces
                        # Before the frame is made, as it cannot be made again.
                        if (size := _size_of(item)) > bounds.small_bytes:
                            await share.take(3 * size, seconds=seconds)
                        if frame := _frame_of(item, frames):
                            yield frame
                        del frame
                        share.keep(0)
                        if frame := await corrected(after.position, state):
                            yield frame
                        if frames.is_done:
                            return
                        if isinstance(item, Envelope) or item.kind == "caughtUp":
                            state.keep(frames.held)
                    else:
                        return
        except (AccessDenied, BusError) as error:
            yield frames.fail(_reason(error))


def _reason(error: AccessDenied | BusError) -> str:
    """Return what people read about the error that ends a stream."""
    if isinstance(error, AccessDenied):
        return "The session was handed over, or the rules have changed: this token does not allow it."
    if isinstance(error, LogRolledBack):
        return "The server has lost its last entries: load the conversation again."
    if isinstance(error, CursorTrimmed):
        return "The beginning of this answer is no longer kept."
    return without_secrets(str(error))


def _size_of(item: Envelope | Notice) -> int:
    """Return the size of an entry, as JSON. Live deltas and notices count nothing: they are small."""
    if not isinstance(item, Envelope) or item.delta:
        return 0
    message = item.message
    return len(message.raw if isinstance(message, DecodeFailure) else message.to_json())


def _frame_of(item: Envelope | Notice, frames: RunFrames) -> bytes:
    if isinstance(item, Envelope):
        return frames.add(item)
    if item.kind == "caughtUp":
        return frames.caught_up(item.cursor.position)
    if item.kind == "closed":  # no worker can append the rest
        return frames.fail("The session was closed before this answer was complete.")
    return b""
