"""A pool that sends concurrent short calls in one write, for a process that works on many sessions."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import anyio

from lanebus.bus.concurrency import BusOrigin
from lanebus.bus.errors import Closed
from lanebus.bus.servers.calls import ConnectionBounds, answered

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from lanebus.bus.errors import Refused
    from lanebus.bus.servers.calls import Argument, Reply
    from lanebus.bus.servers.connection import Pool


class _Call(NamedTuple):
    commands: Sequence[Sequence[Argument]]
    future: asyncio.Future[list[Reply | Refused]]


class GroupedPool:
    """A `Pool` that sends calls in groups through another pool.

    Calls that may take long, or that must not run twice, are not grouped. A cancelled caller does not affect the other
    calls of its group; the commands of the cancelled call may be executed.

    If a group fails, its calls are sent again separately and at the same time. So one failing call does not fail the
    other calls. A call that has no answer after another `answer_seconds` fails with the error of the group.
    """

    def __init__(self, pool: Pool, bounds: ConnectionBounds | None = None) -> None:
        self._pool, self._bounds, self._origin = pool, bounds or ConnectionBounds(), BusOrigin()
        self._waiting: deque[_Call] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        # This is not `len(self._tasks)`, because a task that found no more calls may not have ended yet.
        self._active = 0
        self._is_closed = False

    @property
    def has_connected(self) -> bool:
        """See `Pool`."""
        return self._pool.has_connected

    async def call(
        self, *command: Argument, at: str | None = None, more_seconds: float = 0.0, again: bool = True
    ) -> Reply:
        """See `Pool`."""
        if at is not None or more_seconds or not again:
            return await self._pool.call(*command, at=at, more_seconds=more_seconds, again=again)
        (reply,) = await self.call_many((command,))
        return answered(reply)

    async def call_many(
        self, commands: Sequence[Sequence[Argument]], *, more_seconds: float = 0.0
    ) -> list[Reply | Refused]:
        """See `Pool`."""
        if more_seconds:
            return await self._pool.call_many(commands, more_seconds=more_seconds)
        self._origin.check_running()
        if self._is_closed:
            raise Closed("bus")
        call = _Call(commands, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        if self._active < self._bounds.groups_in_flight:
            self._active += 1
            # The task starts in the next turn of the event loop, so all calls of this turn share a group.
            task = asyncio.create_task(self._run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await call.future

    async def call_each(self, *command: Argument) -> dict[str, Reply]:
        """See `Pool`."""
        return await self._pool.call_each(*command)

    def scan(self, match: str) -> AsyncGenerator[list[bytes], None]:
        """See `Pool`."""
        return self._pool.scan(match)

    async def close(self) -> None:
        """Fail all calls in flight. The other pool stays open; its owner closes it."""
        self._is_closed = True
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._fail(self._take(None), Closed("bus"))

    async def _run(self) -> None:
        group: list[_Call] = []
        try:
            while group := self._take(self._bounds.group_commands):
                await self._send(group)
        except BaseException as error:
            self._fail(group, error if isinstance(error, Exception) else Closed("bus"))
            raise
        finally:
            self._active -= 1

    async def _send(self, group: Sequence[_Call]) -> None:
        commands = [command for call in group for command in call.commands]
        try:
            replies = await self._pool.call_many(commands)
        except Exception as error:  # noqa: BLE001  # passed on to the callers
            if len(group) > 1:
                await self._send_each(group)
            self._fail(group, error)
            return
        at = 0
        for call in group:
            end = at + len(call.commands)
            if not call.future.done():
                call.future.set_result(replies[at:end])
            at = end

    async def _send_each(self, group: Sequence[_Call]) -> None:
        tasks = [asyncio.create_task(self._send((call,))) for call in group]
        try:
            await asyncio.wait(tasks, timeout=self._bounds.answer_seconds)
        finally:
            for task in tasks:
                task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.gather(*tasks, return_exceptions=True)

    def _take(self, limit: int | None) -> list[_Call]:
        """Remove and return calls whose callers still wait, with about `limit` commands (None: all)."""
        group: list[_Call] = []
        count = 0
        while self._waiting and (limit is None or count < limit):
            call = self._waiting.popleft()
            if not call.future.done():
                group.append(call)
                count += len(call.commands)
        return group

    def _fail(self, group: Sequence[_Call], error: Exception) -> None:
        for call in group:
            if not call.future.done():
                call.future.set_exception(error)
