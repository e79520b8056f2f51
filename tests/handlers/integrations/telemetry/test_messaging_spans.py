"""Spans of the bus: who creates a message's context, who continues it, and what costs nothing."""

import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from opentelemetry.trace import Link, SpanKind, StatusCode, format_span_id, format_trace_id

from lanebus import AssistantMessage, ExtensionMessage, Session, SystemMessage, ToolCallBlock, UserMessage
from lanebus.agent import AgentLoop, Worker, approve, tool
from lanebus.bus.publishing.publisher import Publisher
from lanebus.context import build_context
from lanebus.errors import Conflict
from lanebus.handlers.agent.run import loop_messages
from lanebus.handlers.providers import PROVIDERS
from lanebus.messages import TurnId
from lanebus.telemetry import otel_tracing, trace_id
from tests.support.agent.agents import (
    SECONDS,
    Pause,
    ScriptedModel,
    answer,
    calls,
    fresh_bus,
    messages,
    take_run,
    wait_for,
)
from tests.support.paths import ROOT
from tests.support.servers.real import eventually
from tests.support.telemetry.recorded import Recorded, attributes_of, context_of, traced_bus

THEIRS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CALL = ToolCallBlock(id="c1", name="measure", arguments={})


def said(text: str, traceparent: str | None = None) -> UserMessage:
    message = UserMessage.text(text)
    return message if traceparent is None else message.model_copy(update={"metadata": {"traceparent": traceparent}})


async def parents(session: Session) -> list[object]:
    """Return the trace context in each message of the LLM lane; None for one that carries none."""
    return [(message.metadata or {}).get("traceparent") for message in await messages(session)]


def text_of(link: Link | None, recorded: Recorded, name: str) -> str:
    context = link.context if link is not None else context_of(recorded.one(name))
    return f"00-{format_trace_id(context.trace_id)}-{format_span_id(context.span_id)}-{context.trace_flags:02x}"


def made_by(recorded: Recorded, name: str) -> str:
    """Return the trace context of the only span of this name."""
    return text_of(None, recorded, name)


# --- send and create ----------------------------------------------------------------------------------------------


async def test_a_message_that_is_published_alone_is_created_by_its_send_span() -> None:
    recorded = Recorded()
    async with traced_bus(recorded) as bus:
        await bus.session("s1").publish(said("one"), ExtensionMessage.of("x"))
        assert await parents(bus.session("s1")) == [made_by(recorded, "send")]
    span = recorded.one("send")
    assert (span.kind, span.links) == (SpanKind.PRODUCER, ())
    assert attributes_of(span) == {
        "messaging.system": "lanebus",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "s1",
        "messaging.destination.template": "{session}",
        "messaging.message.conversation_id": "s1",
        "messaging.batch.message_count": 2,
    }


async def test_messages_of_one_publish_have_create_spans_that_its_send_span_links_to() -> None:
    recorded = Recorded()
    async with traced_bus(recorded) as bus:
        await bus.session("s1").publish(SystemMessage.text("be brief"), said("two"))
        created = recorded.spans("create")
        send = recorded.one("send")
        assert [span.kind for span in (*created, send)] == [SpanKind.PRODUCER, SpanKind.PRODUCER, SpanKind.CLIENT]
        assert [link.context.span_id for link in send.links] == [context_of(span).span_id for span in created]
        assert await parents(bus.session("s1")) == [text_of(link, recorded, "") for link in send.links]


async def test_a_context_that_the_caller_gave_is_kept_and_linked() -> None:
    recorded = Recorded()
    async with traced_bus(recorded) as bus:
        await bus.session("s1").publish(said("theirs", THEIRS))
        assert await parents(bus.session("s1")) == [THEIRS]
    send = recorded.one("send")
    assert (send.kind, [text_of(link, recorded, "") for link in send.links]) == (SpanKind.CLIENT, [THEIRS])


async def test_events_carry_no_context() -> None:
    recorded = Recorded()
    async with traced_bus(recorded) as bus:
        await bus.session("s1").publish(ExtensionMessage.of("x"))
        await bus.session("s1").close(reason="done")
        (first, second) = [envelope.message async for envelope in bus.session("s1").read()]
        assert isinstance(first, ExtensionMessage)
        assert (first.data, isinstance(second, ExtensionMessage)) == (None, True)
    assert {span.kind for span in recorded.spans("send")} == {SpanKind.CLIENT}


async def test_a_refused_publish_is_an_error_and_a_repeated_one_is_marked() -> None:
    recorded = Recorded()
    async with traced_bus(recorded) as bus:
        session = bus.session("s1")
        for _ in range(2):
            await session.publish(said("once"), key="k")
        with pytest.raises(Conflict):
            await session.publish(said("late"), expected=9)
    first, second, third = recorded.spans("send")
    assert [attributes_of(span).get("messaging.message.id") for span in (first, second, third)] == ["1", "1", None]
    assert [attributes_of(span).get("lanebus.duplicate") for span in (first, second, third)] == [None, True, None]
    assert attributes_of(third)["error.type"] == "lanebus.bus.errors.stream.Conflict"
    assert (third.status.status_code, third.status.description) == (StatusCode.ERROR, None)


