"""An agent that always raises stops its session, and no other."""

from functools import partial

import pytest

from lanebus import AssistantMessage, Bus, Session, UserMessage
from lanebus.agent import AgentLoop, Run, Worker
from lanebus.groups import RetryPolicy
from lanebus.messages import Abort, AgentStarted
from tests.handlers.agent.worker.test_worker_errors import Faulty, working
from tests.support.agent.agents import Pause, ScriptedModel, answer
from tests.support.agent.logs import messages, said, until, wait_for
from tests.support.log.groups import take_one
from tests.support.servers.real import eventually

__all__ = ()

ONCE = RetryPolicy(attempts=1, base=0.0)


def has_given_up(worker: Worker, times: int) -> bool:
    return worker.counts.given_up == times


async def poison(run: Run) -> None:
    """Always raises."""
    raise OSError(run.session.id)


async def test_an_agent_that_fails_at_commands_too_is_not_called_forever(bus: Bus, session: Session) -> None:
    await session.publish(UserMessage.text("hello?"), Abort().as_extension())
    async with working(bus, poison, retry=ONCE) as worker:
        await eventually(lambda: worker.counts.given_up > 0)
        # Another session is answered later: by then a busy loop would have called the agent many times.
        await bus.session("s2").publish(UserMessage.text("hello?"))
        await eventually(lambda: worker.counts.given_up > 1)
    assert worker.counts.given_up == worker.counts.runs == 2
    assert sum(isinstance(message, AssistantMessage) for message in await messages(session)) == 1
    assert await bus.dead_letters("agents").count() == 2


async def test_the_loop_of_a_failed_agent_is_ended(bus: Bus, session: Session) -> None:
    async def breaks(run: Run) -> None:
        await run.publish(AgentStarted(loop_id="s1.main.1", agent="poison").as_extension())
        raise OSError("no")

    async with working(bus, breaks, retry=ONCE) as worker:
        await session.publish(UserMessage.text("hello?"))
        await eventually(lambda: worker.counts.given_up == 1)
    entries = await said(session)
    assert entries.count("agent.started") == entries.count("agent.ended") == 1


@pytest.mark.full
async def test_messages_of_a_dead_letter_are_answered_after_its_redrive(bus: Bus, session: Session) -> None:
    agent = Faulty(OSError("one"), OSError("two"))
    letters = bus.dead_letters("agents")

    async def is_redriven() -> bool:
        return await letters.redrive_all() > 0

    async with working(bus, agent, retry=ONCE) as worker:
        await session.publish(UserMessage.text("hello?"))
        for failures in (1, 2):  # it can fail again for another reason
            await eventually(partial(has_given_up, worker, failures))
            await until(is_redriven)
        await wait_for(session, "agent.ended")
    assert [text for text in await said(session) if text.startswith("assistant stop")] == ["assistant stop: Yes."]
    assert await letters.count() == 0


@pytest.mark.full
async def test_redriving_a_dead_letter_of_a_session_that_has_continued_repeats_nothing(
    bus: Bus, session: Session
) -> None:
    agent = Faulty(OSError("one"))
    letters = bus.dead_letters("agents")

    async def is_idle() -> bool:
        status = await bus.group_status("agents")
        return not status.retries and not status.consumers[0].sessions

    async with working(bus, agent, retry=ONCE) as worker:
        await session.publish(UserMessage.text("hello?"))
        await eventually(lambda: worker.counts.given_up == 1)
        await session.publish(UserMessage.text("and now?"))
        await wait_for(session, "agent.ended")
        position = (await session.head()).position
        assert await letters.redrive_all() == 1
        await until(is_idle)
    assert (await session.head()).position == position


async def test_a_session_that_failed_once_and_then_kills_its_workers_is_given_up(bus: Bus, session: Session) -> None:
    agent = Faulty()
    await session.publish(UserMessage.text("hello?"))
    async with bus.consumer("agents", "dead") as consumer:
        work = await take_one(consumer)
        await consumer.nack(work, delay=0, error="OSError: one", attempts=13)
    async with working(bus, agent) as worker:
        await eventually(lambda: worker.counts.given_up == 1)
    assert agent.calls == 0


async def test_messages_before_a_close_are_answered_after_the_reopening(bus: Bus, session: Session) -> None:
    asked = Pause()
    echo = AgentLoop(ScriptedModel(answer("Yes.")))

    async def agent(run: Run) -> None:
        await asked.wait()
        await echo(run)

    async def is_done() -> bool:  # the worker has found it closed
        return not (await bus.group_status("agents")).pending

    async with working(bus, agent):
        await session.publish(UserMessage.text("hello?"))
        await asked.reached.wait()
        await session.close()
        asked.over.set()
        await until(is_done)
        await session.reopen()
        await wait_for(session, "agent.ended")
