"""Repeatable scenarios of users and agents, for workers that are killed or cancelled at every await.

These agents have no memory: a model's answer depends on its context alone, so a successor gives the same answer.
A person's action during the work is triggered by the model or tool that runs. It has a key, so repeating it changes
nothing.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import anyio
from anyio.lowlevel import checkpoint

from lanebus import AssistantMessage, Session, TextBlock, ToolCallBlock, Usage, UserMessage
from lanebus.agent import AgentLoop, ModelFailure, RunBounds, Tool, TryAgain, tool
from lanebus.bus.messages import Abort, Approve, Pause, Resume, Steer, ToolResultMessage
from lanebus.handlers.agent import Agent, ModelRequest, Run, ToolContext
from lanebus.handlers.agent.models.model import with_failure
from lanebus.handlers.context import Context
from lanebus.handlers.projections import STATUS
from lanebus.handlers.providers import ModelEvent, Piece
from lanebus.projections import project
from tests.support.laws.history import History

Act = Callable[[Session], Awaitable[object]]
"""an action of a person; repeating it changes nothing"""

Meanwhile = Callable[[], Awaitable[object]]
"""an action that happens while an agent works"""

Script = Callable[[Context], AssistantMessage]

LONG = "As I was saying, " * (RunBounds().preview.flush_characters // 16)
"""long enough to be previewed"""

USAGE = Usage(input=10, output=2, total_tokens=12)


@dataclass(frozen=True)
class Scenario:
    """A session as a list of people's actions. After each action, the agent works until nothing is left to do."""

    acts: Sequence[Act]
    agent: Callable[[History, Session], Agent]
    tools: int = 0
    """number of tool calls"""
    turns: int = 1
    """number of model calls whose answers are recorded whole"""
    is_repeated: bool = True
    """True if a call that was started and has no result runs again"""
    is_ordered: bool = True
    """True if the log is always in the same order; otherwise a command may be answered earlier after a strike"""


def _ask(text: str) -> Act:
    return lambda session: session.publish(UserMessage(content=(TextBlock(text=text),)), key=f"ask.{text}", wake=False)


async def _approve(session: Session) -> None:
    """Approve the waiting call."""
    loop = (await project(session, STATUS)).state.loop
    assert loop is not None
    for call, waiting in loop.calls_waiting.items():
        command = Approve(turn_id=waiting.turn_id, tool_call_id=call).as_extension()
        await session.publish(command, key=f"approve.{call}", wake=False)


async def _resume(session: Session) -> None:
    await session.publish(Resume().as_extension(), key="resume", wake=False)


class Speaker:
    """A model whose answer is a function of the context, streamed in two pieces first."""

    provider = "scripted"
    name = "speaker-1"
    context_window = None

    def __init__(self, history: History, script: Script, meanwhile: Meanwhile | None = None) -> None:
        """`meanwhile` is an action that happens while the model streams; it then streams until it is cut."""
        self._history, self._script, self._meanwhile = history, script, meanwhile

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self._history.write("model", request.context.session, str(len(request.context.messages)))
        whole = self._script(request.context)
        yield Piece("text", LONG)
        for _ in range(4):  # strikes hit here, while the pieces are previewed
            await checkpoint()
        yield Piece("text", "and so on")
        if self._meanwhile is not None:
            await self._meanwhile()
            while True:
                await anyio.sleep(0.001)
                yield USAGE
        yield whole.model_copy(update={"usage": USAGE})


def _says(text: str) -> AssistantMessage:
    return AssistantMessage(content=(TextBlock(text=text),))


def _answers(context: Context) -> AssistantMessage:
    return _says(f"You said {context.messages[-1].text_content()}.")


def _calls(*names: str) -> Script:
    """Return a model that calls tools, and finishes once it has their results."""
    calls = tuple(
        ToolCallBlock(id=f"call-{place}", name=name, arguments={"word": f"w{place}"})
        for place, name in enumerate(names)
    )

    def script(context: Context) -> AssistantMessage:
        if any(isinstance(message, ToolResultMessage) for message in context.messages):
            return _says("Done.")
        return AssistantMessage(content=calls, stop_reason="toolUse")

    return script


