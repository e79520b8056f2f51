"""A reader that follows a session and keeps what it received, and a count that other tasks wait for."""

import asyncio
from collections.abc import Collection
from contextlib import aclosing

import anyio

from lanebus import Cursor, Envelope, Lane, Session, Unavailable


class Follower:
    """Follows from a cursor in its own task. Create it within a running event loop."""

    def __init__(self, session: Session, lanes: Collection[Lane], after: Cursor) -> None:
        self.lanes, self.after = lanes, after
        self.found: list[Envelope] = []
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._follow(session))

    async def _follow(self, session: Session) -> None:
        try:
            while True:
                try:
                    async with aclosing(session.follow(lanes=self.lanes, after=self.after)) as entries:
                        async for envelope in entries:
                            self.found.append(envelope)
                            self._news.set()
                except Unavailable:
                    if self.found:  # only a follower that has started waits for a lost server
                        raise
        finally:
            self._news.set()

    async def wait_count(self, count: int) -> None:
        """Wait until it has received `count` entries. Raise its error if it fails."""
        while len(self.found) < count:
            self._news.clear()
            if self._task.done():
                await self._task
                raise AssertionError("following has an end")
            await self._news.wait()

    async def leave(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            await self._task


PATIENCE = 120.0
"""seconds after which a wait fails"""


class Tally:
    """A count. Create it within a running event loop."""

    def __init__(self) -> None:
        self.count = 0
        self._news = asyncio.Event()

    def add(self, count: int = 1) -> None:
        self.count += count
        self._news.set()

    async def wait(self, count: int) -> None:
        """Wait until the count is at least `count`.

        Raises:
            TimeoutError: the count was not reached.
        """
        with anyio.fail_after(PATIENCE):
            while self.count < count:
                self._news.clear()
                await self._news.wait()
