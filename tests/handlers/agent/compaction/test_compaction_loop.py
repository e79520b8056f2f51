"""A loop whose context grows too large is compacted, and the next loop continues it."""

import anyio
import pytest

from lanebus import AssistantMessage, Session, TextBlock, ToolCallBlock, Usage, UserMessage
from lanebus.agent import AgentLoop, CompactionPolicy, Compactor, tool
from lanebus.bus.messages import Abort, AgentEnded, AgentStarted, Compact, ControlAnswered
from tests.support.agent.agents import Pause, ScriptedModel, Step, answer, calls, take_run
from tests.support.agent.logs import events, events_of, said
from tests.support.agent.runs import work

__all__ = ()

LOOK = ToolCallBlock(id="c1", name="look")
TOO_LONG = AssistantMessage(stop_reason="error", error_message="prompt is too long: 2000 tokens > 1000 maximum")


@tool
async def look() -> str:
    """Look at the wall."""
    return "Paint."


def large(step: list[Step]) -> list[Step]:
    """The same answer with the usage of a request that nearly fills the window."""
    whole = step[-1]
    assert isinstance(whole, AssistantMessage)
    return [*step[:-1], whole.model_copy(update={"usage": Usage(input=990)})]


def agent(model: ScriptedModel, writer: ScriptedModel, window: int | None = 1_000) -> AgentLoop:
    policy = CompactionPolicy(window=window, reserve=100, keep_recent=60, model=writer)
    return AgentLoop(model, (look,), compaction=Compactor(model, policy))


def writer(*texts: str) -> ScriptedModel:
    return ScriptedModel(*([AssistantMessage(content=(TextBlock(text=text),), usage=Usage(input=7))] for text in texts))


async def finish(session: Session, loop: AgentLoop) -> None:
    await work(loop, await take_run(session))


async def old_talk(session: Session) -> None:
    await session.publish(UserMessage.text("An old question. " * 20), AssistantMessage.text("An old answer. " * 20))
    await session.publish(UserMessage.text("What is there?"))


async def test_a_loop_is_compacted_between_turns_and_the_next_loop_has_it_as_parent(session: Session) -> None:
    await old_talk(session)
    model = ScriptedModel(large(calls(LOOK)), answer("There is paint."))
    await finish(session, agent(model, writer("They talked.")))
    entries = await said(session)
    assert entries[entries.index("result: Paint.") :] == [
        "result: Paint.",
        "agent.tool.ended",
        "agent.turn.ended",
        "agent.compaction.started",
        "Compaction",
        "agent.compaction.ended",
        "agent.ended",
        "agent.started",
        "agent.turn.started",
        "agent.message.started",
        "assistant stop: There is paint.",
        "agent.message.ended",
        "agent.turn.ended",
        "agent.ended",
    ]
    found = await events(session)
    ended = [event for event in found if isinstance(event, AgentEnded)]
    assert [(each.loop_id, each.stop_reason, each.turns) for each in ended] == [
        ("s1.main.1", "contextCompacted", 1),
        ("s1.main.2", "stop", 1),
    ]
    begun = [event for event in found if isinstance(event, AgentStarted)]
    assert (begun[1].continuation, begun[1].parent_loop_id) == ("compaction", "s1.main.1")
    shown = [message.text_content() for message in model.requests[1].context.messages]
    assert "They talked." in shown[0]
    assert shown[1:] == ["What is there?", "", "Paint."]


@pytest.mark.parametrize(
    ("again", "end"), [(answer("Paint."), "stop"), ([TOO_LONG], "error")], ids=["fits", "does not"]
)
async def test_a_request_that_was_too_long_is_sent_again_after_one_compaction(
    session: Session, again: list[Step], end: str
) -> None:
    await old_talk(session)
    await finish(session, agent(ScriptedModel([TOO_LONG], again), writer("They talked."), window=None))
    assert (await said(session)).count("Compaction") == 1
    assert [event.stop_reason for event in await events_of(session, AgentEnded)] == ["contextCompacted", end]


async def test_a_compact_command_waits_for_the_end_of_the_turn(session: Session) -> None:
    await old_talk(session)

    @tool(name="look")
    async def asks_for_it() -> str:
        await session.publish(Compact().as_extension())
        return "Paint."

    model = ScriptedModel(calls(LOOK), answer("There is paint."))
    policy = CompactionPolicy(window=1_000, keep_recent=60, model=writer("They talked."))
    await finish(session, AgentLoop(model, (asks_for_it,), compaction=Compactor(model, policy)))
    entries = await said(session)
    at = entries.index("control.compact")
    assert entries[at + 1 :][:7] == [
        "result: Paint.",
        "agent.tool.ended",
        "agent.turn.ended",
        "agent.compaction.started",
        "Compaction",
        "agent.compaction.ended",
        "agent.ended",
    ]
    assert entries[-4] == "assistant stop: There is paint."


async def test_an_abort_after_a_compact_command_ends_the_compaction_for_good(session: Session) -> None:
    await old_talk(session)
    model = ScriptedModel(answer("Paint."))
    await finish(session, agent(model, writer()))
    summing = Pause()
    summaries = ScriptedModel([summing, AssistantMessage(content=(TextBlock(text="They talked."),))])
    await session.publish(UserMessage.text("And now?"), Compact().as_extension())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(finish, session, agent(model, summaries))
        await summing.reached.wait()
        await session.publish(Abort().as_extension())
    assert len(summaries.requests) == 1
    answers = [event.outcome for event in await events_of(session, ControlAnswered)]
    assert answers == ["late", "applied"]


async def test_an_abort_of_another_loop_does_not_stop_a_compaction(session: Session) -> None:
    await old_talk(session)
    await finish(session, agent(ScriptedModel(answer("Paint.")), writer()))
    await session.publish(Compact().as_extension(), Abort(loop_id="s1.main.9").as_extension())
    await finish(session, agent(ScriptedModel(), writer("They talked.")))
    answers = [event.outcome for event in await events_of(session, ControlAnswered)]
    assert answers == ["applied", "late"]
