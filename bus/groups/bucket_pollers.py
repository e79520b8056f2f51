"""Poll the buckets of a cluster at the same time, so that an unreachable server delays only its own buckets."""

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
    """Runs one task for each reader. A task always waits for wake-ups, but fetches only while `take` waits for more
    work items."""

    def __init__(self, readers: Sequence[GroupReader], bounds: WorkBounds) -> None:
        self._bounds = bounds
        self._recovering = set(readers)
        self._room = self._in_flight = 0
        self._is_taking = False
        self._has_room, self._all_recovered, self._has_found = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._found: list[Work] = []
        self._failure: Exception | None = None
        # Not a task group: the tasks run on between calls of `take`.
        self._tasks = [asyncio.create_task(self._run(reader)) for reader in readers]

    async def take(self, limit: int, seconds: float) -> list[Work]:
        """Wait at most `seconds` for work items that readers fetch, and return at most `limit` work items.

        If a fetch is still in flight when the call returns, the next call returns its work items as part of its own
        `limit`. If an error ended the task of a reader, raises this error.
        """
        self._is_taking = True
        self._set_room(limit - len(self._found) - self._in_flight)
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
        """Cancel the tasks of all readers and close the readers."""
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
        backoff = Backoff(self._bounds.first_pause_seconds, self._bounds.longest_pause_seconds)
        try:
            while True:
                try:
                    await self._poll(reader)
                    backoff.reset()
                except Unavailable:
                    self._set_recovered(reader)  # the other buckets do not wait for an unreachable bucket
                    await reader.close()
                    await backoff.wait()
        except Exception as error:  # noqa: BLE001  # no caller awaits this task, so `take` raises the error again
            self._failure = error
            self._has_found.set()
        finally:
            await reader.close()

    async def _poll(self, reader: GroupReader) -> None:
        await reader.sweep()
        if not reader.backlog.is_recovering:  # unfinished work of all buckets comes before new work
            self._set_recovered(reader)
            await self._all_recovered.wait()
            await reader.wait_for_wake_up(
                min(self._bounds.cluster_wait_seconds, reader.backlog.next_sweep - anyio.current_time())
            )
        if not reader.has_work:
            return
        while self._room < 1:  # all readers share the room, so other readers may have used it up
            await self._has_room.wait()
        limit = max(self._room // 4, 1)  # leaves room for the other readers
        self._in_flight += limit
        self._set_room(self._room - limit)
        found: list[Work] = []
        try:
            found = await reader.fetch(limit)
        finally:
            self._in_flight -= limit
            if self._is_taking:
                self._set_room(self._room + limit - len(found))
        if found:
            self._found += found
            self._has_found.set()

    def _set_recovered(self, reader: GroupReader) -> None:
        self._recovering.discard(reader)
        if not self._recovering:
            self._all_recovered.set()
