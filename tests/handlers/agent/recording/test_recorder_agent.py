"""A recorder runs the sessions of its agent, and refuses those of others."""

import anyio
import pytest

from lanebus import Bus, Session, UserMessage
from lanebus.agent import Recorder
from lanebus.errors import Fenced, InvalidName, WrongAgent
from lanebus.messages import AgentStarted
from tests.support.agent.logs import events, events_of

__all__ = ()


async def answer(session: Session, agent: str | None = None) -> str:
    """Answer all messages, and return the agent's name in the events."""
    async with Recorder(session, agent=agent) as recorder:
        assert await recorder.wait_for_work(10)
        async with recorder.turn(model="m-1") as turn:
            await turn.answer("Hi.")
    (started,) = await events_of(session, AgentStarted)
    return started.agent


async def test_a_session_of_another_agent_is_refused_before_its_lease_is_taken(bus: Bus) -> None:
    session = bus.session("s1", agent="support")
    await session.publish(UserMessage.text("hello"))
    async with session.lease("support-1"):  # the recorder does not wait for it
        with pytest.raises(WrongAgent, match="hand the session over") as wrong:
            await Recorder(session, agent="files", wait=None).__aenter__()
    assert (wrong.value.given, wrong.value.actual) == ("files", "support")
    assert await answer(session, "support") == "support"


async def test_without_a_name_the_recorder_takes_the_agent_of_the_session(bus: Bus) -> None:
    session = bus.session("s1", agent="support")
    await session.publish(UserMessage.text("hello"))
    assert await answer(bus.session("s1")) == "support"


@pytest.mark.parametrize("waits", [True, False])
async def test_a_session_whose_first_message_gives_it_to_another_agent_is_refused(bus: Bus, waits: bool) -> None:
    session = bus.session("s1", agent="support")
    async with Recorder(session, agent="files") as recorder:
        assert not await recorder.wait_for_work(0)
        await session.publish(UserMessage.text("hello"))
        with pytest.raises(WrongAgent):
            await (recorder.wait_for_work(10) if waits else recorder.turn(model="m-1").__aenter__())
    assert not await events(session)


async def test_a_session_that_is_begun_after_the_recorder_has_its_agent_in_the_events(bus: Bus) -> None:
    async with Recorder(bus.session("s1")) as recorder:
        session = bus.session("s1", agent="support")
        await session.publish(UserMessage.text("hello"))
        async with recorder.turn(model="m-1") as turn:
            await turn.answer("Hi.")
    assert [event.agent for event in await events_of(session, AgentStarted)] == ["support"]


async def test_a_handover_ends_the_recorder_and_the_next_one_is_refused(bus: Bus) -> None:
    session = bus.session("s1", agent="files")
    await session.publish(UserMessage.text("hello"))
    lease = session.lease("files-1", seconds=0.6)

    async def run() -> None:
        async with Recorder(session, agent="files", lease=lease) as recorder, recorder.turn(model="m-1"):
            await session.hand_over("billing")
            await anyio.sleep_forever()

    with pytest.raises(Fenced):
        await run()
    with pytest.raises(WrongAgent):
        await answer(session, "files")


async def test_a_name_that_no_agent_can_have_is_refused(bus: Bus) -> None:
    with pytest.raises(InvalidName):
        Recorder(bus.session("s1"), agent="my agent")
