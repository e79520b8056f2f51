"""Keys in the texts of errors reach no log, event, dead letter, span or metric, whichever way an error takes."""

import io
import json
import logging
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from itertools import count
from typing import cast

import anyio
import pytest
from pydantic import JsonValue

from lanebus import AssistantMessage, Bus, BusError, Envelope, Lane, Session, SetupError, ToolCallBlock, UserMessage
from lanebus.agent import AgentLoop, Recorder, SubAgent, TryAgain, Worker, tool
from lanebus.bus import Tracing
from lanebus.bus.servers import Endpoint
from lanebus.groups import RetryPolicy
from lanebus.handlers.agent import Agent, Model, Run, WorkerCounts
from lanebus.handlers.cli.errors import ModuleRaised
from lanebus.handlers.cli.exits import print_error
from lanebus.handlers.cli.log_options import JsonLines, TerminalLines
from lanebus.handlers.cli.modules import load_module
from lanebus.handlers.integrations.telemetry.messaging_spans import ActiveSpan
from lanebus.mcp import McpUnavailable, mcp_tools
from lanebus.projections import FoldFailed
from lanebus.telemetry import otel_tracing
from tests.support.agent.agents import SECONDS, ScriptedModel, answer, calls, fresh_bus, said, wait_for
from tests.support.models.model_api import Step, serve_api
from tests.support.models.model_dialects import DIALECTS
from tests.support.serve import BEARER, TOKEN, create_app, local_hosts, visitor
from tests.support.servers.contents import contents
from tests.support.servers.real import RealServer
from tests.support.telemetry.recorded import Recorded, attributes_of

CANARY = "CANARY0123456789abcdef0123456789"
FAULT = (
    f"refused: POST https://me:{CANARY}@api.example.com/v1?key={CANARY}&alt=sse with headers "
    f"{{'authorization': 'Bearer {CANARY}', 'x-api-key': 'sk-ant-{CANARY}', 'cookie': 'a={CANARY}'}}; "
    f"Incorrect API key provided: sk-proj-{CANARY}, AIza{CANARY}, OPENAI_API_KEY={CANARY}"
)
"""what clients of providers write into their errors"""

READ = "refused: POST https://***@api.example.com/v1?key=***"
"""what may be read of it"""

_namespaces = count()


def fault() -> Exception:
    """Return an error of a client, with another one as its cause."""
    try:
        try:
            raise ConnectionError(FAULT)
        except ConnectionError as cause:
            raise RuntimeError(FAULT) from cause
    except RuntimeError as error:
        return error


@contextmanager
def all_logs() -> Generator[Callable[[], str], None, None]:
    """Collect all lines that lanebus logs, at each level, as Python's own formatter writes them."""
    stream, logger = io.StringIO(), logging.getLogger("lanebus")
    handler, level = logging.StreamHandler(stream), logger.level
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield stream.getvalue
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@tool
async def look(name: str = "") -> str:
    """Look up a name."""
    raise fault()


@tool
def look_in_a_thread() -> str:
    """Look up a name."""
    raise fault()


def raising_approval() -> bool:
    raise fault()


@tool(approval=raising_approval)
async def approved() -> str:
    """Do it."""
    return "done"


class BrokenTool:
    """A tool of the user whose `run` raises."""

    def __init__(self) -> None:
        self.name, self.spec, self.idempotent, self.on_unknown = "broken", look.spec, True, "tell"
        self.spec = type(look.spec)("broken", "Break.", {"type": "object"})
        self.timeout, self.is_sequential, self.approval = 5.0, False, look.approval

    async def run(self, call: ToolCallBlock, context: object) -> object:
        raise fault()


class PlainModel(ScriptedModel):
    """A model whose `stream` raises when it is called."""

    def stream(self, request: object) -> AsyncGenerator[object, None]:  # type: ignore[override]
        raise fault()


def calling(name: str, **arguments: JsonValue) -> ScriptedModel:
    return ScriptedModel(calls(ToolCallBlock(id="c1", name=name, arguments=arguments)), answer("Done."))


async def raising_agent(run: Run) -> None:
    raise fault()


def trying_agent() -> Agent:
    tries = count()

    async def agent(run: Run) -> None:
        del run
        if next(tries):
            raise fault()
        raise TryAgain(0.0, FAULT)

    return agent


async def raising_guard(_: object) -> None:
    raise fault()


async def recording_agent(run: Run) -> None:
    del run
    raise ExceptionGroup("several", [fault()])


FAILED = AssistantMessage(stop_reason="error", error_message=FAULT)
NO_RETRY = RetryPolicy(attempts=1, base=0.0)
ONE_MORE = RetryPolicy(attempts=2, base=0.0)


