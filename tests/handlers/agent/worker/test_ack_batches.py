"""Acks that the server refuses or does not answer: no work stays with the worker forever."""

import pytest

from lanebus import Bounds, UserMessage
from lanebus.agent import AgentLoop, TryAgain
from lanebus.bounds import ConnectionBounds
from lanebus.handlers.agent import Run, ServerHealth
from lanebus.handlers.agent.worker.services import AckBatcher
from tests.handlers.agent.worker.test_worker_errors import working
from tests.support.agent.agents import ScriptedModel, answer
from tests.support.log.groups import pending, take_one
from tests.support.servers.real import RealServer, eventually

__all__ = ()


async def test_work_is_acked_even_if_its_lease_cannot_be_released(valkey: RealServer) -> None:
    async with valkey.bus() as bus, bus.consumer("agents", "w") as consumer:
        await bus.session("s1").publish(UserMessage.text("hello?"))
        work = await take_one(consumer)
        lease = (await bus.leases.take("s1", "w", 60)).lease
        assert lease is not None
        finishing = AckBatcher(bus.leases, consumer)
        finishing.release(lease)
        finishing.ack(work, 0)
        valkey.do("CONFIG", "SET", "maxmemory", "1")  # a lease needs memory, an ack does not
        await finishing.flush()
        assert not pending(valkey, "agents")


@pytest.mark.full
async def test_work_that_cannot_be_rescheduled_is_done_once_the_server_has_memory(valkey: RealServer) -> None:
    echo = AgentLoop(ScriptedModel(*[answer("Yes.")] * 3))
    is_full = False

    async def agent(run: Run) -> None:
        nonlocal is_full
        if not is_full:
            is_full = True
            valkey.do("CONFIG", "SET", "maxmemory", "1")
            raise TryAgain(0, "not yet")
        await echo(run)

    async with valkey.bus() as bus, working(bus, agent, heartbeat=2):
        await bus.session("s1").publish(UserMessage.text("hello?"))
        await eventually(lambda: valkey.do("CONFIG", "GET", "maxmemory") == ["maxmemory", "1"])
        assert pending(valkey, "agents")
        valkey.do("CONFIG", "SET", "maxmemory", "0")
        await eventually(lambda: not pending(valkey, "agents"))


async def test_a_refusal_is_over_once_no_ack_is_left_to_repeat(valkey: RealServer) -> None:
    """Otherwise the worker would never fetch again: work whose ack is lost is delivered to those that fetch."""
    bounds = Bounds(connection=ConnectionBounds(retrying_seconds=0.05))
    async with valkey.bus(bounds=bounds) as bus, bus.consumer("agents", "w") as consumer:
        await bus.session("s1").publish(UserMessage.text("hello?"))
        work = await take_one(consumer)
        health = ServerHealth()
        finishing = AckBatcher(bus.leases, consumer, health=health)
        finishing.ack(work, 0)
        valkey.do("ACL", "SETUSER", "default", "-hdel")
        assert await finishing.flush() == ()
        assert health.faults == {"ack": "NOPERM"}
        valkey.kill()
        assert await finishing.flush() == [work]  # lost, so it is delivered again
        assert health.faults == {}
        valkey.start()
