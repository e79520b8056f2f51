"""Publishing of live deltas, and removal of those that nobody needs any more."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import anyio

from lanebus.bus.errors import DecodeError, MessageTooLarge, PreviewFull, Refused, Unavailable
from lanebus.bus.previews.deltas import show_deltas, trim_deltas
from lanebus.bus.publishing.limits import MESSAGE_LIMIT_BYTES
from lanebus.bus.servers.backoff import Backoff
from lanebus.bus.wire.codec import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanebus.bus.log.log import Log
    from lanebus.bus.messages.delta import Delta
    from lanebus.bus.previews.deltas import Previewed
    from lanebus.bus.previews.previews import Previews

__all__ = ("PreviewWriter",)


class PreviewWriter:
    """Publishes the live deltas of one process, of all sessions."""

    def __init__(self, log: Log, producer: str, previews: Previews) -> None:
        self._log, self._producer, self._previews, self._bounds = log, producer, previews, previews.bounds
        # One count for all sessions: a number only has to be higher than the previous one.
        self._numbers = count(1)
        self._shown: dict[str, int] = {}
        """the number of the last call that was answered, of the sessions that were spoken in last"""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def preview(self, session: str, deltas: Sequence[Delta], *, epoch: int | None, seconds: float) -> None:
        """Append pieces after those of earlier calls; once, also if an answer is lost and they are sent again.

        Raises:
            DecodeError, MessageTooLarge: a delta cannot be shown; nothing was.
            Fenced, SessionClosed, PreviewFull: refused; nothing was shown.
            LogRolledBack: the server has lost the previous preview; nothing was shown, and the next call may be.
            Unavailable: no answer within `seconds`; it may have been shown.
        """
        bodies = [_body(delta) for delta in deltas]
        if not bodies:
            return
        is_end = all(delta.kind == "cut" for delta in deltas)
        shown: Previewed | None = None
        with anyio.move_on_after(seconds):
            async with self._turns.setdefault(session, asyncio.Lock()):
                shown = await self._show(session, bodies, epoch=epoch, is_end=is_end)
        if shown is None:
            raise Unavailable(f"preview in session {session!r}: no answer within {seconds:g} s")
        step = self._bounds.trim_bytes
        if shown.bytes_before // step < shown.bytes_after // step:
            await self._trim_if_possible(session)

    async def _show(self, session: str, bodies: Sequence[bytes], *, epoch: int | None, is_end: bool) -> Previewed:
        number, may_be_full = next(self._numbers), True
        backoff = Backoff(self._bounds.first_pause, self._bounds.longest_pause)
        before = self._shown.pop(session, 0)
        while True:
            try:
                shown = await show_deltas(
                    self._log, session, self._producer, number, bodies, epoch=epoch, is_end=is_end, shown=before
                )
                self._shown[session] = number
                if len(self._shown) > self._bounds.spoken:
                    del self._shown[next(iter(self._shown))]
                return shown
            except PreviewFull:
                if not may_be_full:
                    raise
                may_be_full = False
                await self._trim_if_possible(session)
            except Unavailable as error:
                if isinstance(error, Refused) and not error.is_transient:
                    raise
                await backoff.wait()

    async def drop_ended(self, session: str) -> None:
        """Remove the live deltas of messages that have ended. Cuts stay a while, as nothing else may tell of the end.

        Raises:
            Unavailable: the server cannot be reached.
        """
        await trim_deltas(self._log, session, await self._previews.ended_ids(session))

    async def _trim_if_possible(self, session: str) -> None:
        try:
            await self.drop_ended(session)
        except Unavailable:  # the next preview tries again
            return


def _body(delta: Delta) -> bytes:
    if delta.is_snapshot:
        raise DecodeError("isSnapshot", "is for those who follow; a publisher sends pieces")
    body = encode(delta)
    if len(body) > MESSAGE_LIMIT_BYTES:
        raise MessageTooLarge(len(body), MESSAGE_LIMIT_BYTES)
    return body
