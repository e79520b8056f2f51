"""Workers serve agents by name: each session is answered by its own agent, also after a handover."""

import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import partial, wraps
from typing import Literal

import anyio
import pytest

from lanebus import Bus, Session
from lanebus.agent import Agent, AgentLoop, CallDecided, DuplicateAgent, SubAgent, ask, decide_call, pause, resume, tool
from lanebus.bus.messages import AssistantMessage, SessionAssigned, ToolCallBlock, TurnId, Usage, UserMessage
from lanebus.errors import InvalidArgument, InvalidName
from lanebus.handlers.agent import Run, Worker, approve, deny
from lanebus.handlers.projections import STATUS
from lanebus.messages import AgentEnded, AgentStarted, Approve, ControlAnswered, ToolStarted, ToolWaiting
from lanebus.projections import project
from tests.support.agent.agents import SECONDS, Pause, ScriptedModel, answer, calls, take_run
from tests.support.agent.logs import events_of, said, wait_for
from tests.support.agent.runs import called, work


class Says(ScriptedModel):
    """Answers with its own name each time."""

    def __init__(self, name: str) -> None:
        super().__init__(*[answer(f"I am {name}.")] * 100)


def loop(name: str, model: ScriptedModel | None = None, tools: Sequence[SubAgent] = ()) -> AgentLoop:
    return AgentLoop(model or Says(name), tools, name=name)


async def _answers(session: Session) -> list[str]:
    return [text for text in await said(session) if text.startswith("assistant")]


async def test_each_session_is_answered_by_its_own_agent(bus: Bus) -> None:
    agents = ("support", "billing", "triage")
    names = {f"s{number}": agents[number % 3] for number in range(12)}
    async with (
        Worker(bus, loop("support"), name="w1"),
        Worker(bus, loop("billing"), name="w2"),
        Worker(bus, loop("triage"), agents={"support": loop("support")}, name="w3"),
        Worker(bus, loop("billing"), name="w4"),
    ):
        for name, agent in names.items():
            await bus.session(name, agent=agent).publish(UserMessage.text("Who are you?"))
        for name in names:
            await wait_for(bus.session(name), "agent.ended")
        for name, agent in names.items():
            assert await _answers(bus.session(name)) == [f"assistant stop: I am {agent}."]


