"""Let an agent work on a session in a test, with two tools that always do the same."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio

from lanebus import Session, ToolCallBlock
from lanebus.agent import AgentLoop, Run, tool
from lanebus.messages import AgentEvent, AgentStarted, AssistantMessage, Publishable, TurnId, TurnStarted, UserMessage
from tests.support.agent.agents import SECONDS, Pause, take_run

FIRST, SECOND = ToolCallBlock(id="c1", name="first"), ToolCallBlock(id="c2", name="second")


@tool(idempotent=True)
async def first() -> str:
    """Say one."""
    return "one"


@tool(idempotent=True)
async def second() -> str:
    """Say two."""
    return "two"


async def ask(session: Session, text: str = "hello?") -> int:
    """Publish a user's message, and return its position."""
    return (await session.publish(UserMessage.text(text))).position


def called(*tools: ToolCallBlock, then: Sequence[AgentEvent] = (), session: str = "s1") -> list[Publishable]:
    """Return the begin of a loop whose first turn has called tools, and what follows it."""
    turn = TurnId(loop_id=f"{session}.main.1", turn_index=0)
    return [
        AgentStarted(loop_id=turn.loop_id, agent="agent").as_extension(),
        TurnStarted(turn_id=turn, prompts=(1,)).as_extension(),
        AssistantMessage(content=tools, stop_reason="toolUse", turn_id=turn),
        *(event.as_extension() for event in then),
    ]


async def work(agent: AgentLoop, run: Run) -> None:
    """Run the agent until nothing is left to do, as a worker does."""
    with anyio.fail_after(SECONDS):
        while (await run.refresh()).loop_state.has_work:
            await agent(run)


@asynccontextmanager
async def at_work(session: Session, agent: AgentLoop, pause: Pause) -> AsyncGenerator[None, None]:
    """Run the agent up to a pause. The end of the block waits until it has ended."""
    run = await take_run(session)
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work, agent, run)
            await pause.reached.wait()
            yield
