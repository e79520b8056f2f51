"""Spans of agents: of turns, tools and recorded runs, equal to those of the conventions."""

# The packages have type hints and no marker for them.
# pyright: reportMissingTypeStubs=false

import json
from collections.abc import Mapping
from typing import ClassVar

import anyio
import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes, messaging_attributes
from opentelemetry.semconv.attributes import error_attributes, http_attributes, url_attributes
from opentelemetry.trace import StatusCode
from opentelemetry.util.genai.handler import TelemetryHandler
from opentelemetry.util.genai.types import (
    FunctionToolDefinition,
    InputMessage,
    OutputMessage,
    TextPart,
    ToolCallRequestPart,
)
from pydantic import JsonValue

from lanebus import AssistantMessage, Session, TextBlock, ToolCallBlock, Usage, UserMessage
from lanebus.agent import AgentLoop, ModelFailure, Recorder, ToolSpec, Worker, abort, tool
from lanebus.handlers.agent.models.model import with_failure
from lanebus.handlers.integrations.telemetry import names
from tests.support.agent.agents import SECONDS, Pause, ScriptedModel, Step, answer, calls, wait_for
from tests.support.servers.real import eventually
from tests.support.telemetry.recorded import Recorded, attributes_of, context_of, traced_bus, tree

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


QUESTION, PRIVATE = "How long is wall 1?", "wall 1: 4 m"


CALL = ToolCallBlock(id="c1", name="measure", arguments={"wall": 1})


SPENT = Usage(input=100, output=20, reasoning=5, cache_read=50, cache_write=30, total_tokens=200)


INPUT_TOKENS = 180


CONTENT = {
    names.INPUT_MESSAGES,
    names.OUTPUT_MESSAGES,
    names.SYSTEM_INSTRUCTIONS,
    names.TOOL_DEFINITIONS,
    names.TOOL_ARGUMENTS,
    names.TOOL_RESULT,
}


@tool(idempotent=True)
async def measure(wall: int) -> str:
    """Measure a wall."""
    return f"wall {wall}: 4 m"


class Sampled(ScriptedModel):
    """A model that reports its options, as an adapter does."""

    provider, api = "anthropic", "anthropic"
    request_options: ClassVar[Mapping[str, JsonValue]] = {"options": {"temperature": 0.5, "thinking": {}}}


def asks() -> list[Step]:
    """Return an answer that calls the tool, with all kinds of usage."""
    return [
        AssistantMessage(
            content=(CALL,), stop_reason="toolUse", usage=SPENT, response_id="r1", metadata={"responseModel": "m-2"}
        )
    ]


async def run_agent(recorded: Recorded, model: ScriptedModel, *, capture_content: bool | None = None) -> None:
    """Run one loop of an agent with the tool."""
    agent = AgentLoop(model, (measure,), name="builder", max_tokens=1_000)
    async with traced_bus(recorded, capture_content=capture_content) as bus, Worker(bus, agent):
        with anyio.fail_after(SECONDS):
            session = bus.session("s1", agent="builder")
            await session.publish(UserMessage.text(QUESTION))
            await wait_for(session, "agent.ended")
            await eventually(lambda: bool(recorded.spans("process")))  # not cancelled in its last steps