async def test_loops_without_a_name_have_the_name_that_serves_them(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    async def own(run: Run) -> None:
        loop_id = f"{run.session.id}.own.1"
        begun = AgentStarted(loop_id=loop_id, agent="own")
        ended = AgentEnded(loop_id=loop_id, stop_reason="stop", turns=0, usage=Usage())
        await run.publish(begun.as_extension(), AssistantMessage.text("Done."), ended.as_extension())

    helper = SubAgent("helper", AgentLoop(Says("helper")), "Helps.")
    call = ToolCallBlock(id="1", name="helper", arguments={"task": "?"})
    shop = AgentLoop(ScriptedModel(calls(call), answer("!")), [helper])
    named: dict[str, Agent] = {"shop": shop, "helper": AgentLoop(Says("helper")), "desk": own}
    caplog.set_level(logging.DEBUG)
    async with Worker(bus, AgentLoop(Says("agent")), agents=named) as worker:
        for name in ("agent", "shop", "desk"):
            session = bus.session(f"of-{name}", agent=name)
            await session.publish(UserMessage.text("hello"))
            await wait_for(session, "agent.ended")
    served = {"agent", *named}
    assert {agent for agent, _ in worker.counts.loops.sums} == served
    assert {agent for agent, _, _ in worker.counts.turns.sums} == served - {"desk"}
    began = await events_of(bus.session("of-shop"), AgentStarted)
    assert [each.agent for each in began] == ["shop"]
    told = {(vars(each)["event"], vars(each)["agent"]) for each in caplog.records if "event" in vars(each)}
    assert {agent for event, agent in told if event == "loop.begun"} == served
    assert {agent for event, agent in told if event == "loop.ended"} == served


async def test_a_worker_leaves_sessions_of_other_agents_alone(bus: Bus) -> None:
    own, other = bus.session("own"), bus.session("other", agent="files")
    for session in (other, own):
        await session.publish(UserMessage.text("hello?"))
    async with Worker(bus, AgentLoop(Says("agent"))) as worker:
        assert worker.agents == ("agent",)
        await wait_for(own, "agent.ended")
        await own.publish(UserMessage.text("again?"))
        await wait_for(own, "agent.ended", 2)
    assert await said(other) == ["user: hello?"]
    assert (await other.head()).epoch == 0


async def test_a_function_serves_the_default_agent_of_the_namespace(bus: Bus) -> None:
    async def echo(run: Run) -> None:
        snapshot = await run.refresh()
        await run.publish(*answer_to(snapshot.context.position))

    assert Worker(bus, echo).agents == ("agent",)
    await bus.set_default_agent("support")
    assert Worker(bus, echo).agents == ("support",)
    assert Worker(bus, loop("billing"), agents={"triage": echo}).agents == ("billing", "triage")


def answer_to(position: int) -> list[UserMessage]:
    return [UserMessage.text(f"after {position}")]


async def test_names_of_agents_are_checked_when_they_are_made(bus: Bus) -> None:
    for make in (lambda: loop("two words"), lambda: SubAgent("two words", None, "x")):
        with pytest.raises(InvalidName):
            make()
    with pytest.raises(InvalidName):
        Worker(bus, loop("a"), agents={"two words": loop("b")})
    with pytest.raises(DuplicateAgent):
        Worker(bus, loop("a"), agents={"a": loop("a")})


async def test_a_handover_ends_the_running_loop_and_the_next_begins(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    pause = Pause()
    held = ScriptedModel([pause, *answer("too late")], *[answer("too late")] * 10)
    async with Worker(bus, loop("support", held), name="w1", heartbeat=0.4):
        session = bus.session("s", agent="support")
        await session.publish(UserMessage.text("My invoice?"))
        with anyio.fail_after(120):
            await pause.reached.wait()
        await session.hand_over("billing", by="anna")
        caplog.set_level(logging.WARNING)
        async with Worker(bus, loop("billing"), name="w2", heartbeat=0.4):
            await wait_for(session, "agent.ended")
            pause.over.set()
            await session.publish(UserMessage.text("And now?"))
            await wait_for(session, "agent.ended", 2)
        answers = await _answers(session)
        assert [each for each in answers if "too late" in each] == []
        assert answers[-1] == "assistant stop: I am billing."
        assert [each.name for each in await bus.agents() if each.sessions] == ["billing"]
    errors = [record.name for record in caplog.records if record.levelno >= logging.ERROR]
    assert [name for name in errors if not name.endswith("agent.health")] == []  # a slow answer is no failure


async def test_the_session_of_a_sub_agent_belongs_to_the_sub_agent(bus: Bus) -> None:
    manager = ScriptedModel(
        calls(ToolCallBlock(id="c1", name="clerk", arguments={"task": "Who are you?"})), answer("Done.")
    )
    clerk = SubAgent("clerk", loop("clerk-model"), "Knows all.")
    session = bus.session("s", agent="manager")
    await session.publish(UserMessage.text("Ask the clerk."))
    async with Worker(bus, loop("manager", manager, (clerk,))) as worker:
        assert worker.agents == ("manager", "clerk")
        await wait_for(session, "agent.ended")
    assert await _by_agent(bus) == {"manager": ["s"], "clerk": [await _child(bus)]}


async def _by_agent(bus: Bus) -> dict[str, list[str]]:
    return {name: [head.session for head in await bus.sessions(agent=name)] for name in ("manager", "clerk")}


async def _child(bus: Bus) -> str:
    (name,) = [head.session for head in await bus.sessions() if head.session != "s"]
    return name


# --- agents that are functions -------------------------------------------------------------------------------------

PATIENT = 60.0


async def says_yes(run: Run) -> None:
    await run.publish(AssistantMessage.text("Yes."), key=f"answer.{run.position}")


def plain(run: Run) -> None:
    del run


def unannotated(run):  # type: ignore[no-untyped-def]  # as a user may write it
    return says_yes(run)  # pyright: ignore[reportUnknownArgumentType]


def generates(run: Run) -> Generator[Run, None, None]:
    yield run


class Plain:
    def __call__(self, run: Run) -> None:
        del run

    def method(self, run: Run) -> None:
        del run


class Async:
    async def __call__(self, run: Run) -> None:
        await says_yes(run)

    async def method(self, run: Run) -> None:
        await says_yes(run)


def awaitable(run: Run) -> Awaitable[None]:
    return says_yes(run)


@wraps(says_yes)
def wrapper(run: Run):  # type: ignore[no-untyped-def]  # as a decorator makes it
    return says_yes(run)


REFUSED: dict[str, object] = {
    "plain": plain,
    "unannotated": unannotated,
    "generator": generates,
    "object": Plain(),
    "method": Plain().method,
    "partial": partial(plain),
}
ACCEPTED: dict[str, Callable[[Run], Awaitable[None]]] = {
    "function": says_yes,
    "object": Async(),
    "method": Async().method,
    "partial": partial(says_yes),
    "awaitable": awaitable,
    "wrapper": wrapper,
    "lambda": lambda run: awaitable(run=run),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_function_that_cannot_be_awaited_is_refused_as_an_agent(bus: Bus, name: str) -> None:
    agent = REFUSED[name]
    with pytest.raises(InvalidArgument, match="async def"):
        Worker(bus, agent)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # what is tested
    with pytest.raises(InvalidArgument, match="async def"):
        SubAgent("helper", agent, "Helps.")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # same


@pytest.mark.parametrize("name", ACCEPTED)
async def test_a_function_that_returns_an_awaitable_is_an_agent(bus: Bus, name: str) -> None:
    async with Worker(bus, ACCEPTED[name], heartbeat=PATIENT):
        assert (await ask(bus.session("s1"), "hello?", seconds=SECONDS)).text_content() == "Yes."


async def test_an_agent_that_returns_nothing_to_await_fails_with_the_remedy(bus: Bus, session: Session) -> None:
    silent: Callable[[Run], object] = lambda run: None  # noqa: E731  # only a call shows what it returns
    async with Worker(bus, silent, heartbeat=PATIENT):  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # same
        await session.publish(UserMessage.text("hello?"))
        await wait_for(session, "assistant error")
        failed = [e.message async for e in session.read() if isinstance(e.message, AssistantMessage)][-1]
    assert "async def" in (failed.error_message or "")


# --- approvals of the agent that had the session ---------------------------------------------------------------


CALL = ToolCallBlock(id="c1", name="rm")
TURN = TurnId(loop_id="s1.main.1", turn_index=0)


def asking(name: str, ran: list[str], *, idempotent: bool = False) -> AgentLoop:
    def rm() -> str:
        ran.append(name)
        return "done"

    tools = (tool(approval=True, idempotent=idempotent)(rm),)
    return AgentLoop(ScriptedModel(*[answer("Ok.")] * 3), tools, name=name)


async def run_agent(session: Session, agent: AgentLoop) -> None:
    await work(agent, await take_run(session))


async def begin(session: Session) -> None:
    """Publish the log of a call that waits for a person."""
    await session.publish(UserMessage.text("delete it"), agent="sandbox")
    await session.publish(*called(CALL, then=[ToolWaiting(turn_id=TURN, tool_call_id="c1", tool_name="rm")]))


async def questions(session: Session) -> list[ToolWaiting]:
    return await events_of(session, ToolWaiting)


@pytest.mark.parametrize("verb", ["approve", "deny"])
@pytest.mark.parametrize("over", [("prod",), ("prod", "sandbox")], ids=["handed over", "and back"])
async def test_a_decision_that_no_worker_has_read_is_refused_after_a_handover(
    session: Session, over: Sequence[str], verb: Literal["approve", "deny"]
) -> None:
    ran: list[str] = []
    await begin(session)
    decide = approve if verb == "approve" else deny
    sent = await decide(session, TURN, "c1", by="bob")
    for agent in over:
        await session.hand_over(agent)
    await run_agent(session, asking(over[-1], ran))
    (said,) = await events_of(session, ControlAnswered)
    assert (said.control, said.outcome) == (sent.position, "refused")
    assert "handed over" in str(said.reason)
    assert ran == []
    await decide_call(session, Approve(turn_id=TURN, tool_call_id="c1", by="ann"))
    await run_agent(session, asking(over[-1], ran))
    assert ran == [over[-1]]


@pytest.mark.parametrize("verb", ["approve", "deny"])
@pytest.mark.parametrize("over", [("prod",), ("prod", "sandbox")], ids=["handed over", "and back"])
async def test_a_decision_that_was_not_carried_out_lapses_at_a_handover_and_a_person_is_asked_anew(
    session: Session, over: Sequence[str], verb: Literal["approve", "deny"]
) -> None:
    ran: list[str] = []
    await begin(session)
    await pause(session)
    await run_agent(session, asking("sandbox", ran))
    await (approve if verb == "approve" else deny)(session, TURN, "c1", by="bob")
    await run_agent(session, asking("sandbox", ran))
    for agent in over:
        await session.hand_over(agent)
    await resume(session)
    await run_agent(session, asking(over[-1], ran))
    assert ran == []
    first, second = await questions(session)
    assert (first.why, second.why) == ("approval", "approval")
    await decide_call(session, Approve(turn_id=second.turn_id, tool_call_id="c1", by="ann"))
    await run_agent(session, asking(over[-1], ran))
    assert ran == [over[-1]]
    assert len(await questions(session)) == 2


async def test_a_person_may_decide_anew_before_a_worker_of_the_next_agent_comes(session: Session) -> None:
    ran: list[str] = []
    await begin(session)
    control = Approve(turn_id=TURN, tool_call_id="c1", by="bob")
    await decide_call(session, control)
    with pytest.raises(CallDecided):
        await decide_call(session, control)
    await session.hand_over("prod")
    await decide_call(session, control.model_copy(update={"by": "ann"}))
    await run_agent(session, asking("prod", ran))
    assert ran == ["prod"]
    said = [each.outcome for each in await events_of(session, ControlAnswered)]
    assert said == ["refused", "applied"]


async def test_another_agent_asks_before_it_repeats_a_call_that_was_approved_before(session: Session) -> None:
    ran: list[str] = []
    await begin(session)
    sent = await approve(session, TURN, "c1", by="bob")
    started = ToolStarted(turn_id=TURN, tool_call_id="c1", tool_name="rm")
    answered = ControlAnswered(control=sent.position, outcome="applied")
    await session.publish(answered.as_extension(), started.as_extension())
    await session.hand_over("prod")
    await run_agent(session, asking("prod", ran, idempotent=True))
    assert ran == []
    assert [each.why for each in await questions(session)] == ["approval", "unknown"]
    await approve(session, TURN, "c1", by="ann")
    await run_agent(session, asking("prod", ran, idempotent=True))
    assert ran == ["prod"]


async def test_a_log_in_which_a_lapsed_approval_was_carried_out_says_that_the_call_ran(session: Session) -> None:
    await begin(session)
    sent = await approve(session, TURN, "c1", by="bob")
    await session.publish(ControlAnswered(control=sent.position, outcome="applied").as_extension())
    await session.publish(SessionAssigned(agent="prod", previous="sandbox").as_extension())
    lapsed = (await project(session, STATUS)).state.loop
    assert lapsed is not None
    assert ([*lapsed.calls_answered], [*lapsed.calls_lapsed]) == ([], ["c1"])
    await session.publish(ToolStarted(turn_id=TURN, tool_call_id="c1", tool_name="rm").as_extension())
    ran = (await project(session, STATUS)).state.loop
    assert ran is not None
    assert ([*ran.calls_answered], [*ran.calls_lapsed]) == (["c1"], [])
