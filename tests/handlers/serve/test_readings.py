"""The oldest run and the oldest question to a person are found in all sessions, whichever process works on them."""

import pytest

from lanebus import Bus, ExtensionMessage, Session, UserMessage
from lanebus.agent import AgentLoop, OfflineModel, Recorder, Worker, deny, tool
from lanebus.handlers.serve.readings import MonitorBounds, OpenWork, OpenWorkReader
from lanebus.messages import Approve, ControlAnswered, ToolWaiting, TurnId, parse_event
from tests.support.agent.agents import until, wait_for
from tests.support.page.samples import begun

TINY = MonitorBounds(open_seconds=1e-9, open_entries=1, open_heads=1, open_sessions=1, open_bytes=1)


@tool(approval=True)
async def roll_dice(count: int, sides: int) -> int:
    """Roll dice.

    Args:
        count: how many dice.
        sides: of each.
    """
    return count * sides // 2


ASKING = AgentLoop(OfflineModel(delay=0), (roll_dice,), name="asking")


async def begin(session: Session, *calls: str) -> TurnId:
    """Begin a loop whose `calls` wait for a person."""
    await session.publish(UserMessage.text("hi"), *begun(session.id, *calls))
    return TurnId(loop_id=f"{session.id}.main.1", turn_index=0)


async def questions(session: Session) -> list[tuple[ToolWaiting, float]]:
    """The session's questions, and when they were asked."""
    return [
        (event, envelope.time)
        async for envelope in session.read(kinds={ToolWaiting.KIND})
        if isinstance(envelope.message, ExtensionMessage)
        and isinstance(event := parse_event(envelope.message), ToolWaiting)
    ]


async def pass_time(bus: Bus, seconds: float) -> None:
    """Wait until the server's clock has moved on."""
    begun = (await bus.activity()).time

    async def is_over() -> bool:
        return (await bus.activity()).time >= begun + seconds

    await until(is_over)


async def found(reader: OpenWorkReader) -> OpenWork:
    """Read until all sessions were read."""
    work = await reader.read()
    while not reader.is_complete:
        work = await reader.read()
    return work


@pytest.mark.parametrize("bounds", [MonitorBounds(), TINY], ids=["defaults", "tiny"])
async def test_a_question_of_a_worker_counts_with_its_age_until_it_is_answered(bus: Bus, bounds: MonitorBounds) -> None:
    async with Worker(bus, ASKING):
        reader, session = OpenWorkReader(bus, bounds), bus.session("s", agent="asking")
        assert await found(reader) == OpenWork()
        await session.publish(UserMessage.text("Please roll 2d6."))
        await wait_for(session, ToolWaiting.KIND)
        await pass_time(bus, 0.1)
        for each in (reader, OpenWorkReader(bus, bounds)):  # the second reads what the worker has stored
            before = (await bus.activity()).time
            work = await found(each)
            ((waiting, asked),) = await questions(session)
            assert work.approvals == {"asking": 1}
            assert 0.1 <= before - asked <= work.approval_ages["asking"] <= (await bus.activity()).time - asked
        await deny(session, waiting.turn_id, waiting.tool_call_id)
        await wait_for(session, "agent.ended")
        assert (await found(reader)).approvals == {}


@pytest.mark.parametrize("bounds", [MonitorBounds(), TINY], ids=["defaults", "tiny"])
async def test_the_oldest_question_of_each_agent_is_found_among_many_sessions(bus: Bus, bounds: MonitorBounds) -> None:
    oldest = bus.session("oldest", agent="a")
    await begin(oldest, "c1", "c2")
    await pass_time(bus, 0.1)
    for number in range(8):
        await bus.session(f"idle-{number}", agent="a").publish(UserMessage.text("hi"))
        await begin(bus.session(f"asks-{number}", agent="b" if number % 2 else "a"), "c1")
    work = await found(OpenWorkReader(bus, bounds))
    assert work.approvals == {"a": 6, "b": 4}
    assert work.approval_ages["a"] >= work.approval_ages["b"] + 0.1


async def test_questions_of_erased_closed_and_damaged_sessions_do_not_count(bus: Bus) -> None:
    reader = OpenWorkReader(bus, MonitorBounds())
    sessions = [bus.session(name) for name in ("erased", "closed", "damaged", "kept")]
    for session in sessions:
        await begin(session, "c1")
    assert sum((await found(reader)).approvals.values()) == 4
    erased, closed, damaged, _ = sessions
    await erased.erase()
    await closed.close()
    await bus.log.call("HSET", bus.log.keys.head(damaged.id), "position", "no number")
    assert sum((await found(reader)).approvals.values()) == 1
    assert sum((await found(OpenWorkReader(bus, MonitorBounds()))).approvals.values()) == 1


async def test_a_question_of_a_session_that_was_handed_over_counts_for_its_new_agent(bus: Bus) -> None:
    reader, session = OpenWorkReader(bus, MonitorBounds()), bus.session("s", agent="a")
    await begin(session, "c1")
    assert (await found(reader)).approvals == {"a": 1}
    await session.hand_over("b")
    assert (await found(reader)).approvals == {"b": 1}


async def test_a_run_of_a_recorder_counts_while_it_has_the_session(bus: Bus) -> None:
    reader, session = OpenWorkReader(bus, MonitorBounds()), bus.session("s", agent="own")
    await session.publish(UserMessage.text("hi"))
    async with Recorder(session, agent="own") as recorder:
        assert (await found(reader)).runs == {}
        async with recorder.turn(model="m"):
            await pass_time(bus, 0.1)
            assert (await found(reader)).runs["own"] >= 0.1
            assert (await found(OpenWorkReader(bus, MonitorBounds()))).runs["own"] >= 0.1
    assert (await found(reader)).runs == {}  # its loop stays open, and no process works on it


async def test_a_run_that_goes_on_after_an_answer_is_as_old_as_the_answer(bus: Bus) -> None:
    reader, session = OpenWorkReader(bus, MonitorBounds()), bus.session("s", agent="a")
    turn = await begin(session, "c1")
    async with session.lease("w"):
        assert (await found(reader)).runs == {}
        await pass_time(bus, 0.1)
        command = await session.publish(Approve(turn_id=turn, tool_call_id="c1").as_extension())
        answered = ControlAnswered(control=command.position, outcome="applied")
        await session.publish(answered.as_extension())
        work, began = await found(reader), (await bus.session("s").head()).updated
        assert work.approvals == {}
        assert work.runs["a"] <= (await bus.activity()).time - began
