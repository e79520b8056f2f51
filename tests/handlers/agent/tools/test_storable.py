"""Whatever a tool returns or raises, and text that UTF-8 cannot hold, is in the log, and the loop goes on."""

import math
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import anyio
import pytest
from pydantic import JsonValue

from lanebus import AssistantMessage, Bus, Delta, Session, TextBlock, ToolCallBlock, ToolResultMessage, UserMessage
from lanebus.agent import AgentLoop, FunctionTool, Piece, Recorder, ToolContext, ToolReply, tool
from lanebus.messages import Progress, ToolEnded
from tests.support.agent.agents import SECONDS, Pause, ScriptedModel, Step, answer, calls, take_run
from tests.support.agent.logs import answers, events_of, messages, results, said, watch_deltas

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


# --- text of a model that is cut within a character ------------------------------------------------------------


HIGH, LOW = "\ud83d", "\ude00"
PIECES = [Piece("text", f"Hi {HIGH}"), Piece("thinking", f"{LOW}hm", 1), Piece("text", f"{LOW}!"), Piece("text", LOW)]
SHOWN = "Hi 😀!\ufffd"


async def begun_session(session: Session) -> None:
    await session.publish(UserMessage.text("go"))


def shown(deltas: list[Delta], kind: str) -> str:
    return "".join(delta.delta for delta in deltas if delta.kind == kind)


@pytest.mark.parametrize("is_whole", [True, False])
async def test_pieces_of_a_cut_character_are_shown_and_recorded_joined(session: Session, *, is_whole: bool) -> None:
    pause, found = Pause(), list[Delta]()
    raw = "".join(piece.text for piece in PIECES if piece.kind == "text")
    whole = AssistantMessage(content=(TextBlock(text=raw),), stop_reason="stop")
    steps: list[Step] = [pause, *PIECES, Piece("text", HIGH), whole if is_whole else KeyError(HIGH)]
    await begun_session(session)
    run = await take_run(session)

    async def watch() -> None:
        found.extend(await watch_deltas(session, pause, "assistant"))

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            tasks.start_soon(AgentLoop(ScriptedModel(steps)), run)
    assert (shown(found, "text"), shown(found, "thinking")) == (SHOWN, "\ufffdhm")
    (message,) = await answers(session)
    assert message.text_content() == (SHOWN if is_whole else f"{SHOWN}\ufffd")
    assert message.error_message == (None if is_whole else "KeyError: '\\ud83d'")
    assert (await said(session))[-1] == "agent.ended"


async def test_a_call_whose_arguments_utf8_cannot_hold_runs_with_replaced_ones(session: Session) -> None:
    got: list[object] = []

    @tool(name="t")
    async def takes(a: dict[str, str]) -> str:
        got.append(a)
        return "ok"

    call = ToolCallBlock(id="c1", name="t", arguments={"a": {f"k{HIGH}": f"{HIGH}{LOW}"}})
    asks = AssistantMessage(content=(TextBlock(text=LOW), call), stop_reason="toolUse")
    await begun_session(session)
    await AgentLoop(ScriptedModel([asks], answer("Done.")), (takes,))(await take_run(session))
    assert got == [{"k\ufffd": "😀"}]
    assert (await said(session))[-1] == "agent.ended"


async def test_a_recorded_turn_joins_the_pieces_of_a_cut_character(session: Session) -> None:
    await begun_session(session)
    async with Recorder(session) as recorder:
        async with recorder.turn(model="m-1") as turn:
            turn.piece(f"Hi {HIGH}")
            turn.piece(LOW)
            assert (await turn.answer()).text_content() == "Hi 😀"
        await begun_session(session)
        async with recorder.turn(model="m-1") as turn:
            assert (await turn.answer(f"Hi {HIGH}")).text_content() == "Hi \ufffd"
        await begun_session(session)
        async with recorder.turn(model="m-1") as turn:
            turn.piece(HIGH)
            await turn.fail(f"cut in {HIGH}")
    *_, failed = await messages(session)
    assert isinstance(failed, AssistantMessage)
    assert (failed.text_content(), failed.error_message) == ("\ufffd", "cut in \ufffd")


async def test_an_answer_that_the_log_refuses_otherwise_is_recorded_as_failed(session: Session) -> None:
    deep: JsonValue = []
    for _ in range(180):
        deep = [deep]
    call = ToolCallBlock(id="c1", name="t").model_copy(update={"arguments": {"a": deep}})
    await begun_session(session)
    asks = AssistantMessage(content=(call,), stop_reason="toolUse")
    await AgentLoop(ScriptedModel([asks]))(await take_run(session))
    (failed,) = await answers(session)
    assert failed.stop_reason == "error"
    assert "nested deeper" in str(failed.error_message)
    assert (await said(session))[-1] == "agent.ended"