def loop(model: object, *tools: object, **more: object) -> Agent:
    return AgentLoop(cast("Model", model), tools, retry=NO_RETRY, **more)  # type: ignore[arg-type]


def broken_helper() -> AgentLoop:
    return AgentLoop(ScriptedModel([fault()]), name="helper", retry=NO_RETRY)


AGENTS: dict[str, Callable[[], Agent]] = {
    "a model raises": lambda: loop(ScriptedModel([fault()])),
    "a model raises in the middle of its answer": lambda: loop(ScriptedModel([*answer("Hello")[:2], fault()])),
    "a model's stream raises at once": lambda: loop(PlainModel()),
    "a model answers with an error": lambda: loop(ScriptedModel([FAILED])),
    "an async tool raises": lambda: loop(calling("look"), look),
    "a sync tool raises": lambda: loop(calling("look_in_a_thread"), look_in_a_thread),
    "a tool object raises": lambda: loop(calling("broken"), BrokenTool()),
    "an agent raises": lambda: raising_agent,
    "an agent raises a group": lambda: recording_agent,
    "an agent wants to try again": trying_agent,
    "a sub-agent's model raises": lambda: loop(
        calling("helper", task="x"), SubAgent("helper", broken_helper(), "Help.")
    ),
    "a guard raises": lambda: loop(ScriptedModel(answer("x")), guards=[raising_guard]),
}


@asynccontextmanager
async def provider(dialect: str, way: str) -> AsyncGenerator[Agent, None]:
    """Yield an agent whose model's server fails in this way."""
    form = DIALECTS[dialect]
    script: list[Step] = [form.status(400, "invalid_request_error", FAULT)]
    if way == "in the stream":
        text = json.dumps(form.fault)
        found = [each for each in _texts(form.fault) if " " in each] or ["Overloaded"]
        for each in found:
            text = text.replace(json.dumps(each), json.dumps(FAULT))
        script = [cast("Step", json.loads(text))]
    elif way == "garbage":
        script = [f"data: {{{FAULT}\n\n".encode()]
    async with AsyncExitStack() as stack:
        _, url = await stack.enter_async_context(serve_api(form.frame, script))
        if way == "unreachable":
            url = f"http://me:{CANARY}@127.0.0.1:1"
        yield loop(await stack.enter_async_context(form.make(url)))


def _texts(value: JsonValue) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [text for each in value.values() for text in _texts(each)]
        case list():
            return [text for each in value for text in _texts(each)]
        case _:
            return []


async def assert_hidden(server: RealServer, agent: Agent) -> str:
    """Run an agent at a worker until it has answered or given up. Return what was stored."""
    recorded, name = Recorded(), f"canary{next(_namespaces)}"
    tracing: Tracing = otel_tracing(recorded.provider, capture_content=True)
    with all_logs() as logs:
        async with (
            Bus.open(server.url, namespace=name, tracing=tracing) as bus,
            Worker(bus, agent, retry=ONE_MORE) as worker,
        ):
            session = bus.session("s1")
            await session.publish(UserMessage.text("hi"))
            with anyio.fail_after(SECONDS):
                while not (await _is_over(bus)):  # noqa: ASYNC110  # the server sets no events of ours
                    await anyio.sleep(0.02)
            counted = repr({field: getattr(worker.counts, field) for field in WorkerCounts.__annotations__})
            stored = contents(server, name)
    spans = [
        (span.name, attributes_of(span), [(e.name, dict(e.attributes or {})) for e in span.events], span.status)
        for span in recorded.spans()
    ]
    shown = repr([(*facts, status.description) for *facts, status in spans])
    for place, text in (("log", stored), ("lines", logs()), ("spans", shown), ("metrics", counted)):
        assert "CANARY" not in text, place
    return stored


async def _is_over(bus: Bus) -> bool:
    lines = await said(bus.session("s1"))
    return "agent.ended" in lines or bool([letter async for letter in bus.dead_letters("agents").read()])


@pytest.mark.parametrize("name", AGENTS)
async def test_a_worker_s_errors_are_recorded_without_keys(shared_valkey: RealServer, name: str) -> None:
    stored = await assert_hidden(shared_valkey, AGENTS[name]())
    assert READ in stored or "several" in stored


