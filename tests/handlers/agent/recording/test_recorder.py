"""An own loop that a recorder writes down: every view sees it as it sees a worker's."""

import pytest

from lanebus import AssistantMessage, Bus, Session, ToolCallBlock, Usage, UserMessage
from lanebus.agent import LoopLimits, Recorder, ToolSpec
from lanebus.errors import LeaseHeld
from lanebus.messages import RequestDefined, TurnStarted
from lanebus.projections import TURNS, USAGE, project
from tests.support.agent.logs import events_of, said, until

__all__ = ()

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
    assert await said(session) == [
        "user: hello",
        "agent.started",
        "agent.turn.started",
        "agent.message.started",
        "assistant stop: Hi.",
        "agent.message.ended",
        "agent.turn.ended",
        "agent.ended",
    ]
    (seen,) = (await project(session, TURNS)).state.turns
    assert (seen.status, seen.prompts, seen.model, seen.usage) == ("completed", (1,), "m-1", USED)
    assert (await project(session, USAGE)).state.total.usage == USED


async def test_usage_without_a_total_is_recorded_with_the_sum_of_its_parts(session: Session) -> None:
    await session.publish(UserMessage.text("hello"))
    async with Recorder(session) as recorder, recorder.turn(model="m-1") as turn:
        await turn.answer("Hi.", usage=Usage(input=10, output=2))
    found = (await project(session, USAGE)).state
    assert (found.total.usage.total_tokens, found.mismatch_count) == (12, 0)


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
    assert [(event.model, event.max_tokens, len(event.tools)) for event in told] == [
        ("m-1", 100, 1),
        ("m-1", 100, 0),
    ]
    begun = [event.request for event in await events_of(session, TurnStarted)]
    assert begun == [told[0].hash, told[0].hash, told[1].hash]


async def test_a_loop_ends_at_its_limit(session: Session) -> None:
    call = ToolCallBlock(id="c1", name="work", arguments={})
    await session.publish(UserMessage.text("hello"))
    async with Recorder(session, limits=LoopLimits(turns=2)) as recorder:
        number = 0
        while await recorder.wait_for_work(0):
            async with recorder.turn(model="m-1") as turn:
                number += 1
                await turn.answer(AssistantMessage(content=(call,), stop_reason="toolUse"))
                await turn.tool_result(call, {"number": number})
    assert number == 2
    assert (await said(session))[-2:] == ["user: [Agent stopped: turn limit of 2 reached]", "agent.ended"]


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
