"""Live deltas while a model speaks: many small pieces, put together and sent by a task of their own."""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import anyio

from bus.errors import BusError
from bus.messages.delta import Delta
from bus.messages.turn import TurnId
from handlers.providers.answer import Piece

__all__ = ("Preview", "open_preview")

PAUSE_SECONDS = 0.05
"""pieces that come within this time go out together"""

FLUSH_CHARACTERS = 2_000
"""so many characters do not wait for the pause"""

END_SECONDS = 2.0
"""how long the end of a message waits for the last pieces to be sent"""

_log = logging.getLogger(__name__)


class _Previewing(Protocol):
    async def preview(self, *deltas: Delta) -> None: ...


class Preview:
    """The pieces of one message. `add` never waits: what cannot be sent yet is put together with what follows, so the
    buffer is bounded by the message. What cannot be sent at all is left out, as the whole message follows."""

    def __init__(self, session: _Previewing, message_id: str, turn_id: TurnId) -> None:
        self._session, self._message_id, self._turn_id = session, message_id, turn_id
        self._pieces: list[Piece] = []
        self._characters = 0
        self._some, self._many = anyio.Event(), anyio.Event()
        self._sending = anyio.Lock()

    def add(self, piece: Piece) -> None:
        """Show a piece soon."""
        self._pieces.append(piece)
        self._characters += len(piece.text)
        self._some.set()
        if self._characters >= FLUSH_CHARACTERS:
            self._many.set()

    async def flush(self) -> None:
        """Send what is there, behind what is being sent. Failures are logged and go no further."""
        async with self._sending:
            pieces, self._pieces, self._characters = self._pieces, [], 0
            self._some, self._many = anyio.Event(), anyio.Event()
            if pieces:
                await self._send([self._delta(piece) for piece in _joined(pieces)])

    async def cut(self, reason: str) -> None:
        """End the preview without a whole message."""
        async with self._sending:
            await self._send([Delta(kind="cut", message_id=self._message_id, turn_id=self._turn_id, delta=reason)])

    async def run(self) -> None:
        """Send what comes, for as long as the message is spoken."""
        while True:
            await self._some.wait()
            with anyio.move_on_after(PAUSE_SECONDS):
                await self._many.wait()
            await self.flush()

    async def _send(self, deltas: Sequence[Delta]) -> None:
        try:
            await self._session.preview(*deltas)
        except BusError as error:
            _log.debug("preview of %s lacks pieces: %s", self._message_id, error)

    def _delta(self, piece: Piece) -> Delta:
        return Delta(
            kind=piece.kind,
            message_id=self._message_id,
            turn_id=self._turn_id,
            delta=piece.text,
            block=piece.block,
            tool_name=piece.tool_name,
        )


@asynccontextmanager
async def open_preview(session: _Previewing, message_id: str, turn_id: TurnId) -> AsyncGenerator[Preview, None]:
    """A preview that sends for the length of the block; at its end everything is sent or given up.

    The block must not raise: errors would come out in a group.
    """
    preview = Preview(session, message_id, turn_id)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(preview.run)
        yield preview
        # No piece may be sent once the whole message is there, as it would stand behind it.
        with anyio.move_on_after(END_SECONDS):
            await preview.flush()
        tasks.cancel_scope.cancel()


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Neighbours of the same block as one piece."""
    joined: list[Piece] = []
    texts: list[list[str]] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if last is not None and (last.kind, last.block) == (piece.kind, piece.block):
            texts[-1].append(piece.text)
        else:
            joined.append(piece)
            texts.append([piece.text])
    return [
        Piece(piece.kind, "".join(parts), piece.block, piece.tool_name)
        for piece, parts in zip(joined, texts, strict=True)
    ]