async def test_publishes_keep_the_order_of_their_calls() -> None:
    async with traced_bus(Recorded()) as bus, anyio.create_task_group() as tasks:
        session = bus.session("s1")
        for number in range(50):
            tasks.start_soon(session.publish, said(str(number)))
        await wait_for(session, "user", 50)
        assert [message.text_content() for message in await messages(session)] == [str(n) for n in range(50)]


# --- what is stored -----------------------------------------------------------------------------------------------


async def test_the_context_is_in_no_request_to_a_model() -> None:
    async with traced_bus(Recorded()) as bus:
        session = bus.session("s1")
        await session.publish(said("Hello."))
        context = await build_context(session)
        for name in PROVIDERS:
            form = PROVIDERS[name].to_request(context, model="m", max_tokens=10)
            assert "traceparent" not in str(form.body)


async def test_a_bus_without_tracing_has_no_wrapper_and_stores_no_context() -> None:
    async with fresh_bus() as bus:
        session = bus.session("s1")
        assert isinstance(session.resources.publisher, Publisher)
        await session.publish(said("plain"))
        assert await parents(session) == [None]


async def test_without_an_sdk_nothing_is_stored() -> None:
    async with fresh_bus() as plain:
        del plain
    recorded = Recorded()
    async with traced_bus(recorded) as bus:
        bus.tracing = otel_tracing()  # the global provider, which no test sets
        assert not bus.tracing.is_recording()
        await bus.session("s1").publish(said("plain"))
        assert await parents(bus.session("s1")) == [None]
    assert recorded.spans() == []


# --- receive, process, settle -------------------------------------------------------------------------------------


async def test_an_unreadable_context_is_replaced_by_that_of_the_send_span() -> None:
    recorded = Recorded()
    async with traced_bus(recorded) as bus:
        await bus.session("s1").publish(said("Hi", "00-nonsense"))
        assert await parents(bus.session("s1")) == [made_by(recorded, "send")]


async def test_a_worker_links_each_message_and_continues_the_first() -> None:
    recorded, model = Recorded(), ScriptedModel(answer("Hello."))
    async with traced_bus(recorded) as bus:
        session = bus.session("s1")
        await session.publish(said("Hi"))
        await session.publish(said("and you?", THEIRS))
        first = recorded.spans("send")[0]
        with recorded.provider.get_tracer("test").start_as_current_span("main"):
            async with Worker(bus, AgentLoop(model), group="g", name="w"):
                with anyio.fail_after(SECONDS):
                    await wait_for(session, "agent.ended")
                    await eventually(lambda: bool(recorded.spans("ack")))
    process = recorded.one("process")
    linked = [context_of(first).span_id, int(THEIRS.split("-")[2], 16), context_of(recorded.one("main")).span_id]
    assert process.parent is not None
    assert process.parent.span_id == linked[0]
    assert [link.context.span_id for link in process.links] == linked
    assert process.kind is SpanKind.CONSUMER
    assert attributes_of(process)["messaging.consumer.group.name"] == "g"
    assert attributes_of(process)["messaging.batch.message_count"] == 2
    fetch = recorded.one("fetch")
    assert (fetch.kind, attributes_of(fetch)["messaging.operation.type"]) == (SpanKind.CLIENT, "receive")
    assert attributes_of(fetch)["messaging.client.id"] == "w"


async def test_a_worker_that_takes_a_loop_over_continues_the_trace_of_its_first_message() -> None:
    stuck = Pause()

    @tool(idempotent=True)
    async def measure() -> str:
        """Measure."""
        if not stuck.reached.is_set():
            await stuck.wait()
        return "4 m"

    recorded = Recorded()
    async with traced_bus(recorded) as bus:
        session = bus.session("s1")
        await session.publish(said("How long?"))
        (sent,) = recorded.spans("send")
        async with Worker(bus, AgentLoop(ScriptedModel(calls(CALL)), (measure,)), name="w1"):
            with anyio.fail_after(SECONDS):
                await stuck.reached.wait()
        await session.publish(said("Hurry.", THEIRS))
        async with Worker(bus, AgentLoop(ScriptedModel(answer("4 m")), (measure,)), name="w2"):
            with anyio.fail_after(SECONDS):
                await wait_for(session, "agent.ended")
    first, second = recorded.spans("process")
    assert first.parent is not None
    assert second.parent is not None
    assert first.parent.span_id == second.parent.span_id == context_of(sent).span_id
    assert {text_of(link, recorded, "") for link in second.links} == {text_of(first.links[0], recorded, ""), THEIRS}
    assert {context_of(span).trace_id for span in recorded.spans("chat")} == {context_of(sent).trace_id}


