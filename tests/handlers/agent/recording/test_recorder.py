"""An own loop that a recorder writes down: every view sees it as it sees a worker's."""

from functools import partial

import anyio
import pytest

from lanebus.agent import LoopLimits, Recorder, ToolSpec
from lanebus.bus import Bus, Session, finish_recorded
from lanebus.bus.messages import UserMessage
from lanebus.errors import Fenced, InvalidName, LeaseHeld, WrongAgent
from lanebus.messages import AgentStarted, AssistantMessage, RequestDefined, ToolCallBlock, TurnId, TurnStarted, Usage
from lanebus.projections import TURNS, USAGE, project, rebuild
from tests.support.agent.agents import SECONDS, fresh_bus
from tests.support.agent.logs import answers, events, events_of, listed, said, until
from tests.support.laws.cancelling import Moment, cut

USED = Usage(input=10, output=2, total_tokens=12)


async def test_a_turn_is_in_turns_and_usage(bus: Bus) -> None:
    session = bus.session("s1", agent="own")
    await session.publish(UserMessage.text("hello"))
    async with Recorder(session, agent="own") as recorder:
        assert await recorder.wait_for_work()
        async with recorder.turn(model="m-1", provider="me") as turn:
            assert [message.text_content() for message in turn.context.messages] == ["hello"]
            await turn.answer("Hi.", usage=USED)
        assert not await recorder.wait_for_work(0)
    assert await said(session) == listed(
        "user: hello | agent.started | agent.turn.started | agent.message.started | assistant stop: Hi. | "
        "agent.message.ended | agent.turn.ended | agent.ended"
    )
    (seen,) = (await project(session, TURNS)).state.turns
    assert (seen.status, seen.prompts, seen.model, seen.usage) == ("completed", (1,), "m-1", USED)
    assert (await project(session, USAGE)).state.total.usage == USED


async def test_a_recorder_waits_for_another_holder_no_longer_than_it_is_told(session: Session) -> None:
    async with session.lease("other"):
        with pytest.raises(LeaseHeld, match="another holder has the lease"):
            await Recorder(session, wait=0).__aenter__()
    async with Recorder(session, wait=0):
        pass


async def test_what_the_model_is_offered_is_told_once_for_each_change(session: Session) -> None:
    tools = (ToolSpec("work", "Work.", {"type": "object"}),)
    async with Recorder(session) as recorder:
        for offered in (tools, tools, ()):
            await session.publish(UserMessage.text("hello"))
            async with recorder.turn(model="m-1", provider="me", tools=offered, max_tokens=100) as turn:
                await turn.answer("Hi.")
    told = await events_of(session, RequestDefined)
    assert [(event.model, event.max_tokens, len(event.tools)) for event in told] == [("m-1", 100, 1), ("m-1", 100, 0)]
    begun = [event.request for event in await events_of(session, TurnStarted)]
    assert begun == [told[0].hash, told[0].hash, told[1].hash]


async def test_a_loop_ends_at_its_limit_and_usage_without_a_total_is_summed(session: Session) -> None:
    call = ToolCallBlock(id="c1", name="work", arguments={})
    await session.publish(UserMessage.text("hello"))
    async with Recorder(session, limits=LoopLimits(turns=2)) as recorder:
        number = 0
        while await recorder.wait_for_work(0):
            async with recorder.turn(model="m-1") as turn:
                number += 1
                wants = AssistantMessage(content=(call,), stop_reason="toolUse")
                await turn.answer(wants, usage=Usage(input=10, output=2))
                await turn.tool_result(call, {"number": number})
    assert number == 2
    assert (await said(session))[-2:] == ["user: [Agent stopped: turn limit of 2 reached]", "agent.ended"]
    found = (await project(session, USAGE)).state
    assert (found.total.usage.total_tokens, found.mismatch_count) == (24, 0)


async def test_the_pieces_are_shown_live_and_are_the_answer(session: Session) -> None:
    await session.publish(UserMessage.text("hello"))
    async with Recorder(session) as recorder, recorder.turn(model="m-1") as turn:
        turn.piece("Hello ")
        turn.piece("there.")

        async def is_shown() -> bool:
            shown = await session.open_messages()
            return [block.delta for message in shown for block in message.blocks] == ["Hello there."]

        await until(is_shown)
        message = await turn.answer()
        assert (message.text_content(), message.turn_id) == ("Hello there.", turn.id)
    assert await session.open_messages() == []


# --- a recorder runs the sessions of its agent, and refuses those of others ----------------------------------------


