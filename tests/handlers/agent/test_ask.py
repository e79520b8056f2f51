"""`ask`: publish a user message, and wait for the end of the loop that answers it."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest

from lanebus import AssistantMessage, ToolCallBlock, UserMessage
from lanebus.agent import (
    AgentLoop,
    LoopFailed,
    ModelFailure,
    PersonNeeded,
    Reject,
    RunBounds,
    ToolReply,
    Unanswered,
    ask,
    pause,
    resume,
    tool,
)
from lanebus.bus import Bus, RetryPolicy, Session
from lanebus.handlers.agent import Agent, AnswerTimeout, LoopLimits, Run, Worker, answered, approve, follow_up
from lanebus.handlers.agent.commands import find_delay
from lanebus.handlers.agent.models.model import with_failure
from tests.support.agent.agents import SECONDS, Pause, ScriptedModel, answer, calls, fresh_bus
from tests.support.agent.logs import said, wait_for
from tests.support.laws.cancelling import Moment, Trial, cut

CALL = ToolCallBlock(id="c1", name="look")


@tool
async def look() -> str:
    """Look around."""
    return "A wall."


@tool(name="look", approval=True)
async def asks_first() -> str:
    """Look around, if a person agrees."""
    return "A wall."


@asynccontextmanager
async def working(agent: Agent) -> AsyncGenerator[tuple[Bus, Session], None]:
    """A session of a fresh bus with a worker."""
    with anyio.fail_after(SECONDS):
        async with fresh_bus() as bus, Worker(bus, agent, heartbeat=60):
            yield bus, bus.session("s1")


async def questions(session: Session) -> list[str]:
    return [text for text in await said(session) if text.startswith("user")]


async def test_each_question_gets_its_own_answer() -> None:
    first = Pause()
    model = ScriptedModel([first, *answer("One.")], answer("Two."), answer("Three."))
    async with working(AgentLoop(model)) as (_, session):
        found: dict[str, str] = {}

        async def one(text: str) -> None:
            found[text] = (await ask(session, text)).text_content()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one, "1?")
            await first.reached.wait()
            tasks.start_soon(one, "2?")  # the model does not read it: it is answering
            await wait_for(session, "user: 2?")
            first.over.set()
        assert found == {"1?": "One.", "2?": "Two."}
        assert (await ask(session, UserMessage.text("3?"))).text_content() == "Three."


async def test_a_deferred_question_is_answered_by_the_next_loop() -> None:
    runs = Pause()

    @tool(name="look")
    async def looks() -> str:
        await runs.wait()
        return "A wall."

    model = ScriptedModel(calls(CALL), answer("One."), answer("Two."))
    async with working(AgentLoop(model, (looks,))) as (_, session):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, session, "1?")
            await runs.reached.wait()
            await follow_up(session, "2?", key="late")  # the answer to the first one stands after it, and leaves it out
            runs.over.set()
        assert (await ask(session, "2?", key="late")).text_content() == "Two."


async def test_a_repeat_with_the_key_returns_the_same_answer_also_in_a_paused_session() -> None:
    async with working(AgentLoop(ScriptedModel(answer("One."), answer("Two.")))) as (_, session):
        assert (await ask(session, "1?", key="k")).text_content() == "One."
        assert (await ask(session, "2?")).text_content() == "Two."
        assert (await ask(session, "1?", key="k")).text_content() == "One."
        assert await questions(session) == ["user: 1?", "user: 2?"]
        await answered(session, await pause(session))
        assert (await ask(session, "1?", key="k")).text_content() == "One."


@pytest.mark.parametrize(("terminate", "text"), [(True, "A wall."), (False, "I see a wall.")])
async def test_the_last_answer_is_returned_after_the_tools_or_if_they_end_the_loop(terminate: bool, text: str) -> None:
    @tool(name="look")
    async def ends() -> ToolReply:
        return ToolReply("A wall.", terminate=terminate)

    async with working(AgentLoop(ScriptedModel(calls(CALL), answer("I see a wall.")), (ends,))) as (_, session):
        found = await ask(session, "What do you see?")
        assert (found.text_content(), found.stop_reason) == (text, "stop")
        assert (await said(session))[-1] == "agent.ended"


async def test_an_agent_that_is_a_function_answers_without_a_loop() -> None:
    async def agent(run: Run) -> None:
        await run.publish(AssistantMessage.text("Yes."), key=f"answer.{run.position}")

    async with working(agent) as (_, session):
        assert (await ask(session, "Are you there?")).text_content() == "Yes."


async def test_a_failure_that_is_retried_is_no_answer() -> None:
    failed = with_failure(AssistantMessage(stop_reason="error", error_message="busy"), ModelFailure(is_transient=True))
    agent = AgentLoop(ScriptedModel([failed], answer("Yes.")), retry=RetryPolicy(attempts=3, base=0.0))
    async with working(agent) as (_, session):
        assert (await ask(session, "hello")).text_content() == "Yes."
        assert "assistant error: " in await said(session)


# --- no answer ----------------------------------------------------------------------------------------------------


async def test_a_failed_model_is_an_error_with_its_text() -> None:
    failed = AssistantMessage(stop_reason="error", error_message="no such model")
    async with working(AgentLoop(ScriptedModel([failed]))) as (_, session):
        with pytest.raises(LoopFailed, match="no such model: ask again under a new key") as caught:
            await ask(session, "hello")
        assert (caught.value.stop_reason, caught.value.reason) == ("error", "no such model")
        assert (caught.value.session, caught.value.position) == ("s1", 1)


async def no_shouting(prompts: Sequence[UserMessage]) -> Reject | None:
    return Reject("no shouting") if prompts[0].text_content().isupper() else None


@pytest.mark.parametrize(
    ("text", "reason", "stop_reason"),
    [("What do you see?", "Agent stopped: turn limit of 1", "maxTurns"), ("HELLO", "no shouting", "guardRail")],
)
async def test_a_limit_or_a_rejection_is_an_error_with_its_text(text: str, reason: str, stop_reason: str) -> None:
    agent = AgentLoop(ScriptedModel(calls(CALL)), (look,), limits=LoopLimits(turns=1), guards=(no_shouting,))
    async with working(agent) as (_, session):
        with pytest.raises(LoopFailed, match=reason) as caught:
            await ask(session, text)
        assert caught.value.stop_reason == stop_reason


async def test_a_call_that_waits_for_approval_is_told_and_the_key_resumes_the_wait() -> None:
    runs = Pause()

    @tool(name="look", approval=True)
    async def looks() -> str:
        await runs.wait()
        return "A wall."

    async with working(AgentLoop(ScriptedModel(calls(CALL), answer("I see a wall.")), (looks,))) as (_, session):
        with pytest.raises(PersonNeeded, match=r"approve or deny look \(c1\)"):
            await ask(session, "What do you see?", key="k")
        with pytest.raises(PersonNeeded) as caught:
            await ask(session, "What do you see?", key="k")
        (waiting,) = caught.value.waiting
        await approve(session, waiting.turn_id, waiting.tool_call_id)
        with pytest.raises(AnswerTimeout):  # whether the worker has read the approval or not
            await ask(session, "What do you see?", key="k", seconds=0.2)
        await runs.reached.wait()
        with pytest.raises(AnswerTimeout):
            await ask(session, "What do you see?", key="k", seconds=0.2)
        runs.over.set()
        assert (await ask(session, "What do you see?", key="k")).text_content() == "I see a wall."
        assert len(await questions(session)) == 1


async def test_a_call_that_waits_since_before_the_question_does_not_delay_it(bus: Bus, session: Session) -> None:
    model = ScriptedModel(calls(CALL), answer("Never mind."))
    async with Worker(bus, AgentLoop(model, (asks_first,)), heartbeat=60):
        with pytest.raises(PersonNeeded):
            await ask(session, "What do you see?")
    with pytest.raises(AnswerTimeout):  # no worker has skipped the call yet
        await ask(session, "Forget it.", key="k", seconds=0.2)
    async with Worker(bus, AgentLoop(model, (asks_first,)), heartbeat=60):
        assert (await ask(session, "Forget it.", key="k")).text_content() == "Never mind."


async def test_a_paused_session_is_told_and_the_key_resumes_the_wait(bus: Bus, session: Session) -> None:
    agent = AgentLoop(ScriptedModel(answer("Yes.")))
    async with Worker(bus, agent, heartbeat=60):
        await answered(session, await pause(session))
        with pytest.raises(PersonNeeded, match="resume the session") as caught:
            await ask(session, "hello", key="k")
        assert caught.value.waiting == ()
    await resume(session)
    with pytest.raises(AnswerTimeout):  # no worker has read the command yet
        await ask(session, "hello", key="k", seconds=0.2)
    async with Worker(bus, agent, heartbeat=60):
        assert (await ask(session, "hello", key="k")).text_content() == "Yes."


async def test_a_loop_that_is_paused_and_resumed_is_waited_for() -> None:
    runs = Pause()

    @tool(name="look")
    async def looks() -> str:
        await runs.wait()
        return "A wall."

    agent = AgentLoop(ScriptedModel(calls(CALL), answer("I see a wall.")), (looks,))
    async with working(agent) as (_, session):
        async with anyio.create_task_group() as tasks:

            async def ask_and_fail() -> None:
                with pytest.raises(PersonNeeded, match="resume the session"):
                    await ask(session, "What do you see?", key="k")

            tasks.start_soon(ask_and_fail)
            await runs.reached.wait()
            await pause(session)
            runs.over.set()
        await answered(session, await resume(session))
        assert (await ask(session, "What do you see?", key="k")).text_content() == "I see a wall."


async def test_the_cause_of_a_delay_is_what_the_server_tells(bus: Bus) -> None:
    tool_gate, model_gate = Pause(), Pause()

    @tool(name="look")
    async def waits() -> str:
        """Look around."""
        await tool_gate.wait()
        return "A wall."

    bounds = RunBounds(delay_seconds=SECONDS)
    with anyio.fail_after(SECONDS):
        busy, other = bus.session("s1"), bus.session("s2")
        await busy.publish(UserMessage.text("hello"))
        assert await find_delay(busy, bounds=bounds) == ("unserved", "no worker serves the agent 'agent'")
        agent = AgentLoop(ScriptedModel(calls(CALL), [model_gate, *answer("A wall.")]), (waits,))
        async with Worker(bus, agent, concurrency=1, heartbeat=60):
            await tool_gate.reached.wait()
            await other.publish(UserMessage.text("hello"))
            found = await find_delay(busy, bounds=bounds)
            assert found == ("running", "it waits for the running turn, in which look runs")
            assert (await find_delay(other, bounds=bounds)).cause == "waiting"
            tool_gate.over.set()
            await model_gate.reached.wait()
            assert await find_delay(busy, bounds=bounds) == ("running", "it waits for the running turn")


async def test_a_time_out_leaves_the_question_and_the_key_resumes_the_wait(bus: Bus, session: Session) -> None:
    with pytest.raises(AnswerTimeout, match=r"within 0.01 s") as caught:
        await ask(session, "hello", key="k", seconds=0.01)
    assert isinstance(caught.value, Unanswered)
    assert await said(session) == ["user: hello"]
    async with Worker(bus, AgentLoop(ScriptedModel(answer("Yes."))), heartbeat=60):
        assert (await ask(session, "hello", key="k", seconds=SECONDS)).text_content() == "Yes."


@pytest.mark.parametrize("moment", Moment)
async def test_ask_can_be_cancelled_at_any_await_and_the_key_resumes_it(moment: Moment) -> None:
    async def agent(run: Run) -> None:
        await run.publish(AssistantMessage.text("Yes."), key=f"answer.{run.position}")

    cuts = 0
    async with working(agent) as (bus, _):
        while True:
            session = bus.session(f"s{cuts}")
            trial: Trial[AssistantMessage] = await cut(
                partial(ask, session, "hello", key="k"), at=cuts + 1, moment=moment
            )
            assert trial.is_honest
            assert (await ask(session, "hello", key="k")).text_content() == "Yes."
            assert await said(session) == ["user: hello", "assistant stop: Yes."]
            if not trial.is_cut:
                break
            cuts += 1
    assert cuts > 3
