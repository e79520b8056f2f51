"""Whatever a tool returns or raises leaves a result in the log, and the loop goes on."""

import math
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest

from lanebus import Bus, Session, TextBlock, ToolCallBlock, ToolResultMessage, UserMessage
from lanebus.agent import AgentLoop, FunctionTool, Recorder, ToolContext, ToolReply, tool
from lanebus.bus.messages import AssistantMessage, Progress, ToolEnded
from tests.support.agent.agents import ScriptedModel, answer, calls, take_run
from tests.support.agent.logs import events_of, results, said

CALL = ToolCallBlock(id="c1", name="t")
NAME, WHOLE = "report-\udcff.txt", "report-\ufffd.txt"


class Odd(NamedTuple):
    """What a tool's function does, and the begin of the result."""

    does: Callable[[], object]
    text: str
    is_error: bool = False


class Foreign(FunctionTool):
    """A tool of another package, which makes its result itself."""

    async def run(self, call: ToolCallBlock, context: ToolContext) -> ToolResultMessage:
        del context
        return ToolResultMessage.of(call, NAME).model_copy(update={"metadata": {NAME: NAME}, "structured": {NAME: 1}})


def raising(error: BaseException) -> Callable[[], object]:
    def fails() -> object:
        raise error

    return fails


def nested(depth: int) -> object:
    value: object = []
    for _ in range(depth):
        value = [value]
    return value


def in_itself() -> object:
    value: list[object] = []
    value.append(value)
    return value


ODD = {
    "a text": Odd(lambda: NAME, WHOLE),
    "halves": Odd(lambda: ["\ud83d\ude00"], '["😀"]'),
    "a list": Odd(lambda: [NAME], f'["{WHOLE}"]'),
    "a key": Odd(lambda: {NAME: {"in": {NAME: NAME}}}, f'{{"{WHOLE}": {{"in": {{"{WHOLE}": "{WHOLE}"}}}}}}'),
    "blocks": Odd(lambda: [TextBlock(text=NAME), NAME], WHOLE * 2),
    "a reply": Odd(lambda: ToolReply(NAME, structured={NAME: NAME}, child_loop_id=NAME), WHOLE),
    "an end": Odd(lambda: ToolReply("ok", terminate=True, terminate_message=NAME), "ok"),
    "an error": Odd(raising(FileNotFoundError(NAME)), f"FileNotFoundError: {WHOLE}", is_error=True),
    "an exit": Odd(raising(SystemExit(3)), "SystemExit: 3", is_error=True),
    "a stop": Odd(raising(StopIteration()), "", is_error=True),
    "no number": Odd(lambda: {"a": math.nan}, "InvalidArgument: ", is_error=True),
    "too deep": Odd(lambda: nested(5_000), "InvalidArgument: ", is_error=True),
    "deep": Odd(lambda: nested(150), "", is_error=True),
    "in itself": Odd(in_itself, "InvalidArgument: ", is_error=True),
    "no text": Odd(lambda: b"\xff", "InvalidArgument: ", is_error=True),
    "no value": Odd(object, "InvalidArgument: ", is_error=True),
    "too large": Odd(lambda: "x" * 2_000_000, "The result of 2000", is_error=True),
    "zero": Odd(lambda: "a\0b", "a\0b"),
}


async def run_tool(session: Session, subject: FunctionTool) -> None:
    """Let an agent call the tool once."""
    await session.publish(UserMessage.text("go"))
    run = await take_run(session)
    await AgentLoop(ScriptedModel(calls(CALL), answer("Done.")), (subject,))(run)


async def record_tool(session: Session, does: Callable[[], object]) -> None:
    """Record the call in a loop of one's own."""
    await session.publish(UserMessage.text("go"))
    async with Recorder(session) as recorder, recorder.turn(model="m-1") as turn:
        await turn.answer(AssistantMessage(content=(CALL,), stop_reason="toolUse"))
        async with turn.tool(CALL) as running:
            running.result = does()


async def the_result(session: Session) -> ToolResultMessage:
    """Return the only result of the log; the end of the call says the same."""
    (result,) = await results(session)
    (ended,) = await events_of(session, ToolEnded)
    assert ended.is_error == result.is_error
    return result


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("name", ODD)
async def test_what_a_tool_returns_or_raises_is_in_the_log(session: Session, name: str, *, is_async: bool) -> None:
    odd = ODD[name]

    async def runs() -> object:
        return odd.does()

    await run_tool(session, tool(name="t")(runs if is_async else odd.does))
    result = await the_result(session)
    assert (result.is_error, result.text_content()[: len(odd.text)]) == (odd.is_error, odd.text)
    assert (await said(session))[-1] == "agent.ended"


@pytest.mark.parametrize("name", sorted(ODD.keys() - {"an exit"}))
async def test_what_a_recorded_tool_returns_or_raises_is_in_the_log(session: Session, name: str) -> None:
    odd = ODD[name]
    await record_tool(session, odd.does)
    result = await the_result(session)
    assert (result.is_error, result.text_content()[: len(odd.text)]) == (odd.is_error, odd.text)


async def test_a_result_that_a_foreign_tool_makes_is_whole_in_all_its_parts(session: Session) -> None:
    await run_tool(session, Foreign(lambda: None, name="t"))
    result = await the_result(session)
    assert (result.text_content(), result.metadata, result.structured) == (WHOLE, {WHOLE: WHOLE}, {WHOLE: 1})


@pytest.mark.parametrize("reason", [NAME, "x" * 2_000_000], ids=["half", "too large"])
async def test_a_hand_over_with_an_odd_reason_is_made(session: Session, reason: str) -> None:
    await run_tool(session, tool(name="t")(lambda: ToolReply("ok", handoff=reason)))
    await the_result(session)
    assert "control.handoff" in await said(session)


async def test_a_progress_that_utf8_cannot_hold_is_shown(bus: Bus, session: Session) -> None:
    async def shows(progress: Callable[[str], Awaitable[None]]) -> None:
        await progress(NAME)

    async def tells(context: ToolContext) -> str:
        await shows(context.progress)
        return "ok"

    await run_tool(session, tool(name="t")(tells))
    other = bus.session("s2")
    await other.publish(UserMessage.text("go"))
    async with Recorder(other) as recorder, recorder.turn(model="m-1") as turn:
        await turn.answer(AssistantMessage(content=(CALL,), stop_reason="toolUse"))
        async with turn.tool(CALL) as running:
            await shows(running.progress)
    for each in (session, other):
        assert [event.text for event in await events_of(each, Progress)] == [WHOLE]
