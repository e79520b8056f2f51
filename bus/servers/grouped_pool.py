"""A pool whose short calls of the same moment go out in one write: for one process that works on many sessions."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import anyio

from lanebus.bus.errors import Closed
from lanebus.bus.servers.bounds import ConnectionBounds
from lanebus.bus.servers.replies import answered

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from lanebus.bus.errors import Refused
    from lanebus.bus.servers.pool import Pool
    from lanebus.bus.servers.replies import Argument, Reply

__all__ = ("GroupedPool",)


class _Call(NamedTuple):
    commands: Sequence[Sequence[Argument]]
    future: asyncio.Future[list[Reply | Refused]]


class GroupedPool:
    """A `Pool` on another one. What cannot share a write, as it may take long or not run twice, goes there as it is.

    A caller that is cancelled waits no longer; its commands are carried out or not, as always, and the others of its
    group are not concerned. A group that fails is sent again, each call by itself and all at the same time, so that no
    answer ends another's wait; a call that has none after `answer_seconds` more fails as its group did.
    """

    def __init__(self, pool: Pool, bounds: ConnectionBounds | None = None) -> None:
        self._pool, self._bounds = pool, bounds or ConnectionBounds()
        self._waiting: deque[_Call] = deque()
        self._flights: set[asyncio.Task[None]] = set()
        # Not their number: one that has found nothing more to carry is no longer at work, though it has not ended.
        self._at_work = 0
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
        if self._is_closed:
            raise Closed("bus")
        call = _Call(commands, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        if self._at_work < self._bounds.groups_in_flight:
            self._at_work += 1
            # It begins in the next turn of the event loop: whoever calls in this one shares it.
            flight = asyncio.create_task(self._fly())
            self._flights.add(flight)
            flight.add_done_callback(self._flights.discard)
        return await call.future

    async def call_each(self, *command: Argument) -> list[Reply]:
        """See `Pool`."""
        return await self._pool.call_each(*command)

    def scan(self, match: str) -> AsyncGenerator[list[bytes], None]:
        """See `Pool`."""
        return self._pool.scan(match)

    async def close(self) -> None:
        """End what is on its way; the pool below is its owner's."""
        self._is_closed = True
        flights = tuple(self._flights)
        for flight in flights:
            flight.cancel()
        if flights:
            await asyncio.wait(flights)
        self._fail(self._taken(None), Closed("bus"))

    async def _fly(self) -> None:
        group: list[_Call] = []
        try:
            while group := self._taken(self._bounds.group_commands):
                await self._carry(group)
        except BaseException as error:
            self._fail(group, error if isinstance(error, Exception) else Closed("bus"))
            raise
        finally:
            self._at_work -= 1

    async def _carry(self, group: Sequence[_Call]) -> None:
        commands = [command for call in group for command in call.commands]
        try:
            replies = await self._pool.call_many(commands)
        except Exception as error:  # noqa: BLE001  # it is the callers', each of whom may catch it
            if len(group) > 1:
                await self._carry_apart(group)
            self._fail(group, error)
            return
        at = 0
        for call in group:
            end = at + len(call.commands)
            if not call.future.done():
                call.future.set_result(replies[at:end])
            at = end

    async def _carry_apart(self, group: Sequence[_Call]) -> None:
        tasks = [asyncio.create_task(self._carry((call,))) for call in group]
        try:
            await asyncio.wait(tasks, timeout=self._bounds.answer_seconds)
        finally:
            for task in tasks:
                task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.gather(*tasks, return_exceptions=True)

    def _taken(self, most: int | None) -> list[_Call]:
        """What waits, of those who still wait for it."""
        group: list[_Call] = []
        count = 0
        while self._waiting and (most is None or count < most):
            call = self._waiting.popleft()
            if not call.future.done():
                group.append(call)
                count += len(call.commands)
        return group

    def _fail(self, group: Sequence[_Call], error: Exception) -> None:
        for call in group:
            if not call.future.done():
                call.future.set_exception(error)
