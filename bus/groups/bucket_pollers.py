"""Several readers as one, as a cluster needs: each bucket is read by itself, and a lost one holds up no other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import anyio

from lanebus.bus.errors import Unavailable
from lanebus.bus.servers.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanebus.bus.groups.bucket_reader import GroupReader
    from lanebus.bus.groups.work import Work
    from lanebus.bus.log.work_bounds import WorkBounds

__all__ = ("BucketPollers",)


class BucketPollers:
    """One task a reader. They listen at all times, and take something only while somebody has room for it."""

    def __init__(self, readers: Sequence[GroupReader], bounds: WorkBounds) -> None:
        self._bounds = bounds
        self._behind = set(readers)
        self._room = self._in_flight = 0
        self._is_taking = False
        self._has_room, self._all_caught_up, self._has_found = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._found: list[Work] = []
        self._failure: Exception | None = None
        # Not a task group: it could not be open between two calls of who takes.
        self._tasks = [asyncio.create_task(self._run(reader)) for reader in readers]

    async def take(self, most: int, seconds: float) -> list[Work]:
        """What was found, once there is some or so long; raises what a reader ended with.

        What a reader still asks for when this ends is within `most`, and comes first in the next call.
        """
        self._is_taking = True
        self._set_room(most - len(self._found) - self._in_flight)
        try:
            with anyio.move_on_after(seconds):
                await self._has_found.wait()
        finally:
            self._is_taking = False
            self._set_room(0)
        if self._failure is not None:
            raise self._failure
        self._has_found.clear()
        found, self._found = self._found, []
        return found

    async def close(self) -> None:
        """End all of them."""
        with anyio.CancelScope(shield=True):
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)

    def _set_room(self, room: int) -> None:
        self._room = room
        if room > 0:
            self._has_room.set()
        else:
            self._has_room.clear()

    async def _run(self, reader: GroupReader) -> None:
        backoff = Backoff(self._bounds.shortest, self._bounds.longest_pause)
        try:
            while True:
                try:
                    await self._pump(reader)
                    backoff.reset()
                except Unavailable:
                    self._caught_up(reader)  # the others need not wait for it
                    await reader.close()
                    await backoff.wait()
        except Exception as error:  # noqa: BLE001  # raised again by `take`, as nobody waits for this task
            self._failure = error
            self._has_found.set()
        finally:
            await reader.close()

    async def _pump(self, reader: GroupReader) -> None:
        await reader.sweep()
        if not reader.left.is_behind:  # what was pending with us comes before what is new, of all buckets
            self._caught_up(reader)
            await self._all_caught_up.wait()
            await reader.wait_for_wake_up(min(self._bounds.look_bucket, reader.left.next_look - anyio.current_time()))
        if not reader.has_some:
            return
        while self._room < 1:  # others were woken too, and may have been first
            await self._has_room.wait()
        most = max(self._room // 4, 1)  # some is left for the others
        self._in_flight += most
        self._set_room(self._room - most)
        found: list[Work] = []
        try:
            found = await reader.fetch(most)
        finally:
            self._in_flight -= most
            if self._is_taking:
                self._set_room(self._room + most - len(found))
        if found:
            self._found += found
            self._has_found.set()

    def _caught_up(self, reader: GroupReader) -> None:
        self._behind.discard(reader)
        if not self._behind:
            self._all_caught_up.set()
