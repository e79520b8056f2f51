"""Shared by the tests of tools: a turn whose model has called them, its steps, and a person's commands."""

from collections.abc import Sequence

from lanebus import AssistantMessage, Session, ToolCallBlock
from lanebus.agent import Run, Tool
from lanebus.bus.wire import ReservedKey
from lanebus.handlers.agent import OpenAnswer
from lanebus.handlers.agent.tools.tool_executor import run_tools
from lanebus.handlers.agent.turn.record import record_answer
from lanebus.messages import AgentStarted, Control, ControlAnswered, ToolResultMessage, TurnId, TurnStarted, UserMessage
from tests.support.agent.logs import messages

MOST_STEPS = 50


async def called(run: Run, *calls: ToolCallBlock, loop: int = 1) -> None:
    """Return a loop whose model has answered with tool calls."""
    session = run.session
    turn = TurnId(loop_id=f"{session.id}.main.{loop}", turn_index=0)
    asked = await session.publish(UserMessage.text("hello?"))
    begun = (AgentStarted(loop_id=turn.loop_id, agent="test"), TurnStarted(turn_id=turn, prompts=(asked.position,)))
    await run.publish(*(event.as_extension() for event in begun), key=ReservedKey(f"{turn}.started"))
    context = (await run.refresh()).context
    await record_answer(run, context, turn, AssistantMessage(content=calls, stop_reason="toolUse"))


async def open_answer(run: Run) -> OpenAnswer | None:
    """Return the answer with open calls; None if there is none."""
    answer = (await run.refresh()).loop_state.answer
    return answer if answer is not None and answer.open_calls else None


async def step(run: Run, *tools: Tool) -> bool:
    """Take one step of the open calls. Return whether there was something to do."""
    view = await run.refresh()
    answer = view.loop_state.answer
    if answer is None or not answer.open_calls or view.loop_state.is_waiting:
        return False
    await run_tools(run, {tool.name: tool for tool in tools}, answer, view)
    return True


async def go_on(run: Run, *tools: Tool) -> None:
    """Step as a loop does, until all calls have results or wait for a person."""
    for _ in range(MOST_STEPS):
        if not await step(run, *tools):
            return
    raise AssertionError("the steps lead nowhere")


async def command(run: Run, control: Control) -> int:
    """Publish a command and let the worker read it. Return its position."""
    position = (await run.session.publish(control.as_extension())).position
    await run.publish(
        ControlAnswered(control=position, outcome="applied").as_extension(), key=ReservedKey(f"control.{position}")
    )
    return position


async def results(session: Session) -> Sequence[tuple[str, str]]:
    """Return the id and text of each tool result, in order of position."""
    found = [message for message in await messages(session) if isinstance(message, ToolResultMessage)]
    return [(message.tool_call_id, message.text_content()) for message in found]
