"""A worker at its bounds: the sizes of cache and concurrency do not change the answers."""

import anyio
import pytest

from lanebus import AssistantMessage, Bus, ExtensionMessage, UserMessage
from lanebus.agent import AgentLoop, Worker, WorkerBounds
from tests.support.agent.agents import ScriptedModel, answer
from tests.support.agent.logs import messages, wait_for
from tests.support.servers.real import eventually

__all__ = ()

SESSIONS, QUESTIONS = 20, 3


@pytest.mark.full
@pytest.mark.parametrize("concurrency", [1, 4, 32])
@pytest.mark.parametrize("bounds", [WorkerBounds(warm_sessions=3), WorkerBounds(warm_bytes=3)], ids=str)
async def test_a_busy_worker_with_a_small_cache_answers_every_question(
    bus: Bus, bounds: WorkerBounds, concurrency: int
) -> None:
    model = ScriptedModel(*[answer("Yes.")] * (SESSIONS * QUESTIONS))
    worker = Worker(bus, AgentLoop(model), concurrency=concurrency, bounds=bounds)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        for question in range(1, QUESTIONS + 1):
            for number in range(SESSIONS):
                await bus.session(f"s{number}").publish(UserMessage.text(f"question {question}"))
            await _answered(bus, question)
        worker.stop()
    for number in range(SESSIONS):
        found = await messages(bus.session(f"s{number}"))
        assert [isinstance(message, AssistantMessage) for message in found] == [False, True] * QUESTIONS


async def _answered(bus: Bus, loops: int) -> None:
    for number in range(SESSIONS):
        await wait_for(bus.session(f"s{number}"), "agent.ended", loops)


async def test_a_worker_warns_once_of_a_session_that_remembers_many_publish_keys(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    bounds = WorkerBounds(warm_sweep_seconds=0.01, most_keys=3)
    async with Worker(bus, AgentLoop(ScriptedModel(answer("Yes."))), bounds=bounds) as worker:
        session = bus.session("s")
        for number in range(3):
            await session.publish(ExtensionMessage.of("x"), key=f"k{number}", wake=False)
        await session.publish(UserMessage.text("go"))
        await wait_for(session, "agent.ended")
        await eventually(lambda: worker.counts.most_keys >= 3)
        await eventually(lambda: "session.keys_many" in caplog.text)
    told = [record for record in caplog.records if "session.keys_many" in record.getMessage()]
    assert [vars(record)["session"] for record in told] == ["s"]


async def test_a_worker_forgets_what_it_read_of_an_erased_session(bus: Bus) -> None:
    bounds = WorkerBounds(warm_sweep_seconds=0.01)
    async with Worker(bus, AgentLoop(ScriptedModel(answer("Yes."))), bounds=bounds) as worker:
        session = bus.session("s")
        await session.publish(UserMessage.text("go"))
        await wait_for(session, "agent.ended")
        cache = worker._services.cache  # pyright: ignore[reportPrivateUsage]
        await eventually(lambda: len(cache) == 1)
        await session.erase()
        await eventually(lambda: len(cache) == 0)
