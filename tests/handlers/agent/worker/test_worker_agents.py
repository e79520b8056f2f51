"""Workers serve agents by name: each session is answered by its own agent, also after a handover."""

import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import partial, wraps

import anyio
import pytest

from lanebus import AssistantMessage, Bus, Session, ToolCallBlock, Usage, UserMessage
from lanebus.agent import Agent, AgentLoop, DuplicateAgent, Run, SubAgent, Worker, ask
from lanebus.errors import InvalidArgument, InvalidName
from lanebus.messages import AgentEnded, AgentStarted
from tests.support.agent.agents import SECONDS, Pause, ScriptedModel, answer, calls
from tests.support.agent.logs import events_of, said, wait_for


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
