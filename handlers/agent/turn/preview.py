"""The live preview of an answer: joins small pieces into deltas and sends the deltas from a separate task."""

import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from io import StringIO
from typing import NamedTuple, Protocol

import anyio

from lanebus.bus.errors import BusError
from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.whole_text import split_half, whole_text
from lanebus.handlers.agent.bounds import DEFAULT_RUN_BOUNDS, PreviewBounds
from lanebus.handlers.providers.common.answer import Piece

__all__ = ("Preview", "open_preview")

_log = logging.getLogger(__name__)


class _Previewing(Protocol):
    async def preview(self, *deltas: Delta, epoch: int | None = None, seconds: float = ...) -> None: ...


class _Run(NamedTuple):
    """Consecutive pieces of one block."""

    first: Piece
    text: StringIO

    def is_continued_by(self, piece: Piece) -> bool:
        return (piece.kind, piece.block) == (self.first.kind, self.first.block)


class Preview:
    """The preview of one message. At any time, it shows the beginning of the message without gaps.

    `add` never blocks: pieces that cannot be sent yet are joined with the next pieces, so the buffer is no larger than
    the message. If a piece cannot be sent at all, the preview ends before this piece; the whole message follows.
    """

    def __init__(
        self,
        session: _Previewing,
        message_id: str,
        turn_id: TurnId | None,
        *,
        epoch: int | None = None,
        bounds: PreviewBounds = DEFAULT_RUN_BOUNDS.preview,
        begin: Callable[["Preview"], None] | None = None,
    ) -> None:
        """
        Args:
            epoch: the epoch of the lease. Once the lease is lost, the server refuses deltas.
            begin: called at the first piece to start `run`, so that a message without pieces needs no task.
        """
        self._begin, self._bounds = begin, bounds
        self._session, self._message_id, self._turn_id, self._epoch = session, message_id, turn_id, epoch
        self._runs: list[_Run] = []
        self._halves: dict[int, str] = {}
        """block → the first half of a surrogate pair that ended the block's last piece"""
        self._characters, self._unsent_characters = 0, 0
        self._added, self._shown = 0, 0
        """number of pieces that were added, and of pieces that were sent or dropped"""
        self._is_over = self._is_ended = False
        self._some, self._hurry, self._moved = anyio.Event(), anyio.Event(), anyio.Event()
        self._sending = anyio.CancelScope(shield=True)

    def add(self, piece: Piece) -> None:
        """Show a piece with the next delta. Half a character at its end is shown with the block's next piece."""
        text, half = split_half(self._halves.pop(piece.block, "") + piece.text)
        if half:
            self._halves[piece.block] = half
        self._characters += len(text)
        if self._is_over or self._characters > self._bounds.shown_characters:
            self._is_over = True
            return
        if not (self._runs and self._runs[-1].is_continued_by(piece)):
            self._runs.append(_Run(piece, StringIO()))
        self._runs[-1].text.write(whole_text(text))
        self._added += 1
        if self._begin is not None:
            self._begin(self)
            self._begin = None
        self._unsent_characters += len(text)
        self._some.set()
        if self._unsent_characters >= self._bounds.flush_characters or piece.tool_name is not None:
            self._hurry.set()

    async def flush(self) -> None:
        """Wait up to `PreviewBounds.end_seconds` until all pieces so far are sent or dropped. `run` must be running."""
        goal = self._added
        if self._shown >= goal:
            return
        with anyio.move_on_after(self._bounds.end_seconds):
            while self._shown < goal:
                self._hurry.set()
                await self._moved.wait()

    async def cut(self, reason: str) -> None:
        """End the preview of a message that is not published. Errors are only logged."""
        delta = Delta(kind="cut", message_id=self._message_id, turn_id=self._turn_id, delta=reason)
        try:
            await self._session.preview(delta, epoch=self._epoch, seconds=self._bounds.end_seconds)
        except BusError as error:
            _log.debug("the preview of %s has no end: %s", self._message_id, error)

    async def run(self) -> None:
        """Send pieces until `end` is called.

        While pieces are in flight, `run` is shielded from cancellation. Otherwise pieces could arrive after the end of
        the message, and the message would count as open again.
        """
        with self._sending:
            while not self._is_ended:
                await self._some.wait()
                with anyio.move_on_after(self._bounds.pause_seconds):
                    await self._hurry.wait()
                await self._send()

    def end(self) -> None:
        """Send no more pieces, and make `run` end. Pieces in flight have `PreviewBounds.end_seconds` to arrive."""
        self._is_over = self._is_ended = True
        self._runs.clear()
        self._some.set()
        self._hurry.set()
        self._sending.deadline = anyio.current_time() + self._bounds.end_seconds

    async def _send(self) -> None:
        shown, runs, self._runs, self._unsent_characters = self._added, self._runs, [], 0
        self._some, self._hurry = anyio.Event(), anyio.Event()
        if not runs:
            return
        try:
            await self._session.preview(*self._deltas(runs), epoch=self._epoch, seconds=self._bounds.answer_seconds)
        except BusError as error:
            _log.debug("the preview of %s ends here: %s", self._message_id, error)
            self._is_over = True
            self._runs, shown = [], self._added
        self._shown = shown
        self._moved.set()
        self._moved = anyio.Event()

    def _deltas(self, runs: Sequence[_Run]) -> Iterator[Delta]:
        size = self._bounds.delta_characters
        for first, buffer in runs:
            text = buffer.getvalue()
            for start in range(0, max(len(text), 1), size):
                yield Delta(
                    kind=first.kind,
                    message_id=self._message_id,
                    turn_id=self._turn_id,
                    delta=text[start : start + size],
                    block=first.block,
                    tool_name=whole_text(first.tool_name) if first.tool_name and start == 0 else None,
                )


@asynccontextmanager
async def open_preview(
    session: _Previewing,
    message_id: str,
    turn_id: TurnId,
    *,
    epoch: int | None = None,
    bounds: PreviewBounds = DEFAULT_RUN_BOUNDS.preview,
) -> AsyncGenerator[Preview, None]:
    """Open a preview for the length of the block. At the end of the block, all pieces have been sent or dropped.

    The block must not raise: its errors would be wrapped in an exception group.
    """
    async with anyio.create_task_group() as tasks:

        def begin(preview: Preview) -> None:
            tasks.start_soon(preview.run)

        preview = Preview(session, message_id, turn_id, epoch=epoch, bounds=bounds, begin=begin)
        try:
            yield preview
            # No piece may be sent after the whole message.
            await preview.flush()
        finally:
            preview.end()
