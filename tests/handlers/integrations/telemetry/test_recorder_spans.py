"""A loop of one's own has the spans of a worker's: each turn is a run of the agent."""

import anyio
import pytest
from opentelemetry.trace import StatusCode

from lanebus import AssistantMessage, Session, ToolCallBlock, Usage, UserMessage
from lanebus.agent import Recorder, ToolSpec, abort
from lanebus.handlers.integrations.telemetry import names
from tests.support.telemetry.recorded import Recorded, attributes_of, context_of, traced_bus, tree

__all__ = ()

CALL = ToolCallBlock(id="c1", name="measure", arguments={"wall": 1})
ASKS = AssistantMessage(content=(CALL,), stop_reason="toolUse", usage=Usage(input=100, output=20))


def of_agents(recorded: Recorded) -> list[str]:
    """The spans of the agent as trees."""
    kinds = ("process", "invoke_agent", "chat", "execute_tool")
    return tree(span for span in recorded.spans() if span.name.startswith(kinds))


async def asked(session: Session) -> Recorder:
    await session.publish(UserMessage.text("How long is wall 1?"))
    return Recorder(session)


async def test_a_turn_with_a_tool_is_recorded_in_the_trace_of_the_message() -> None:
    recorded = Recorded()
    async with traced_bus(recorded) as bus:
        session = bus.session("s1", agent="builder")
        async with await asked(session) as recorder:
            spec = ToolSpec("measure", "Measure a wall.", {})
            while await recorder.wait_for_work(0):
                async with recorder.turn(model="m-1", provider="openai", tools=[spec]) as turn:
                    turn.piece("Well")
                    await turn.answer("4 m" if len(turn.context.messages) > 1 else ASKS)
                    for call in turn.calls:
                        async with turn.tool(call) as tool:
                            tool.result = "4 m"
    assert of_agents(recorded) == [
        "process {session} CONSUMER",
        "  invoke_agent builder INTERNAL",
        "    chat m-1 CLIENT",
        "    execute_tool measure INTERNAL",
        "process {session} CONSUMER",
        "  invoke_agent builder INTERNAL",
        "    chat m-1 CLIENT",
    ]
    question = recorded.spans("send")[0]
    for span in recorded.spans("process"):
        assert span.parent is not None
        assert span.parent.span_id == context_of(question).span_id
    chat, second = recorded.spans("chat")
    found = attributes_of(chat)
    assert (found[names.USAGE_INPUT], found[names.USAGE_OUTPUT]) == (100, 20)
    assert names.RESPONSE_TIME_TO_FIRST_CHUNK in found
    assert attributes_of(recorded.one("execute_tool"))[names.TOOL_DESCRIPTION] == "Measure a wall."
    assert attributes_of(second)[names.FINISH_REASONS] == ("stop",)
    assert {span.status.status_code for span in recorded.spans()} == {StatusCode.UNSET}


async def test_a_failed_tool_and_a_failed_turn_are_recorded_as_errors() -> None:
    recorded = Recorded()
    async with traced_bus(recorded) as bus:
        session = bus.session("s1")

        async def fail() -> None:
            async with await asked(session) as recorder, recorder.turn(model="m-1") as turn:
                await turn.answer(ASKS)
                async with turn.tool(CALL):
                    raise OSError("broken")
                raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            await fail()
        async with await asked(session) as recorder, recorder.turn(model="m-1") as turn:
            await turn.fail("overloaded")
    tool, run, chat = recorded.one("execute_tool"), recorded.spans("invoke_agent")[0], recorded.spans("chat")[1]
    assert attributes_of(tool)[names.ERROR_TYPE] == names.TOOL_ERROR
    assert attributes_of(run)[names.ERROR_TYPE] == "ValueError"
    assert chat.status.status_code == StatusCode.ERROR
    assert len(recorded.spans("process")) == 2


async def test_an_aborted_turn_and_a_cancelled_turn_end_their_spans() -> None:
    recorded = Recorded()
    async with traced_bus(recorded) as bus:
        session = bus.session("s1")
        async with await asked(session) as recorder:
            async with recorder.turn(model="m-1") as turn:
                turn.piece("It is")
                await abort(session)
                await anyio.sleep_forever()
            await session.publish(UserMessage.text("Again?"))
            with anyio.CancelScope() as scope:
                async with recorder.turn(model="m-1"):
                    scope.cancel()
                    await anyio.sleep_forever()
    assert len(recorded.spans("chat")) == len(recorded.spans("invoke_agent")) == len(recorded.spans("process")) == 2
    assert names.ERROR_TYPE not in attributes_of(recorded.spans("chat")[0])


async def test_an_answer_that_another_task_records_ends_the_spans_with_the_turn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorded = Recorded()
    async with (
        traced_bus(recorded) as bus,
        await asked(bus.session("s1")) as recorder,
        recorder.turn(model="m-1") as turn,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(turn.answer, "Hi.")
    assert attributes_of(recorded.one("chat"))[names.FINISH_REASONS] == ("stop",)
    assert caplog.records == []
