"""A model's text that a server has cut within a character is joined, and a lone half does not fail the loop."""

import anyio
import pytest
from pydantic import JsonValue

from lanebus import AssistantMessage, Delta, Session, TextBlock, ToolCallBlock, UserMessage
from lanebus.agent import AgentLoop, Piece, Recorder, tool
from tests.support.agent.agents import SECONDS, Pause, ScriptedModel, Step, answer, take_run
from tests.support.agent.logs import answers, messages, said, watch_deltas

HIGH, LOW = "\ud83d", "\ude00"
PIECES = [Piece("text", f"Hi {HIGH}"), Piece("thinking", f"{LOW}hm", 1), Piece("text", f"{LOW}!"), Piece("text", LOW)]
SHOWN = "Hi 😀!\ufffd"


async def begun(session: Session) -> None:
    await session.publish(UserMessage.text("go"))


def shown(deltas: list[Delta], kind: str) -> str:
    return "".join(delta.delta for delta in deltas if delta.kind == kind)


@pytest.mark.parametrize("is_whole", [True, False])
async def test_pieces_of_a_cut_character_are_shown_and_recorded_joined(session: Session, *, is_whole: bool) -> None:
    pause, found = Pause(), list[Delta]()
    raw = "".join(piece.text for piece in PIECES if piece.kind == "text")
    whole = AssistantMessage(content=(TextBlock(text=raw),), stop_reason="stop")
    steps: list[Step] = [pause, *PIECES, Piece("text", HIGH), whole if is_whole else KeyError(HIGH)]
    await begun(session)
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
    await begun(session)
    await AgentLoop(ScriptedModel([asks], answer("Done.")), (takes,))(await take_run(session))
    assert got == [{"k\ufffd": "😀"}]
    assert (await said(session))[-1] == "agent.ended"


async def test_a_recorded_turn_joins_the_pieces_of_a_cut_character(session: Session) -> None:
    await begun(session)
    async with Recorder(session) as recorder:
        async with recorder.turn(model="m-1") as turn:
            turn.piece(f"Hi {HIGH}")
            turn.piece(LOW)
            assert (await turn.answer()).text_content() == "Hi 😀"
        await begun(session)
        async with recorder.turn(model="m-1") as turn:
            assert (await turn.answer(f"Hi {HIGH}")).text_content() == "Hi \ufffd"
        await begun(session)
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
    await begun(session)
    asks = AssistantMessage(content=(call,), stop_reason="toolUse")
    await AgentLoop(ScriptedModel([asks]))(await take_run(session))
    (failed,) = await answers(session)
    assert failed.stop_reason == "error"
    assert "nested deeper" in str(failed.error_message)
    assert (await said(session))[-1] == "agent.ended"
