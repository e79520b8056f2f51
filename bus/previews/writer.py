"""Publish live deltas, and remove the live deltas of ended messages."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import anyio

from lanebus.bus.errors import DecodeError, MessageTooLarge, PreviewFull, Unavailable
from lanebus.bus.previews.deltas import show_deltas, trim_deltas
from lanebus.bus.servers.backoff import Backoff
from lanebus.bus.wire.codec import MESSAGE_LIMIT_BYTES, encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanebus.bus.log.log import Log
    from lanebus.bus.messages.delta import Delta
    from lanebus.bus.previews.deltas import Previewed
    from lanebus.bus.previews.previews import Previews

__all__ = ("PreviewWriter",)


class PreviewWriter:
    """Publishes the live deltas that one process sends, for any number of sessions."""

    def __init__(self, log: Log, producer: str, previews: Previews) -> None:
        self._log, self._producer, self._previews, self._bounds = log, producer, previews, previews.bounds
        # All sessions share one counter, because a number only has to be higher than the previous number.
        self._numbers = count(1)
        self._shown: dict[str, int] = {}
        """number of the last answered call by session, for the sessions used last"""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def preview(self, session: str, deltas: Sequence[Delta], *, epoch: int | None, seconds: float) -> None:
        """Append deltas after the deltas of earlier calls. They are appended once, even if they have to be sent again.

        Args:
            session: id of the session.
            deltas: the deltas, in order. If there are none, the call does nothing.
            epoch: the epoch that the session's lease must have; None means that no lease is needed.
            seconds: time limit of the call.

        Raises:
            DecodeError: a delta is a snapshot; nothing was appended.
            MessageTooLarge: a delta is too large; nothing was appended.
            Fenced: the lease of `epoch` is lost; nothing was appended.
            SessionClosed: the session is closed; nothing was appended.
            PreviewFull: the session's previews are at their limit; nothing was appended.
            LogRolledBack: the server has lost this process's previous deltas; nothing was appended. The next call may
                succeed.
            Unavailable: the server did not answer within `seconds`; the deltas may have been appended.
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
            what = f"preview in session {session!r}: no answer within {seconds:g} s"
            raise Unavailable(f"{what}; the deltas may have been shown", "continue with the next ones")
        step = self._bounds.trim_bytes
        if shown.bytes_before // step < shown.bytes_after // step:
            await self._trim_if_possible(session)

    async def _show(self, session: str, bodies: Sequence[bytes], *, epoch: int | None, is_end: bool) -> Previewed:
        number, may_be_full = next(self._numbers), True
        backoff = Backoff(self._bounds.first_pause_seconds, self._bounds.longest_pause_seconds)
        previous = self._shown.pop(session, 0)
        while True:
            try:
                shown = await show_deltas(
                    self._log, session, self._producer, number, bodies, epoch=epoch, is_end=is_end, shown=previous
                )
                self._shown[session] = number
                if len(self._shown) > self._bounds.sessions:
                    del self._shown[next(iter(self._shown))]
                return shown
            except PreviewFull:
                if not may_be_full:
                    raise
                may_be_full = False
                await self._trim_if_possible(session)
            except Unavailable as error:
                if not error.is_transient:
                    raise
                await backoff.wait()

    async def drop_ended(self, session: str) -> None:
        """Remove the live deltas of ended messages.

        A delta of kind "cut" is kept for `LiveBounds.cut_seconds`, because only this delta may show that its message
        has ended.

        Raises:
            Unavailable: the server did not answer.
        """
        await trim_deltas(self._log, session, await self._previews.ended_ids(session))

    async def _trim_if_possible(self, session: str) -> None:
        try:
            await self.drop_ended(session)
        except Unavailable:  # the next preview tries again
            return


def _body(delta: Delta) -> bytes:
    if delta.is_snapshot:
        raise DecodeError("isSnapshot", "a publisher sends pieces, and only followers get snapshots: leave it out")
    body = encode(delta)
    if len(body) > MESSAGE_LIMIT_BYTES:
        raise MessageTooLarge(len(body), MESSAGE_LIMIT_BYTES)
    return body
