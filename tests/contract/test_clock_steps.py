"""The server's clock steps back an hour: no lease, rest or retry waits that hour."""

from collections.abc import Iterator

import anyio
import pytest

from lanebus import UserMessage
from lanebus.agent import AgentLoop, Worker
from tests.support.agent.agents import ScriptedModel, answer, wait_for
from tests.support.log.groups import take_all, take_one, wake
from tests.support.servers.clock import SteppedServer, stepped_server
from tests.support.servers.real import background, shortly

pytestmark = pytest.mark.needs("gcc")

HOUR = 3_600


@pytest.fixture
def stepped() -> Iterator[SteppedServer]:
    with stepped_server() as server:
        yield server


async def test_a_clock_step_does_not_extend_a_lease(stepped: SteppedServer) -> None:
    async with stepped.server.bus() as bus:
        await wake(bus, "s")
        assert (await bus.leases.take("s", "dead", 2)).lease is not None
        stepped.step(-HOUR)
        first = await bus.leases.take("s", "me", 60)
        assert first.lease is None
        assert 0 < first.held_seconds <= 2
        async with shortly():
            while (taking := await bus.leases.take("s", "me", 60)).lease is None:
                assert taking.held_seconds <= first.held_seconds, "it ends a full length after it was first seen so"
                await anyio.sleep(taking.held_seconds)


async def test_a_lease_that_is_renewed_after_the_step_is_kept(stepped: SteppedServer) -> None:
    async with stepped.server.bus() as bus:
        await wake(bus, "s")
        mine = (await bus.leases.take("s", "me", 60)).lease
        assert mine is not None
        stepped.step(-HOUR)
        assert (await bus.leases.take("s", "you", 60)).lease is None
        assert await bus.leases.renew([mine], 60) == []
        assert 50 < (await bus.leases.take("s", "you", 60)).held_seconds <= 60


async def test_a_clock_step_does_not_extend_a_rest(stepped: SteppedServer) -> None:
    async with stepped.server.bus() as bus:
        await wake(bus, "s")
        lease = (await bus.leases.take("s", "me", 60)).lease
        assert lease is not None
        await bus.leases.release((lease,), rest=2)
        stepped.step(-HOUR)
        assert 0 < (await bus.leases.take("s", "you", 60, also_resting=False)).rests_seconds <= 2


async def test_a_clock_step_does_not_delay_nacked_work(stepped: SteppedServer) -> None:
    async with stepped.server.bus() as bus, bus.consumer("g", "c", heartbeat=2) as consumer:
        await wake(bus, "a", "b")
        soon, later = await take_all(consumer, 2)
        await consumer.nack(later, delay=2)
        await consumer.nack(soon, delay=1)
        stepped.step(-HOUR)
        assert {work.session for work in await take_all(consumer, 2)} == {"a", "b"}


@pytest.mark.parametrize("seconds", [-HOUR, HOUR])
async def test_work_of_a_consumer_that_dies_as_the_clock_steps_is_claimed(stepped: SteppedServer, seconds: int) -> None:
    async with stepped.server.bus() as bus, bus.consumer("g", "alive", heartbeat=1) as alive:
        async with bus.consumer("g", "dead", heartbeat=1) as dead:
            await wake(bus, "a")
            await take_one(dead)
        stepped.step(seconds)
        assert (await take_one(alive)).attempt == 2


async def test_a_consumer_that_lives_keeps_its_work_as_the_clock_steps(stepped: SteppedServer) -> None:
    async with stepped.server.bus() as bus, bus.consumer("g", "holder", heartbeat=5) as holder:
        await wake(bus, "a")
        await take_one(holder)

        async def keep() -> None:
            while True:
                assert await holder.heartbeat() == []
                await anyio.sleep(0.1)

        async with background() as tasks, bus.consumer("g", "other", heartbeat=5) as other:
            tasks.start_soon(keep)
            for seconds in (HOUR, -HOUR, 0):
                stepped.step(seconds)
                with anyio.move_on_after(0.5):
                    raise AssertionError(await other.fetch(1))


async def test_the_session_of_a_worker_that_dies_as_the_clock_steps_back_is_answered(stepped: SteppedServer) -> None:
    async with stepped.server.bus() as bus:
        session = bus.session("s1")
        await session.publish(UserMessage.text("hello?"))
        async with bus.consumer("agents", "dead", heartbeat=1) as dead:
            await take_one(dead)
            assert await session.acquire_lease("dead.token", 1) is not None
        stepped.step(-HOUR)
        worker = Worker(bus, AgentLoop(ScriptedModel(answer("Yes."))), heartbeat=1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            await wait_for(session, "agent.ended")
            worker.stop()
