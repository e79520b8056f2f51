"""A follower that has begun waits for a server that is gone, also while it reads the log."""

from contextlib import aclosing
from dataclasses import replace

import anyio
import pytest
from anyio.abc import TaskGroup

from lanebus import Bounds, Lane, Session, Unavailable
from lanebus.bus import LogBounds
from lanebus.bus.errors import Refused
from lanebus.bus.wire import Keys
from tests.contract.test_follow import Follower
from tests.support.log.said import assert_gap_free, said
from tests.support.servers.real import RealServer, eventually

COUNT = 40


class Held(Follower):
    """A follower that takes one entry and then waits until it is let go."""

    def __init__(self, session: Session, buffer_bytes: int) -> None:
        super().__init__(session)
        self.go, self._buffer_bytes = anyio.Event(), buffer_bytes

    async def run(self) -> None:
        try:
            async with aclosing(self.session.follow(buffer_bytes=self._buffer_bytes)) as entries:
                async for envelope in entries:
                    self.seen.append(envelope)
                    await self.go.wait()
        except Exception as error:  # noqa: BLE001  the outcome is what is looked at
            self.error = error


def held(session: Session, tasks: TaskGroup, *, buffer_bytes: int = 1_000_000) -> Held:
    follower = Held(session, buffer_bytes)
    follower.start(tasks)
    return follower


def bound_page(server: RealServer, entries: int) -> None:
    server.bounds = replace(Bounds(), log=LogBounds(page_entries=entries))


async def outlive(server: RealServer, follower: Held) -> None:
    """Kill the server, let the follower go, and start the server again. The follower then gets everything once.

    Ten failed calls in between give the follower time to find the server gone: one try of a follower makes fewer.
    """
    server.kill()
    follower.go.set()
    for _ in range(10):
        with pytest.raises(Unavailable):
            await follower.session.head()
    server.start()
    await eventually(follower.has(COUNT))
    assert follower.error is None
    assert_gap_free(follower.seen)


async def test_the_server_dies_while_a_follower_reads_stored_entries(process: RealServer) -> None:
    bound_page(process, 3)
    async with process.bus() as bus, anyio.create_task_group() as tasks:
        session = bus.session("s")
        for _ in range(COUNT):
            await session.publish(said("x"))
        follower = held(session, tasks)
        await eventually(follower.has(1))
        await outlive(process, follower)
        tasks.cancel_scope.cancel()


async def test_the_server_dies_before_a_slow_follower_reads_the_log_again(process: RealServer) -> None:
    async with process.bus() as bus, anyio.create_task_group() as tasks:
        session = bus.session("s")
        await session.publish(said("x"))
        slow, fast = held(session, tasks, buffer_bytes=100), Follower(session).start(tasks)
        await eventually(slow.has(1))
        for _ in range(COUNT - 1):
            await session.publish(said("x"))
        await eventually(fast.has(COUNT))
        await outlive(process, slow)
        tasks.cancel_scope.cancel()


async def test_a_refusal_that_waiting_does_not_end_is_raised(valkey: RealServer) -> None:
    bound_page(valkey, 3)
    async with valkey.bus() as bus, anyio.create_task_group() as tasks:
        session = bus.session("s")
        for _ in range(COUNT):
            await session.publish(said("x"))
        follower = held(session, tasks)
        await eventually(follower.has(1))
        valkey.do("SET", Keys().lane("s", Lane.LLM), "x")
        follower.go.set()
        await eventually(lambda: follower.error is not None)
        assert isinstance(follower.error, Refused)
        assert follower.error.code == "WRONGTYPE"
