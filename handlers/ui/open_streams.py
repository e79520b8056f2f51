"""The open event streams of one server: how many a principal has, the sessions they follow, heartbeats, and their ends.

One task serves all streams, because a task for each costs more memory than the rest of a stream.
"""

import asyncio
import logging
from collections import Counter
from math import ceil
from typing import Protocol

import anyio

from lanebus.bus.error_text import logged
from lanebus.handlers.ui.bounds import UiBounds
from lanebus.handlers.ui.errors import TooManyStreams

__all__ = ("KeptStream", "OpenStreams")

_log = logging.getLogger(__name__)


class KeptStream(Protocol):
    """An open stream."""

    def check(self, now: float) -> None:
        """End the stream if its right has ended. Send a heartbeat if one is due."""
        ...

    def end(self) -> None:
        """Send the last frame, and end."""
        ...


class OpenStreams:
    """The open streams of one application."""

    def __init__(self, closing: anyio.Event, bounds: UiBounds) -> None:
        """
        Args:
            closing: event that ends all streams.
            bounds: periods and limits.
        """
        self._closing, self._most, self._most_followed = closing, bounds.access.streams, bounds.access.followed
        self._period = min(bounds.access.refresh_seconds, bounds.heartbeat_seconds)
        self._retry_after = ceil(bounds.heartbeat_seconds)  # until then, the server notices most clients that are gone
        self._counts, self._followed = Counter[str](), Counter[str]()
        self._open: dict[KeptStream, None] = {}
        self._keeper: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    def check(self, principal: str, followed: int) -> None:
        """Check that a principal may open one more stream.

        Args:
            principal: names the principal and its token.
            followed: number of sessions that the stream would follow.

        Raises:
            TooManyStreams: the principal has `AccessBounds.streams` open streams, or they would follow more than
                `AccessBounds.followed` sessions.
        """
        if self._counts[principal] >= self._most:
            raise TooManyStreams(self._most, self._retry_after)
        if self._followed[principal] + followed > self._most_followed:
            raise TooManyStreams(self._most_followed, self._retry_after, is_of_sessions=True)

    def count(self, principal: str, followed: int) -> None:
        """Count a stream of a principal, until `uncount`. Takes and raises what `check` does."""
        self.check(principal, followed)
        self._counts[principal] += 1
        self._followed[principal] += followed

    def uncount(self, principal: str, followed: int) -> None:
        """Count a stream of a principal no more."""
        for counts, number in ((self._counts, 1), (self._followed, followed)):
            counts[principal] -= number
            if not counts[principal]:
                del counts[principal]

    def keep(self, stream: KeptStream) -> None:
        """Check a stream again and again, until `forget`."""
        # No context managers: for each stream, they would cost more memory than these tables.
        self._open[stream] = None
        if self._closing.is_set():
            stream.end()
        elif self._keeper is None:
            self._keeper = asyncio.create_task(self._keep(), name="lanebus event streams")

    def forget(self, stream: KeptStream) -> None:
        """Check a stream no more."""
        del self._open[stream]
        if not self._open and self._keeper is not None:
            self._keeper.cancel()
            self._keeper = None

    async def _keep(self) -> None:
        while not self._closing.is_set():
            with anyio.move_on_after(self._period):
                await self._closing.wait()
                break
            now = anyio.current_time()
            for stream in tuple(self._open):
                try:
                    stream.check(now)
                except Exception as error:  # noqa: BLE001  # the other streams go on
                    _log.error("an event stream ends, because it could not be checked", exc_info=logged(error))
                    stream.end()
        for stream in tuple(self._open):
            stream.end()
