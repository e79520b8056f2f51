"""`async with Worker(…)`: a worker in the background of a block."""

from functools import partial

import anyio
import pytest

from lanebus import Bus, Closed, Session, UserMessage
from lanebus.agent import AgentLoop, Worker, ask
from tests.support.agent.agents import SECONDS, Pause, ScriptedModel, answer
from tests.support.agent.logs import said, until
from tests.support.laws.cancelling import Moment, Trial, cut

__all__ = ()

PATIENT = 60.0
"""heartbeat in seconds, for tests in which a takeover would be an error"""


async def test_a_worker_works_during_the_block_and_leaves_its_group_at_the_end(bus: Bus) -> None:
    async with Worker(bus, AgentLoop(ScriptedModel(answer("Yes."))), heartbeat=PATIENT) as worker:
        assert (await ask(bus.session("s1"), "hello")).text_content() == "Yes."
        assert worker.counts.runs == 1
        assert [each.name for each in (await bus.group_status("agents")).consumers] == [worker.name]
    assert (await bus.group_status("agents")).consumers == ()


async def test_the_end_of_the_block_records_the_partial_answer_and_returns_the_session(
    bus: Bus, session: Session
) -> None:
    stop = Pause()
    async with Worker(bus, AgentLoop(ScriptedModel([*answer("As I was saying")[:2], stop])), heartbeat=PATIENT):
        await session.publish(UserMessage.text("hello"))
        await stop.reached.wait()
    assert "assistant aborted: As I was saying" in await said(session)
    with anyio.fail_after(SECONDS):  # another worker need not wait for the heartbeat
        async with Worker(bus, AgentLoop(ScriptedModel(answer("Yes."))), heartbeat=PATIENT):
            assert (await ask(session, "and?")).text_content() == "Yes."


@pytest.mark.parametrize("error", [ValueError("mine"), SystemExit(3), ExceptionGroup("g", [ValueError("mine")])])
async def test_an_error_of_the_block_is_raised_unchanged_and_the_worker_has_ended(
    bus: Bus, error: BaseException
) -> None:
    with pytest.raises(type(error)) as caught:  # noqa: PT012  # the block is what raises
        async with Worker(bus, AgentLoop(ScriptedModel(answer("Yes."))), heartbeat=PATIENT):
            await ask(bus.session("s1"), "hello")
            raise error
    assert caught.value is error
    assert (await bus.group_status("agents")).consumers == ()


async def test_an_error_of_the_worker_ends_the_block_and_is_raised_alone(bus: Bus) -> None:
    worker = Worker(bus, AgentLoop(ScriptedModel()))
    ended: list[str] = []
    with anyio.fail_after(SECONDS), pytest.raises(Closed):  # noqa: PT012  # the block is what raises
        async with worker:
            try:
                await anyio.sleep_forever()
            finally:
                ended.append("cancelled")
    assert ended == ["cancelled"]


async def test_cancellation_passes_through_the_block(bus: Bus) -> None:
    reached: list[str] = []
    with anyio.CancelScope() as scope:
        async with Worker(bus, AgentLoop(ScriptedModel(answer("Yes."))), heartbeat=PATIENT):
            await ask(bus.session("s1"), "hello")
            scope.cancel()
            await anyio.sleep_forever()
        reached.append("behind")
    assert scope.cancelled_caught
    assert reached == []
    assert (await bus.group_status("agents")).consumers == ()


async def test_a_worker_that_is_stopped_lets_the_block_go_on(bus: Bus) -> None:
    async with Worker(bus, AgentLoop(ScriptedModel())) as worker:
        worker.stop()

        async def has_left() -> bool:
            return not (await bus.group_status("agents")).consumers

        await until(has_left)


@pytest.mark.full
@pytest.mark.parametrize("moment", Moment)
async def test_a_block_can_be_cancelled_at_any_await_and_the_worker_has_then_ended(bus: Bus, moment: Moment) -> None:
    async def in_block(session: Session) -> str:
        async with Worker(bus, AgentLoop(ScriptedModel(answer("Yes."))), heartbeat=PATIENT):
            return (await ask(session, "hello", key="k")).text_content()

    cuts = 0
    while True:
        session = bus.session(f"s{cuts}")
        trial: Trial[str] = await cut(partial(in_block, session), at=cuts + 1, moment=moment)
        assert trial.is_honest
        assert (await bus.group_status("agents")).consumers == ()
        assert await in_block(session) == "Yes."
        if not trial.is_cut:
            break
        cuts += 1
    assert cuts > 5


@pytest.mark.parametrize("moment", Moment)
async def test_a_stopped_run_that_is_cancelled_at_any_await_is_left_by_the_cancellation(
    bus: Bus, moment: Moment
) -> None:
    async def run() -> str:
        worker = Worker(bus, AgentLoop(ScriptedModel()), heartbeat=PATIENT)
        worker.stop()
        await worker.run()
        return "done"

    cuts = 0
    while True:
        trial: Trial[str] = await cut(run, at=cuts + 1, moment=moment)
        assert trial.is_honest, (cuts, trial)
        assert (await bus.group_status("agents")).consumers == ()
        if not trial.is_cut:
            break
        cuts += 1
    assert cuts > 3