def _fails_once(context: Context) -> AssistantMessage:
    if any(_is_again(entry.message) for entry in context.entries):
        return _says("Here I am.")
    failed = AssistantMessage(stop_reason="error", error_message="overloaded")
    return with_failure(failed, ModelFailure(is_transient=True))


def _is_again(message: object) -> bool:
    return isinstance(message, AssistantMessage) and "lanebus.again" in (message.metadata or {})


def _tools(history: History, meanwhile: Meanwhile | None = None) -> list[Tool]:
    async def call(name: str, context: ToolContext, word: str) -> str:
        history.write(name, context.session, context.key)
        await checkpoint()
        if meanwhile is not None:
            await meanwhile()
        return word

    @tool(idempotent=True)
    async def record(context: ToolContext, word: str) -> str:
        """Done again under the same key, it changes nothing."""
        return await call("record", context, word)

    @tool(idempotent=True, approval=True)
    async def sign(context: ToolContext, word: str) -> str:
        """A person is asked first."""
        return await call("sign", context, word)

    @tool
    async def charge(context: ToolContext, word: str) -> str:
        """Never to be done twice."""
        return await call("charge", context, word)

    return [record, sign, charge]


def _calling(*names: str) -> Callable[[History, Session], Agent]:
    return lambda history, session: AgentLoop(Speaker(history, _calls(*names)), _tools(history))


def _aborted(history: History, session: Session) -> Agent:
    async def abort() -> None:
        await session.publish(Abort().as_extension(), key="abort")

    return AgentLoop(Speaker(history, _answers, abort), drain_seconds=0.02)


def _paused(history: History, session: Session) -> Agent:
    async def pause() -> None:
        await session.publish(Pause().as_extension(), key="pause")

    return AgentLoop(Speaker(history, _calls("record")), _tools(history, pause))


def _steered(history: History, session: Session) -> Agent:
    async def steer() -> None:
        at = (await session.head()).position + 1
        said = UserMessage(content=(TextBlock(text="and quickly"),))
        await session.publish(said, Steer(position=at).as_extension(), key="steer")

    return AgentLoop(Speaker(history, _calls("record")), _tools(history, steer))


SCENARIOS = {
    "an answer": Scenario([_ask("hello")], lambda history, _: AgentLoop(Speaker(history, _answers))),
    "two questions": Scenario(
        [_ask("hello"), _ask("again")],
        lambda history, _: AgentLoop(Speaker(history, _answers), system="Be brief."),
        turns=2,
    ),
    "two tools": Scenario([_ask("hello")], _calling("record", "record"), tools=2, turns=2),
    "a tool that is not run twice": Scenario([_ask("hello")], _calling("charge"), tools=1, turns=2, is_repeated=False),
    "a tool that asks": Scenario([_ask("hello"), _approve], _calling("record", "sign"), tools=2, turns=2),
    "a failure that passes": Scenario(
        [_ask("hello")], lambda history, _: AgentLoop(Speaker(history, _fails_once)), turns=2
    ),
    "paused": Scenario([_ask("hello"), _resume], _paused, tools=1, turns=2),
    "steered": Scenario([_ask("hello")], _steered, tools=1, turns=2, is_ordered=False),
    "aborted": Scenario([_ask("hello")], _aborted),
}


OWNER = "worker"
"""an owner that takes a lease again under its name need not wait for the expiry, and fences the previous holder"""


async def work_off(session: Session, scenario: Scenario, history: History, *, bounds: RunBounds | None = None) -> None:
    """Take the scenario's actions of people, and let the agent work after each."""
    agent = scenario.agent(history, session)
    lease = await session.acquire_lease(OWNER, 60)
    assert lease is not None
    run = Run(session, lease, bounds=bounds or RunBounds())
    for act in scenario.acts:
        await act(session)
        while (await run.refresh()).loop_state.has_work:
            with suppress(TryAgain):  # retry at once
                await agent(run)
