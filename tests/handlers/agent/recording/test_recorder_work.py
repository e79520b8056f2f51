"""What a recorder has done is no waiting work of an agent that no worker serves."""

import pytest

from lanebus import Bus, Session, UserMessage
from lanebus.agent import Recorder
from lanebus.bus import Lease, finish_recorded

__all__ = ()


async def waiting(bus: Bus) -> int:
    assert sum(work.lag for work in await bus.unfetched_work()) == sum(each.waiting for each in await bus.agents())
    return sum(each.waiting for each in await bus.agents())


async def asked(bus: Bus) -> Session:
    session = bus.session("s1", agent="own")
    await session.publish(UserMessage.text("hello"))
    assert await waiting(bus) == 1
    return session


@pytest.mark.parametrize("waits", [True, False])
async def test_a_session_whose_loop_a_recorder_has_ended_does_not_wait(bus: Bus, waits: bool) -> None:
    session = await asked(bus)
    async with Recorder(session) as recorder:
        assert await recorder.wait_for_work()
        async with recorder.turn(model="m-1") as turn:
            await turn.answer("Hi.")
        if waits:
            assert not await recorder.wait_for_work(0)
            assert await waiting(bus) == 0
    assert await waiting(bus) == 0


async def test_a_session_whose_message_a_recorder_has_not_answered_waits(bus: Bus) -> None:
    session = await asked(bus)
    async with Recorder(session) as recorder:
        assert await recorder.wait_for_work()
    assert await waiting(bus) == 1


async def test_a_message_after_the_recorder_waits_again(bus: Bus) -> None:
    session = await asked(bus)
    async with Recorder(session) as recorder, recorder.turn(model="m-1") as turn:
        await turn.answer("Hi.")
    await session.publish(UserMessage.text("again"))
    assert await waiting(bus) == 1


async def test_a_message_after_the_position_that_the_recorder_has_read_stays_waiting(bus: Bus) -> None:
    session = await asked(bus)
    async with session.lease("recorder") as held:
        await session.publish(UserMessage.text("after it"))
        await finish_recorded(bus.log, held.lease, 1)
        assert await waiting(bus) == 1
        await finish_recorded(bus.log, held.lease, 2)
        assert await waiting(bus) == 0


async def test_work_stays_waiting_if_the_lease_is_over_or_the_agent_has_changed(bus: Bus) -> None:
    session = await asked(bus)
    async with session.lease("recorder") as held:
        for wrong in (held.lease._replace(epoch=held.epoch + 1), held.lease._replace(agent="other")):
            assert isinstance(wrong, Lease)
            await finish_recorded(bus.log, wrong, 1)
            assert await waiting(bus) == 1


async def test_a_group_that_serves_the_agent_still_gets_the_session(bus: Bus) -> None:
    async with bus.consumer("agents", "worker-1", agents=["own"]) as consumer:
        await asked(bus)
        (work,) = await consumer.fetch(1)
        await consumer.ack(work)
    session = bus.session("s1")
    await session.publish(UserMessage.text("again"))
    async with Recorder(session) as recorder, recorder.turn(model="m-1") as turn:
        await turn.answer("Hi.")
    async with bus.consumer("agents", "worker-1", agents=["own"]) as consumer:
        assert [work.session for work in await consumer.fetch(1)] == ["s1"]