def emitted(*, content: bool, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """Record the same turn with the conventions' emitter."""
    monkeypatch.setenv(CAPTURE, "SPAN_ONLY" if content else "NO_CONTENT")
    recorded = Recorded()
    handler = TelemetryHandler(tracer_provider=recorded.provider)
    with handler.invoke_local_agent(request_model="scripted-1", agent_name="builder", conversation_id="s1") as run:
        with handler.inference("anthropic", request_model="scripted-1", conversation_id="s1") as call:
            call.max_tokens, call.temperature, call.request_stream = 1_000, 0.5, True
            call.response_id, call.response_model_name, call.finish_reasons = "r1", "m-2", ["tool_call"]
            call.input_tokens, call.output_tokens, call.thinking_tokens = INPUT_TOKENS, 20, 5
            call.cache_read_input_tokens, call.cache_write_input_tokens = 50, 30
            call.ttfc_seconds = 0.1
            call.input_messages = [InputMessage("user", [TextPart(QUESTION)])]
            call.output_messages = [OutputMessage("assistant", [ToolCallRequestPart({"wall": 1}, "measure", "c1")])]
            call.tool_definitions = [FunctionToolDefinition("measure", "Measure a wall.", measure.spec.schema)]
        with handler.tool("measure", tool_type="function", agent_name="builder") as use:
            use.tool_call_id, use.tool_description = "c1", "Measure a wall."
            use.arguments, use.tool_result = {"wall": 1}, PRIVATE
        run.input_tokens, run.output_tokens, run.finish_reasons = INPUT_TOKENS + 10, 22, ["stop"]
    return recorded


def comparable(attributes: Mapping[str, object]) -> dict[str, object]:
    """Return attributes without the time, and with JSON as values. Absent keys of JSON count as null."""
    found = {name: value for name, value in attributes.items() if name != names.RESPONSE_TIME_TO_FIRST_CHUNK}
    for name in CONTENT & found.keys() - {names.TOOL_RESULT}:
        found[name] = json.loads(str(found[name]), object_pairs_hook=_without_nulls)
    return found


def _without_nulls(pairs: list[tuple[str, object]]) -> dict[str, object]:
    return {name: value for name, value in pairs if value is not None}


@pytest.mark.parametrize("content", [False, True])
async def test_spans_of_a_turn_equal_those_of_the_conventions_emitter(
    content: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, ours = emitted(content=content, monkeypatch=monkeypatch), Recorded()
    await run_agent(ours, Sampled(asks(), answer("It is 4 m.")), capture_content=content)
    own = {
        "chat": ours.spans("chat")[0],
        "execute_tool": ours.one("execute_tool"),
        "invoke_agent": ours.one("invoke_agent"),
    }
    for name, span in own.items():
        other = theirs.one(name)
        assert (span.name, span.kind) == (other.name, other.kind)
        assert comparable(attributes_of(span)) == comparable(attributes_of(other))
        assert (names.RESPONSE_TIME_TO_FIRST_CHUNK in attributes_of(span)) == (name == "chat")


async def test_no_span_has_content_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CAPTURE, raising=False)
    recorded = Recorded()
    await run_agent(recorded, Sampled(asks(), answer(PRIVATE)))
    spans = recorded.spans()
    assert len(spans) > 5
    assert [span.name for span in spans if PRIVATE in span.to_json() or QUESTION in span.to_json()] == []


async def test_the_environment_allows_content_on_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CAPTURE, "span_and_event")
    recorded = Recorded()
    await run_agent(recorded, Sampled(asks(), answer("It is 4 m.")))
    assert attributes_of(recorded.one("execute_tool"))[names.TOOL_RESULT] == PRIVATE


async def test_a_failed_call_has_the_providers_code_and_a_failed_tool_is_an_error() -> None:
    @tool(idempotent=True)
    async def measure(wall: int) -> str:
        """Measure a wall."""
        raise ValueError(PRIVATE)

    recorded = Recorded()
    failed = AssistantMessage(content=(TextBlock(text="I"),), stop_reason="error", error_message=PRIVATE)
    model = ScriptedModel(calls(CALL), [with_failure(failed, ModelFailure(status=400, code="invalid_request_error"))])
    agent = AgentLoop(model, (measure,), name="builder")
    async with traced_bus(recorded) as bus, Worker(bus, agent):
        with anyio.fail_after(SECONDS):
            session = bus.session("s1", agent="builder")
            await session.publish(UserMessage.text(QUESTION))
            await wait_for(session, "agent.ended")
    tool_span, (_, chat) = recorded.one("execute_tool"), recorded.spans("chat")
    assert attributes_of(tool_span)["error.type"] == "tool_error"
    assert attributes_of(chat)["error.type"] == "invalid_request_error"
    assert attributes_of(chat)[names.FINISH_REASONS] == ("error",)
    assert {tool_span.status.status_code, chat.status.status_code} == {StatusCode.ERROR}
    assert [span.name for span in recorded.spans() if PRIVATE in span.to_json()] == []


async def test_a_call_that_a_stopping_worker_cuts_is_cancelled_and_no_error() -> None:
    recorded, pause = Recorded(), Pause()
    agent = AgentLoop(ScriptedModel([*answer("Half.")[:1], pause]), name="builder")
    async with traced_bus(recorded) as bus:
        async with Worker(bus, agent):
            with anyio.fail_after(SECONDS):
                await bus.session("s1", agent="builder").publish(UserMessage.text(QUESTION))
                await pause.reached.wait()
        for name in ("chat", "invoke_agent", "process"):
            span = recorded.one(name)
            assert attributes_of(span)["lanebus.cancelled"] is True
            assert span.status.status_code is StatusCode.UNSET
        assert names.FINISH_REASONS not in attributes_of(recorded.one("chat"))


def test_names_are_those_of_the_conventions() -> None:
    """The package of constants lags behind in the names listed here, which the emitter has."""
    newer = {names.USAGE_CACHE_WRITE}
    modules = (gen_ai_attributes, messaging_attributes, error_attributes, http_attributes, url_attributes)
    known = {value for module in modules for value in vars(module).values() if isinstance(value, str)}
    prefixes = ("gen_ai.", "messaging.", "http.", "url.", "error.")
    own = {value for value in vars(names).values() if isinstance(value, str) and value.startswith(prefixes)}
    assert len(own) > 40
    assert own - known == newer
    assert set(names.SAMPLING.values()) <= known


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
