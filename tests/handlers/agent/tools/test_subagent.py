"""Sub-agents: a session for each call, found again after a crash, and ended with the call."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count

import anyio
import pytest

from lanebus import AssistantMessage, Bus, Session, TextBlock, ToolCallBlock, ToolResultMessage, Usage, UserMessage
from lanebus.agent import Agent, AgentLoop, DuplicateAgent, ModelEvent, ModelRequest, Reject, Run, SubAgent, Worker
from lanebus.handlers.agent.tools.subagent import agents_of, cancel_children, child_id
from lanebus.messages import Abort, AgentEnded, ControlAnswered, Pause, Resume, SessionLinked, ToolEnded, TurnStarted
from tests.support.agent.agents import SECONDS, ScriptedModel, Step, answer, calls, fresh_bus, take_run
from tests.support.agent.agents import Pause as Gate
from tests.support.agent.logs import events_of, results, said, wait_for
from tests.support.agent.runs import ask
from tests.support.laws.cancelling import Moment, Trial, cut
from tests.support.servers.real import background

CHILD = child_id("s1", "s1.main.1#0.0")


def asks(task: str = "count the walls", id: str = "c1", name: str = "helper") -> ToolCallBlock:
    return ToolCallBlock(id=id, name=name, arguments={"task": task})


def sub(agent: Agent | None, name: str = "helper", **options: int) -> SubAgent:
    return SubAgent(name, agent, "Does what it is told.", **options)


def parent(model: ScriptedModel, *tools: SubAgent) -> AgentLoop:
    return AgentLoop(model, tools)


@asynccontextmanager
async def working(bus: Bus, *agents: Agent, concurrency: int = 1) -> AsyncGenerator[None, None]:
    """Run a worker for each agent within the block."""
    async with background() as tasks:
        for number, agent in enumerate(agents):
            worker = Worker(bus, agent, name=f"w{number}", concurrency=concurrency, heartbeat=60)
            tasks.start_soon(worker.run)
        with anyio.fail_after(SECONDS):
            yield


async def calling(bus: Bus, tool: SubAgent, *wanted: ToolCallBlock, concurrency: int = 1) -> list[ToolResultMessage]:
    """Let an agent of the session `s1` call its sub-agent. Return the results when its loop has ended."""
    session = bus.session("s1")
    await ask(session)
    agent = parent(ScriptedModel(calls(*wanted or (asks(),)), answer("Ok.")), tool)
    async with working(bus, agent, concurrency=concurrency):
        await wait_for(session, "agent.ended")
    return await results(session)


async def test_the_childs_last_answer_is_the_calls_result_and_both_logs_have_the_link(bus: Bus) -> None:
    session, child = bus.session("s1"), bus.session(CHILD)
    (result,) = await calling(bus, sub(AgentLoop(ScriptedModel(answer("Four walls.")))))
    entries = await said(session)
    places = [entries.index(text) for text in ("agent.tool.started", "agent.session.linked", "result: Four walls.")]
    assert (result.text_content(), places) == ("Four walls.", sorted(places))
    assert "assistant stop: Ok." in entries
    assert (await said(child))[:2] == ["agent.session.linked", "user: count the walls"]
    (link,) = here = await events_of(session, SessionLinked)
    assert here == await events_of(child, SessionLinked)
    assert (link.parent, link.child, link.agent, link.depth) == ("s1", CHILD, "helper", 1)
    assert (str(link.turn_id), link.tool_call_id) == ("s1.main.1#0", "c1")
    assert [event.child_loop_id for event in await events_of(session, ToolEnded)] == [f"{CHILD}.main.1"]
    assert [event.trigger for event in await events_of(child, TurnStarted)] == ["subAgent"]


async def test_children_of_one_turn_run_concurrently_with_results_in_order(bus: Bus, session: Session) -> None:
    class Meets(ScriptedModel):
        """Answers when both children are running."""

        def __init__(self) -> None:
            super().__init__()
            self.both = anyio.Event()

        async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
            self.requests.append(request)
            if len(self.requests) == 2:
                self.both.set()
            await self.both.wait()
            yield AssistantMessage.text(request.context.messages[-1].text_content().upper())

    found = await calling(bus, sub(AgentLoop(Meets())), asks("one", "c1"), asks("two", "c2"), concurrency=2)
    assert [result.text_content() for result in found] == ["ONE", "TWO"]


async def test_one_slot_suffices_for_three_generations_up_to_max_depth(bus: Bus) -> None:
    (refused,) = await calling(bus, sub(None), asks(""))
    assert refused.is_error
    assert len(await bus.sessions()) == 1, "a call without a task begins no child"
    for depth, text in ((8, "Bricks."), (1, "Agents are nested 1 deep already: do it without mason.")):
        async with fresh_bus() as other:
            mason = sub(AgentLoop(ScriptedModel(answer("Bricks."))), "mason", max_depth=depth)
            script = ScriptedModel(calls(asks("of what?", name="mason")), answer("Four, of bricks."))
            (result,) = await calling(other, sub(AgentLoop(script, (mason,))))
            assert result.text_content() == "Four, of bricks."
            (inner,) = await results(other.session(CHILD))
            assert (inner.is_error, inner.text_content()) == (depth == 1, text)
            links = await events_of(other.session(CHILD), SessionLinked)
            begun = [(link.agent, link.depth) for link in links if link.parent == CHILD]
            assert begun == [("mason", 2)] * (depth != 1)


async def test_a_turn_begins_at_most_max_children(bus: Bus) -> None:
    helper = AgentLoop(ScriptedModel(answer("a"), answer("b")))
    wanted = [asks(str(number), f"c{number}") for number in range(4)]
    found = await calling(bus, sub(helper, max_children=2), *wanted)
    assert [result.is_error for result in found] == [False, False, True, True]
    assert len(await bus.sessions()) == 3


# --- what may go wrong ------------------------------------------------------------------------------------------------


BROKEN = AssistantMessage(stop_reason="error", error_message="no network")
REFUSED = AssistantMessage(content=(TextBlock(text="I must not."),), stop_reason="guardRail")


async def breaks(run: Run) -> None:
    raise RuntimeError(f"no {run.session.id[:2]}")


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        (AgentLoop(ScriptedModel([BROKEN])), "helper ended without a result: error\nno network"),
        (AgentLoop(ScriptedModel([REFUSED])), "helper ended without a result: guardRail\nI must not."),
        (breaks, "RuntimeError: no s1"),
    ],
    ids=["error", "guardRail", "raises"],
)
async def test_a_child_that_fails_is_an_error_for_its_parent(bus: Bus, agent: Agent, told: str) -> None:
    (result,) = await calling(bus, sub(agent))
    assert (result.is_error, told in result.text_content()) == (True, True)


async def begun(bus: Bus, session: Session) -> Session:
    """Wait until the parent waits for its child, and return the child."""
    child = bus.session(CHILD)
    await wait_for(session, "agent.session.linked")
    await wait_for(child, "user")
    return child


@pytest.mark.parametrize("end", ["closed", "erased"])
async def test_a_closed_or_erased_child_is_an_error_for_its_parent(bus: Bus, session: Session, end: str) -> None:
    await ask(session)
    async with working(bus, parent(ScriptedModel(calls(asks()), answer("Ok.")), sub(None))):
        child = await begun(bus, session)
        await (child.close(reason="enough") if end == "closed" else child.erase())
        await wait_for(session, "agent.ended")
    (result,) = await results(session)
    assert result.is_error
    assert result.text_content().startswith("Unknown outcome: helper was started, but its session failed before")
    assert end in result.text_content()


async def test_a_child_that_takes_too_long_is_aborted(bus: Bus) -> None:
    (result,) = await calling(bus, SubAgent("helper", None, "", seconds=0.2))
    cause = "Unknown outcome: helper was started, but it was stopped after 0.2 s, before a result came."
    assert (result.is_error, result.text_content().startswith(cause)) == (True, True)
    assert (await said(bus.session(CHILD)))[-1] == "control.abort"


async def test_a_child_that_waits_for_a_person_is_waited_for(bus: Bus, session: Session) -> None:
    await ask(session)
    gate = Gate()
    helper = AgentLoop(ScriptedModel([gate, *calls(asks(name="none"))], answer("Four walls.")))
    async with working(bus, parent(ScriptedModel(calls(asks()), answer("Four.")), sub(helper)), concurrency=2):
        child = bus.session(CHILD)
        await gate.reached.wait()
        await child.publish(Pause().as_extension())
        gate.over.set()
        await wait_for(child, "agent.ended")  # as paused
        assert "agent.ended" not in await said(session)
        await child.publish(Resume().as_extension())
        await wait_for(session, "agent.ended")
    assert [event.stop_reason for event in await events_of(child, AgentEnded)] == ["paused", "stop"]
    assert [result.text_content() for result in await results(session)] == ["Four walls."]


# --- crashes and commands ---------------------------------------------------------------------------------------------


async def test_a_repeated_call_finds_the_existing_child(bus: Bus, session: Session) -> None:
    await ask(session)
    child = bus.session(CHILD)
    agent = parent(ScriptedModel(calls(asks()), answer("Four.")), sub(None))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(agent, await take_run(session))
        await begun(bus, session)
        tasks.cancel_scope.cancel()  # the worker is stopped
    helper = AgentLoop(ScriptedModel(answer("Four walls.")))
    await helper(await take_run(child))
    await agent(await take_run(session))
    assert [result.text_content() for result in await results(session)] == ["Four walls."]
    for log in (session, child):
        assert (await said(log)).count("agent.session.linked") == 1
    assert (await said(child)).count("user: count the walls") == 1
    assert "control.abort" not in await said(child), "a worker that is stopped leaves the child to itself"


@pytest.mark.full
@pytest.mark.parametrize("moment", list(Moment))
async def test_a_call_cancelled_at_any_await_begins_one_child(bus: Bus, moment: Moment) -> None:
    cuts = 0
    for at in count(1):
        session = bus.session(f"s{at}")
        child = bus.session(child_id(session.id, f"{session.id}.main.1#0.0"))
        await ask(session)
        trial = Trial[None](moment)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer_in, child)
            run = await take_run(session)
            agent = parent(ScriptedModel(calls(asks()), answer("Four.")), sub(None))
            trial = await cut(partial(agent, run), at=at, moment=moment)
            assert trial.is_honest
            again = parent(ScriptedModel(*_rest(await said(session))), sub(None))
            await again(await take_run(session))
        assert [result.text_content() for result in await results(session)] == ["Four walls."]
        for log in (session, child):
            assert (await said(log)).count("agent.session.linked") == 1
        assert (await said(child)).count("agent.ended") == 1
        cuts += trial.is_cut
        if not trial.is_cut:
            break
    assert cuts > 20


async def answer_in(child: Session) -> None:
    """Run a child when it has its task."""
    await wait_for(child, "user")
    await AgentLoop(ScriptedModel(answer("Four walls.")))(await take_run(child))


def _rest(entries: Sequence[str]) -> list[list[Step]]:
    """The remaining answers of the model."""
    script = [calls(asks()), answer("Four.")]
    return script[sum(text.startswith(("assistant toolUse", "assistant stop")) for text in entries) :]


async def test_an_abort_of_the_parent_aborts_the_child(bus: Bus, session: Session) -> None:
    child = bus.session(CHILD)
    await ask(session)
    agent = parent(ScriptedModel(calls(asks("one", "c1"), asks("two", "c2"))), sub(None))
    await stopped(agent, bus, session)
    await session.publish(Abort(by="anna").as_extension())
    await agent(await take_run(session))
    assert [event.stop_reason for event in await events_of(session, AgentEnded)] == ["aborted"]
    second = bus.session(child_id("s1", "s1.main.1#0.1"))
    for each in (child, second):
        assert (await said(each))[-1] == "control.abort"
    # Again, as after a crash before the command was answered.
    await cancel_children(await take_run(session), (await (await take_run(session)).refresh()).status)
    assert (await said(child)).count("control.abort") == 1
    await AgentLoop(ScriptedModel())(await take_run(child))
    (answered,) = await events_of(child, ControlAnswered)
    assert answered.outcome == "applied"
    assert (await said(child))[-1] != "control.abort"


async def test_a_child_that_gave_its_result_is_not_aborted_with_the_others(bus: Bus, session: Session) -> None:
    child = bus.session(CHILD)
    await ask(session)
    agent = parent(ScriptedModel(calls(asks("one", "c1"), asks("two", "c2"))), sub(None))
    async with background() as tasks:
        tasks.start_soon(agent, await take_run(session))
        await answer_in(child)
        await wait_for(session, "result")
        await wait_for(session, "agent.session.linked", 2)
    await session.publish(Abort().as_extension())
    await agent(await take_run(session))
    assert "control.abort" not in await said(child)
    assert (await said(bus.session(child_id("s1", "s1.main.1#0.1"))))[-1] == "control.abort"


async def stopped(agent: AgentLoop, bus: Bus, session: Session) -> None:
    """Run an agent until its children wait for a worker, and stop it."""
    async with background() as tasks:
        tasks.start_soon(agent, await take_run(session))
        await wait_for(session, "agent.session.linked", 2)
        for place in range(2):
            await wait_for(bus.session(child_id(session.id, f"{session.id}.main.1#0.{place}")), "user")


async def test_two_agents_of_one_name_are_refused() -> None:
    one, other = AgentLoop(ScriptedModel()), AgentLoop(ScriptedModel())
    assert agents_of((sub(one), sub(None, "far"))) == {"helper": one}
    inner = AgentLoop(ScriptedModel(), (sub(one),))
    assert AgentLoop(ScriptedModel(), (sub(inner, "inner"), sub(one))).agents == {"inner": inner, "helper": one}
    with pytest.raises(DuplicateAgent):
        agents_of((sub(inner, "inner"), sub(other)))


def test_a_childs_id_is_a_sessions_id_and_the_same_for_the_same_call() -> None:
    long = "p" * 64
    assert child_id(long, "a") == child_id(long, "a") != child_id(long, "b")
    assert len(child_id(long, "a")) == 64
    assert child_id("s", "a").startswith("s-")
    assert child_id("x" * 43 + "1", "a") != child_id("x" * 43 + "2", "a")


async def test_texts_of_a_childs_events_do_not_reach_the_parents_model() -> None:
    """A guard's reason does: it is in the loop's note to models."""

    async def never(prompts: Sequence[UserMessage]) -> Reject:
        del prompts
        return Reject("not today")

    for rejected in (False, True):
        helper = AgentLoop(ScriptedModel(), guards=(never,)) if rejected else None
        async with fresh_bus() as bus:
            session, child = bus.session("s1"), bus.session(CHILD)
            await ask(session)
            async with working(bus, parent(ScriptedModel(calls(asks()), answer("Oh.")), sub(helper))):
                if not rejected:
                    await wait_for(child, "user: ")
                    ended = AgentEnded(
                        loop_id="x", stop_reason="guardRail", turns=0, usage=Usage(), rejection="canary-e51b"
                    )
                    await child.publish(ended.as_extension())
                await wait_for(session, "agent.ended")
            (result,) = await results(session)
            told = "helper ended without a result: guardRail"
            assert result.text_content() == (
                f"{told}\n[Agent stopped: input rejected: not today]" if rejected else told
            )