async def test_a_call_that_a_person_approves_runs_in_the_trace_of_its_message() -> None:
    @tool(idempotent=True, approval=True)
    async def measure() -> str:
        """Measure."""
        return trace_id()

    recorded = Recorded()
    async with traced_bus(recorded) as bus:
        session = bus.session("s1")
        await session.publish(said("How long?"))
        (sent,) = recorded.spans("send")
        model = ScriptedModel(calls(CALL), answer("4 m"))
        async with Worker(bus, AgentLoop(model, (measure,))):
            with anyio.fail_after(SECONDS):
                await wait_for(session, "agent.tool.waiting")
                await approve(session, "s1.main.1#0", "c1")
                await wait_for(session, "agent.ended")
        (result,) = [message.text_content() for message in await messages(session) if message.text_content()][1:2]
    assert result == format_trace_id(context_of(sent).trace_id)


async def test_messages_of_a_loop_begin_with_the_one_that_began_it() -> None:
    async with fresh_bus() as bus:
        session = bus.session("s1")
        one, two = (TurnId(loop_id=f"s1.main.{number}", turn_index=0) for number in (1, 2))
        await session.publish(said("first"))
        await session.publish(said("during the answer"))
        await session.publish(
            AssistantMessage.text("ok").model_copy(update={"turn_id": one, "metadata": {"lanebus.seen": 1}})
        )
        call = AssistantMessage(content=(CALL,), stop_reason="toolUse", turn_id=two)
        await session.publish(call.model_copy(update={"metadata": {"lanebus.seen": 3}}))
        await session.publish(said("later"))
        snapshot = await (await take_run(session)).refresh()
        assert snapshot.loop_state.loop_id == "s1.main.2"
        found = [message.text_content() for message in loop_messages(snapshot) if isinstance(message, UserMessage)]
        assert found == ["during the answer", "later"]


async def test_one_work_is_settled_in_its_trace_and_several_are_linked() -> None:
    recorded = Recorded()
    async with traced_bus(recorded) as bus:
        for name in ("s1", "s2", "s3"):
            await bus.session(name).publish(said("Hi"))
        async with bus.consumer("g", "c") as consumer:
            found = [work for _ in range(3) for work in await consumer.fetch(1)]
            traces: dict[str, str] = {}
            for work in found:
                with bus.tracing.processing(work.session, [said("Hi", THEIRS)], group="g", attempt=1) as trace:
                    traces[work.session] = trace
            await consumer.nack(found[0], delay=60.0, traces=traces)
            await consumer.ack(*found[1:], traces=traces)
    processed = {attributes_of(span)["messaging.destination.name"]: span for span in recorded.spans("process")}
    nack, ack = recorded.one("nack"), recorded.one("ack")
    assert nack.parent is not None
    assert nack.parent.span_id == context_of(processed[found[0].session]).span_id
    assert ack.parent is None
    assert [link.context.span_id for link in ack.links] == [
        context_of(processed[work.session]).span_id for work in found[1:]
    ]
    assert (ack.name, attributes_of(ack)["messaging.batch.message_count"]) == ("ack", 2)
    assert attributes_of(nack)["messaging.operation.type"] == "settle"


# --- imports ------------------------------------------------------------------------------------------------------


def loaded(code: str) -> set[str]:
    code = f"{code}; import sys; print(*(name for name in sys.modules if name.startswith('opentelemetry')))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.full
@pytest.mark.parametrize(
    "code",
    [
        "import lanebus; lanebus.Bus",
        "import lanebus.telemetry; assert lanebus.telemetry.trace_id() == ''",
        "import lanebus.agent; lanebus.agent.Worker",
        "import lanebus.handlers.cli.commands.worker",
    ],
)
def test_nothing_of_opentelemetry_is_imported_before_it_is_asked_for(code: str) -> None:
    assert loaded(code) == set()


@pytest.mark.full
def test_recording_needs_the_api_alone() -> None:
    found = loaded("from lanebus.telemetry import otel_tracing; otel_tracing()")
    assert {name.split(".")[1] for name in found if "." in name} <= {
        *("trace", "context", "propagators", "attributes", "environment_variables", "util", "version", "baggage"),
        *("_logs", "metrics", "propagate"),
    }


@pytest.mark.full
def test_a_missing_api_is_named_with_its_remedy(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from lanebus.telemetry import otel_tracing, TracesMissing\n"
        "try: otel_tracing()\nexcept TracesMissing as error: print(error)"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout == "'opentelemetry-api' is not installed: run pip install 'lanebus[otel]'\n"