@pytest.mark.parametrize("way", ["refused", "in the stream", "garbage", "unreachable"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_provider_s_errors_are_recorded_without_keys(shared_valkey: RealServer, dialect: str, way: str) -> None:
    async with provider(dialect, way) as agent:
        stored = await assert_hidden(shared_valkey, agent)
    assert '"stopReason":"error"' in stored or '"stop_reason":"error"' in stored
    if way == "refused":
        assert READ in stored


async def test_an_approval_that_raises_is_logged_without_keys_and_a_person_is_asked(shared_valkey: RealServer) -> None:
    with all_logs() as logs:
        async with (
            shared_valkey.bus(f"canary{next(_namespaces)}") as bus,
            Worker(bus, loop(calling("approved"), approved)),
        ):
            await bus.session("s1").publish(UserMessage.text("hi"))
            await wait_for(bus.session("s1"), "agent.tool.waiting")
    assert "the approval function of tool approved failed" in logs()
    assert "CANARY" not in logs()


async def test_a_recorded_turn_and_tool_that_raise_are_recorded_without_keys(shared_valkey: RealServer) -> None:
    name = f"canary{next(_namespaces)}"
    with all_logs() as logs:
        async with shared_valkey.bus(name) as bus:
            session = bus.session("s1")
            await session.publish(UserMessage.text("hi"))
            async with Recorder(session) as recorder:
                async with recorder.turn(model=ScriptedModel()) as turn:
                    call = ToolCallBlock(id="c1", name="look")
                    await turn.answer(AssistantMessage(content=(call,), stop_reason="toolUse"))
                    async with turn.tool(turn.calls[0]):
                        raise fault()
                with pytest.raises(RuntimeError):
                    async with recorder.turn(model=ScriptedModel()):
                        raise fault()
            stored = contents(shared_valkey, name)
    assert READ in stored
    assert "CANARY" not in stored + logs()


async def test_a_dead_letter_and_a_retry_of_your_own_consumer_have_no_keys(shared_valkey: RealServer) -> None:
    name = f"canary{next(_namespaces)}"
    async with shared_valkey.bus(name) as bus, bus.consumer("g", "c") as consumer:
        await bus.session("s1").publish(UserMessage.text("hi"))
        (work,) = await consumer.fetch(1)
        await consumer.nack(work, delay=0, error=FAULT)
        (work,) = await consumer.fetch(1)
        await consumer.dead_letter(work, reason=FAULT)
        assert READ in work.error
        assert "CANARY" not in contents(shared_valkey, name)


@pytest.mark.full
async def test_an_mcp_server_that_cannot_be_reached_is_named_without_keys() -> None:
    with all_logs() as logs, pytest.raises(McpUnavailable) as caught:
        async with mcp_tools(f"http://me:{CANARY}@127.0.0.1:1/mcp?key={CANARY}"):
            raise AssertionError
    assert "CANARY" not in str(caught.value) + logs()


def test_a_fold_that_raises_is_named_without_keys() -> None:
    entry = Envelope("s1", 1, Lane.LLM, UserMessage.text("hi"), 0.0, "")
    assert READ[:20] in (text := str(FoldFailed("p", entry, fault())))
    assert "CANARY" not in text


def test_a_server_s_url_with_an_unknown_option_is_named_without_its_password() -> None:
    with pytest.raises(SetupError) as caught:
        Endpoint(f"redis://me:{CANARY}@localhost?password={CANARY}&db=x{CANARY}")
    assert "CANARY" not in str(caught.value).replace(f"x{CANARY}", "")


async def test_an_http_error_has_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Session:
        raise BusError(FAULT)

    async with fresh_bus() as bus:
        client = visitor(create_app(bus, token=TOKEN, allowed_hosts=local_hosts(8420)), **BEARER)
        monkeypatch.setattr(Bus, "session", broken)
        reply = await client.get("/api/sessions/s1")
    assert (reply.status_code, READ in reply.text, "CANARY" in reply.text) == (500, True, False)


def test_the_command_line_shows_no_keys(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(FAULT, FAULT)

    def load(_: str) -> None:
        raise fault()

    with pytest.raises(ModuleRaised) as caught:
        load_module(load, "my_agents:agent")
    error = capsys.readouterr().err
    assert READ in error
    assert "CANARY" not in error + caught.value.trace


@pytest.mark.parametrize("lines", [JsonLines, TerminalLines])
def test_lines_of_other_packages_have_no_keys(lines: type[logging.Formatter]) -> None:
    record = logging.LogRecord("httpx", logging.INFO, "x.py", 1, "HTTP Request: %s", (FAULT,), None)
    error = SetupError(FAULT)
    record.exc_info = type(error), error, None
    line = lines().format(record)
    assert "alt=sse" in line
    assert "CANARY" not in line


def test_a_span_of_an_operation_that_raises_has_no_keys() -> None:
    recorded = Recorded()
    span = recorded.provider.get_tracer("t").start_span("x")
    with pytest.raises(RuntimeError), ActiveSpan(span, None):
        raise fault()
    assert "CANARY" not in recorded.one("x").to_json()
    assert "RuntimeError" in recorded.one("x").to_json()