async def answer(session: Session, agent: str | None = None) -> str:
    """Answer all messages, and return the agent's name in the events."""
    async with Recorder(session, agent=agent) as recorder:
        assert await recorder.wait_for_work(10)
        async with recorder.turn(model="m-1") as turn:
            await turn.answer("Hi.")
    (started,) = await events_of(session, AgentStarted)
    return started.agent


async def test_a_session_of_another_agent_is_refused_before_its_lease_is_taken(bus: Bus) -> None:
    session, unnamed = bus.session("s1", agent="support"), bus.session("s2", agent="support")
    for each in (session, unnamed):
        await each.publish(UserMessage.text("hello"))
    async with session.lease("support-1"):  # the recorder does not wait for it
        with pytest.raises(WrongAgent, match="hand the session over") as wrong:
            await Recorder(session, agent="files", wait=None).__aenter__()
    assert (wrong.value.given, wrong.value.actual) == ("files", "support")
    assert await answer(session, "support") == "support"
    assert await answer(bus.session("s2")) == "support", "the agent of the session"
    with pytest.raises(InvalidName):
        Recorder(session, agent="my agent")


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


# --- what a recorder has done is no waiting work of an agent that no worker serves ---------------------------------


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


async def test_a_message_waits_before_and_after_the_recorders_answer(bus: Bus) -> None:
    session = await asked(bus)
    async with Recorder(session) as recorder:
        assert await recorder.wait_for_work()
    assert await waiting(bus) == 1
    async with Recorder(session) as recorder, recorder.turn(model="m-1") as turn:
        await turn.answer("Hi.")
    await session.publish(UserMessage.text("again"))
    assert await waiting(bus) == 1


async def test_work_stays_waiting_after_a_lost_lease_and_behind_the_position_that_was_read(bus: Bus) -> None:
    session = await asked(bus)
    async with session.lease("recorder") as held:
        for wrong in (held.lease._replace(epoch=held.epoch + 1), held.lease._replace(agent="other")):
            await finish_recorded(bus.log, wrong, 1)
            assert await waiting(bus) == 1
        await session.publish(UserMessage.text("after it"))
        await finish_recorded(bus.log, held.lease, 1)
        assert await waiting(bus) == 1
        await finish_recorded(bus.log, held.lease, 2)
        assert await waiting(bus) == 0


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


# --- a recorder that is cancelled at each place where it waits -----------------------------------------------------

CALL = ToolCallBlock(id="c1", name="work", arguments={})


async def own_loop(session: Session) -> None:
    """Call a tool, then answer; what the model says follows from what it is shown."""
    async with Recorder(session) as recorder:
        while await recorder.wait_for_work(0):
            async with recorder.turn(model="m-1", tools=(), max_tokens=100) as turn:
                if turn.context.messages[-1].text_content() == "go":
                    await turn.answer(AssistantMessage(content=(CALL,), stop_reason="toolUse"), usage=USED)
                else:
                    turn.piece("So ")
                    await anyio.lowlevel.checkpoint()
                    turn.piece("it is.")
                    await turn.answer(usage=USED)
                for call in turn.calls:
                    async with turn.tool(call) as tool:
                        await anyio.lowlevel.checkpoint()
                        tool.result = "done"


async def check(session: Session) -> None:
    """The session is finished, each step is there once, and nothing is open."""
    log = await said(session)
    asked = await answers(session)
    good = [message for message in asked if not message.is_failed]
    assert [message.text_content() for message in good] == ["", "So it is."]
    assert len([text for text in log if text.startswith("result")]) == 1
    assert (log.count("agent.started"), log.count("agent.ended")) == (1, 1)
    turns = (await rebuild(session, TURNS)).state
    assert turns.running == ()
    assert all(turn.status in {"completed", "aborted"} for turn in turns.turns)
    usage = (await rebuild(session, USAGE)).state
    assert (usage.mismatch_count, usage.problems) == (0, 0)
    assert await session.open_messages() == []
    numbers = [TurnId(loop_id="s1.main.1", turn_index=index) for index in range(len(asked))]
    assert [message.turn_id for message in asked] == numbers


@pytest.mark.full
@pytest.mark.parametrize("moment", Moment)
async def test_a_recorder_cancelled_at_any_await_leaves_a_session_that_the_next_finishes(moment: Moment) -> None:
    at, is_cut = 0, True
    while is_cut:
        at += 1
        async with fresh_bus() as bus:
            session = bus.session("s1")
            await session.publish(UserMessage.text("go"))
            trial = await cut(partial(own_loop, session), at=at, moment=moment)
            assert trial.is_honest, (at, trial)
            is_cut = trial.is_cut
            with anyio.fail_after(SECONDS):
                await own_loop(session)
            try:
                await check(session)
            except AssertionError as error:
                raise AssertionError(f"cut at {at}, {moment}: {await said(session)}") from error
    assert at > 10
