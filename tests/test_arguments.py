"""Every public call refuses what cannot be meant: a typed error names the argument, and says what to pass instead."""

import inspect
import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Never, Protocol, TypeVar, cast

import anyio
import pytest

from lanebus import (
    START,
    AssistantMessage,
    Bounds,
    Bus,
    BusError,
    Cursor,
    Envelope,
    ExtensionMessage,
    Limits,
    MediaRef,
    SystemMessage,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
    agent,
    archive,
    codecs,
    context,
    media,
    messages,
    projections,
    providers,
)
from lanebus.agent import AgentLoop, Compactor, OfflineModel, Recorder, SubAgent, Worker, tool
from lanebus.bounds import WorkBounds
from lanebus.bus import stop_server
from lanebus.bus.messages import parse_control
from lanebus.bus.wire import Receipt
from lanebus.errors import Closed, Fenced, InvalidArgument, InvalidCursor, NotEntered, SetupError
from lanebus.groups import RetryPolicy
from lanebus.mcp import mcp_tools
from lanebus.projections import USAGE, InvalidProjection, projection
from lanebus.telemetry import otel_tracing
from lanebus.testing import ScriptedModel
from tests.support.agent.agents import fresh_bus
from tests.support.paths import ROOT


class Opened(Protocol):
    """How newcomers use what `Bus.open` returns."""

    def __await__(self) -> Generator[None, None, None]: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> None: ...
    def session(self, session_id: str) -> None: ...


Values = tuple[object, ...]
State = TypeVar("State")
Case = tuple[str, Values, Callable[[object], object]]
"""what is called, wrong values, and the function that passes one of them"""

CURSORS: Values = (42, -1, "x", {}, Cursor(-1), Cursor(1, -1), ("1", 0), b"1", None)
TEXTS: Values = (42, {}, b"x")
SOME_TEXT: Values = (*TEXTS, None)
KEYS: Values = (*TEXTS, "")
NAMES: Values = (*TEXTS, None, "", "a b")
FLAGS: Values = ("yes", 5, None)
POSITIONS: Values = ("1", -1, 1.5, {}, True)
COUNTS: Values = (*POSITIONS, 0, None)
SECONDS: Values = ("1", -1, math.nan, {}, True)
SOME_SECONDS: Values = (*SECONDS, None)
LEASE_SECONDS: Values = (*SOME_SECONDS, 0, math.inf)
MESSAGES: Values = (None, {}, 42, b"x", [])
SAID: Values = (*MESSAGES, AssistantMessage.text("x"))
OBJECTS: Values = (None, 42, "s1")
PLACES: Values = ("x", 42)
TURNS: Values = (*TEXTS, None, "x")

TURN = messages.TurnId(loop_id="s1.main.1", turn_index=0)
HI = UserMessage.text("hi")
MODEL = OfflineModel()
LOOP = AgentLoop(MODEL)
PAGE = ROOT / "README.md"


def wrong(call: Callable[..., object], first: Values = (), **named: Values) -> Iterator[Case]:
    """Yield a case for the next positional argument of a call, and one for each named argument."""
    name = name_of(call)
    if first:
        yield name, first, call
    for argument, values in named.items():
        yield f"{name} {argument}", values, naming(call, argument)


def name_of(call: Callable[..., object]) -> str:
    function = call.func if isinstance(call, partial) else call
    return f"{getattr(function, '__qualname__', function)}"


def naming(call: Callable[..., object], argument: str) -> Callable[[object], object]:
    return lambda bad: call(**{argument: bad})


def firsts(values: Values, *calls: Callable[..., object]) -> Iterator[Case]:
    """Yield a case for the first argument of each call."""
    for call in calls:
        yield from wrong(call, values)


def of_bus(bus: Bus) -> Iterator[Case]:
    yield from firsts(NAMES, bus.session, bus.bucket_of, bus.dead_letters, bus.group_status, bus.remove_group)
    yield from wrong(bus.sessions, bucket=(*POSITIONS, 64))
    yield from wrong(partial(bus.consumer, name="c"), NAMES)
    yield from wrong(partial(bus.consumer, "g"), NAMES)
    yield from wrong(partial(bus.consumer, "g", "c"), heartbeat=("1", -1, math.nan, {}, None, 0))
    yield from wrong(partial(bus.consumer, "g", "c"), start=(None, "later", {}), agents=(42, "ab", [42], [""]))
    yield from wrong(bus.lease_status, (*OBJECTS, [42]))
    yield from wrong(bus.unfetched_work, COUNTS)
    yield from wrong(bus.media.get, OBJECTS)
    yield from wrong(Bus.open, (42, b"u", {}), data_dir=(42, {}, ""), namespace=(42, None, ""))
    yield from wrong(Bus.open, inline_limit_bytes=POSITIONS, media=(*PLACES, Path("x")), archive=(*PLACES, Path("x")))
    yield from wrong(Bus.open, tracing=(None, *PLACES, type(otel_tracing())))
    consumer, letters = bus.consumer("g", "c"), bus.dead_letters("g")
    yield from wrong(consumer.fetch, ("1", 0, None, 1.5))
    yield from wrong(consumer.nack, delay=SECONDS[:-1])
    yield from wrong(letters.read, (42, "", "a b"))
    yield from wrong(letters.get, (None, 42, "x"))
    yield from wrong(letters.redrive, (None, 42))
    yield from wrong(partial(Worker, bus), (*OBJECTS, AgentLoop))
    yield from wrong(partial(Worker, bus, LOOP), agents=(42, [LOOP], {"x": 5}, {5: LOOP}, {"x": AgentLoop}))
    yield from wrong(partial(Worker, bus, LOOP), retry=(None, 3), heartbeat=SECONDS[:-1])
    yield from wrong(partial(Worker, bus, LOOP), start=(None, "later"), concurrency=COUNTS, name=(42, "a b", ""))
    yield from wrong(partial(Worker, bus, LOOP), drain_seconds=SOME_SECONDS)
    yield from wrong(partial(agent.run_worker, target="json:loads"), OBJECTS)
    yield from wrong(partial(agent.run_worker, bus), (*OBJECTS, "json:nothing"))


def of_session(bus: Bus) -> Iterator[Case]:
    one, other = bus.session("s1"), bus.session("s2")
    yield from wrong(one.publish, (*MESSAGES, "text"))
    yield from wrong(partial(one.publish, HI), key=KEYS, expected=POSITIONS[1:], epoch=POSITIONS, wake=("yes", 2))
    yield from wrong(partial(one.publish, HI), seconds=SOME_SECONDS)
    yield from wrong(partial(one.try_publish, HI), key=KEYS)
    yield from wrong(other.close, MESSAGES, reason=SOME_TEXT)
    yield from wrong(other.reopen, reason=SOME_TEXT, key=KEYS)
    yield from wrong(one.preview, epoch=POSITIONS, seconds=SOME_SECONDS)
    yield from wrong(
        one.read, after=CURSORS, until=POSITIONS, lanes=(42, None, "x", ["x"], [42]), kinds=(42, [42], {"x": ["a"]})
    )
    for reads in (one.pages, one.first_page, one.subscribe):
        yield from wrong(reads, after=CURSORS)
    yield from wrong(one.follow, after=CURSORS, buffer_bytes=(*POSITIONS, None))
    yield from wrong(
        partial(one.save_projection, name="n", version=1, state=b"", cursor=START, expected=0),
        name=NAMES,
        state=OBJECTS,
        cursor=CURSORS,
        expected=POSITIONS,
    )
    for keeps in (one.load_projection, one.drop_projection):
        yield from wrong(partial(keeps, name="n", version=1), name=NAMES, version=(*POSITIONS, None))
    yield from firsts(NAMES, one.load_checkpoint, one.drop_checkpoint, one.sibling, one.hand_over)
    yield from wrong(partial(one.save_checkpoint, name="r", cursor=START), name=NAMES, cursor=CURSORS)
    yield from wrong(one.trim, (*POSITIONS, None))
    yield from wrong(partial(one.trim, 1), force=FLAGS, dry_run=FLAGS)
    yield from wrong(other.erase, media=FLAGS, force=FLAGS, rewrite=FLAGS)
    yield from wrong(one.lease, SOME_TEXT)
    yield from wrong(partial(one.lease, "h"), seconds=LEASE_SECONDS, wait=SECONDS)
    yield from wrong(partial(one.acquire_lease, owner="o", seconds=1.0), owner=(*KEYS, None), seconds=LEASE_SECONDS)
    yield from wrong(one.wait_for_wake_up, CURSORS)
    yield from wrong(one.fork, POSITIONS)
    yield from wrong(partial(one.fork, 1), id=(42, "", "a b"))
    yield from wrong(partial(one.hand_over, "b"), by=TEXTS, reason=TEXTS, key=TEXTS, expected=POSITIONS[1:])


def of_commands(bus: Bus) -> Iterator[Case]:
    one = bus.session("s1")
    receipt = Receipt((1,), False)
    yield from firsts(OBJECTS, agent.load_agent, agent.load_model)
    for commands in (agent.handoff, agent.resume, agent.request_compaction):
        yield from wrong(partial(commands, one), by=TEXTS, key=KEYS)
    yield from wrong(partial(agent.abort, one), loop_id=TEXTS, when=(None, "x", 42), by=TEXTS, key=KEYS)
    yield from firsts(SAID, partial(agent.steer, one), partial(agent.follow_up, one))
    yield from wrong(partial(agent.steer, one, "x"), key=KEYS)
    yield from wrong(partial(agent.decide_call, one), OBJECTS)
    yield from wrong(partial(agent.approve, one, turn_id=TURN, tool_call_id="c"), turn_id=TURNS, tool_call_id=SOME_TEXT)
    yield from wrong(partial(agent.deny, one, tool_call_id="c"), TURNS)
    yield from wrong(partial(agent.read_request, one), TURNS)
    yield from wrong(partial(agent.answered, one, receipt), seconds=SECONDS)
    yield from wrong(partial(agent.ask, one), (*SAID, SystemMessage.text("x"), ExtensionMessage.of("x")))
    yield from wrong(partial(agent.ask, one, "x"), seconds=SECONDS)
    yield from wrong(partial(Recorder, one), agent=TEXTS, config=(*KEYS, None), wait=SECONDS)


def tool_with(**options: Never) -> object:
    return tool(**options)(print)


def of_agents(bus: Bus) -> Iterator[Case]:
    del bus
    yield from wrong(partial(agent.load_model, "anthropic/x"), max_token=(1, "x"))
    yield from wrong(OfflineModel, name=(*TEXTS, None, ""))
    yield from wrong(AgentLoop, (*OBJECTS, "anthropic/x", OfflineModel))
    yield from wrong(partial(AgentLoop, MODEL), (42, None, add, "add", [42], [print]), system=TEXTS, name=NAMES)
    yield from wrong(partial(AgentLoop, MODEL), config=(*KEYS, None), max_turns=(*POSITIONS, 0))
    yield from wrong(partial(AgentLoop, MODEL), max_tokens=COUNTS, guards=(42, None, print, [42]), retry=(None, 3))
    yield from wrong(partial(AgentLoop, MODEL), drain_seconds=SOME_SECONDS, silence_seconds=SECONDS)
    yield from wrong(partial(AgentLoop, MODEL), compaction=(42, "yes", Compactor))
    yield from wrong(agent.LoopLimits, turns=POSITIONS, tokens=POSITIONS, seconds=SECONDS, cost=TEXTS[1:])
    yield from wrong(partial(SubAgent, name="x", agent=None, description="d"), name=NAMES, agent=(*PLACES, AgentLoop))
    yield from wrong(partial(SubAgent, name="x", agent=None, description="d"), description=SOME_TEXT)
    yield from wrong(partial(SubAgent, name="x", agent=None, description="d"), max_depth=(*POSITIONS, None))
    yield from wrong(partial(SubAgent, name="x", agent=None, description="d"), max_children=(*POSITIONS, 0))
    yield from wrong(partial(SubAgent, name="x", agent=None, description="d"), seconds=SECONDS)
    yield from wrong(tool, (42, "add", int))
    yield from wrong(tool_with, name=KEYS, description=TEXTS, timeout=(*SECONDS, 0), on_unknown=(None, "x", 1))
    yield from wrong(tool_with, **dict.fromkeys(("idempotent", "approval", "sequential"), (None, "yes", 1)))
    yield from wrong(agent.Tool, name=("x",))
    yield from wrong(agent.CompactionPolicy, window=POSITIONS, reserve=POSITIONS, keep_recent=POSITIONS)
    yield from wrong(agent.CompactionPolicy, max_tokens=POSITIONS, attempts=POSITIONS, pause=SECONDS)
    yield from wrong(agent.CompactionPolicy, drain_seconds=SECONDS, silence_seconds=SECONDS)
    yield from wrong(agent.CompactionPolicy, model=(*PLACES, OfflineModel), instructions=TEXTS)
    yield from wrong(Compactor, OBJECTS)
    yield from wrong(partial(agent.ToolSpec, name="n", description="d", schema={}), name=(*TEXTS, None, ""))
    yield from wrong(partial(agent.ToolSpec, name="n", description="d", schema={}), description=SOME_TEXT)
    yield from wrong(partial(agent.ToolSpec, name="n", description="d", schema={}), schema=(5, None, "{}", []))
    yield from wrong(providers.ToolChoice, (5, None, "x"))
    yield from wrong(partial(providers.ToolChoice, "named"), (5, None, ""))
    yield from wrong(ScriptedModel, (5, None, b"x", HI))
    yield from wrong(RetryPolicy, retried=(5, "x", (5,), ValueError), is_retried=OBJECTS)
    yield from wrong(partial(mcp_tools, "http://localhost:1/mcp"), only=(5, "x", [5]), call_seconds=SECONDS)
    yield from wrong(partial(mcp_tools, "http://localhost:1/mcp"), connect_seconds=SECONDS, trust_hints=FLAGS)
    yield from wrong(partial(mcp_tools, "http://localhost:1/mcp"), on_unknown=OBJECTS)


def of_values(bus: Bus) -> Iterator[Case]:
    del bus
    sizes = ("message_bytes", "session_bytes", "namespace_bytes", "reserve_bytes")
    yield from wrong(Limits, **dict.fromkeys(sizes, POSITIONS))
    yield from wrong(Bounds, publish=(None, 5, WorkBounds()))
    yield from wrong(providers.AnthropicAnswer, TEXTS)
    yield from wrong(partial(providers.AnthropicAnswer, "m", None), OBJECTS)
    yield from wrong(codecs.EventReader, position=POSITIONS)
    yield from wrong(codecs.coding_agent_codec, provider=TEXTS)
    yield from wrong(codecs.universal_client_codec, files=PLACES)
    yield from firsts((*PLACES, None), media.DirectoryMedia, archive.DirectoryArchive)
    yield from firsts(OBJECTS, media.ObjectMedia, archive.ObjectArchive)
    yield from wrong(partial(media.as_agentflow, MediaRef.from_url("https://example.org/x.png")), key=TEXTS)
    yield from firsts((5, None, ""), media.media_store_at, archive.archive_store_at)
    yield from firsts((None, 42), MediaRef.from_file, media.media_from_file)
    yield from wrong(partial(MediaRef.from_file, PAGE), limit_bytes=(*POSITIONS, None))
    yield from wrong(partial(media.media_from_file, PAGE), limit_bytes=(*POSITIONS, None))
    yield from wrong(MediaRef.of, (5, None, Path("x"), ""))
    yield from wrong(MediaRef.from_url, (5, None, b"x"))
    yield from wrong(MediaRef.from_bytes, (5, None, "x", b""))
    yield from wrong(partial(media.resolve_media, [HI], store=None), limit_bytes=POSITIONS, sign_seconds=SECONDS)
    yield from wrong(UserMessage, ("hi",), content=("hi", [5]))
    yield from wrong(ExtensionMessage, ("k",))
    yield from wrong(messages.TurnId, ("s1.main.1#0",))
    yield from wrong(messages.TurnId.from_text, (None, 42, "x"))
    yield from wrong(Cursor.parse, (None, 42, b"1", "x", {}))
    yield from firsts(SOME_TEXT, UserMessage.text, SystemMessage.text, AssistantMessage.text)
    yield from wrong(ExtensionMessage.of, (*TEXTS, None, ""))
    yield from wrong(partial(ExtensionMessage.of, "k"), ({1: 2}, object(), b"x"))
    yield from firsts((5, None, [5]), partial(UserMessage.with_images, "x"), partial(UserMessage.with_audio, "x"))
    yield from wrong(ToolResultMessage.of, (5, None))
    yield from wrong(partial(Usage, output=0), input=("x", 1.5, True))
    yield from firsts((*OBJECTS, HI), messages.parse_event, parse_control, messages.extract_json, agent.failure_of)
    yield from wrong(messages.read_message, OBJECTS)
    yield from wrong(messages.split_reasoning, (None, 5, b"x"))
    yield from wrong(messages.blocks_text, (None, 5, "x", [5]))
    yield from wrong(partial(messages.result_text, structured=None), (5, None, "x", [5]))


def of_contexts(bus: Bus, found: context.Context) -> Iterator[Case]:
    one = bus.session("s1")
    nodes: Values = ("1", -1, 1.5, {})
    yield from wrong(partial(context.build_context, one), at=POSITIONS, leaf=nodes)
    yield from wrong(partial(context.read_tree, one), at=POSITIONS)
    yield from wrong(partial(context.branch, one), nodes)
    yield from wrong(partial(context.branch_with_summary, one, None), SOME_TEXT)
    yield from wrong(partial(context.compact, one, first_kept=None), SOME_TEXT)
    yield from wrong(partial(context.compact, one, "x"), (*POSITIONS, 0, 99))
    yield from wrong(partial(context.prune, one), (42, None, ["1"], "1"))
    yield from wrong(partial(context.undo_compaction, one), epoch=POSITIONS)
    yield from wrong(partial(context.label, one, name="x"), (None, "1", 1.5))
    yield from wrong(partial(context.label, one, 1), TEXTS)
    yield from wrong(partial(context.compact_loops, one), (*OBJECTS, {"x": 5}))
    yield from wrong(partial(context.first_to_keep, found), POSITIONS, up_to=POSITIONS)
    yield from wrong(context.loops_of, (5, None))
    revert = partial(context.revert, one, 1, loop_id="s1.main.1")
    yield from wrong(partial(revert, category="failure"), summary=TEXTS)
    yield from wrong(partial(revert, "s"), (5, None, "x"))
    yield from wrong(context.HeadroomTrigger, window=POSITIONS, system=POSITIONS)
    yield from wrong(context.HeadroomTrigger, **dict.fromkeys(("full", "least_free"), (-1, 2, "x", math.nan)))
    yield from wrong(context.ReserveTrigger, window=POSITIONS)
    yield from wrong(partial(context.ReserveTrigger, window=9), reserve=POSITIONS, is_enabled=FLAGS)
    for reader in (
        providers.from_anthropic,
        providers.from_gemini,
        providers.from_openai_chat,
        providers.from_openai_responses,
    ):
        yield from wrong(reader, (*OBJECTS, []))
    for builds in (providers.to_gemini, providers.to_openai_chat, providers.to_openai_responses):
        yield from wrong(partial(builds, found, model="m"), max_tokens=(*POSITIONS, 0), stream=FLAGS)
    yield from wrong(
        partial(providers.to_anthropic, found, model="m"),
        model=TEXTS,
        max_tokens=(*POSITIONS, 0),
        tools=([agent.ToolSpec("a", "", {})] * 2,),
        tool_choice=(5, "auto"),
        media=PLACES,
        stream=FLAGS,
        max_token=(5,),
    )


def of_projections(bus: Bus) -> Iterator[Case]:
    one = bus.session("s1")
    yield from wrong(partial(projections.follow, one, USAGE), after=CURSORS[:-1], store_every=COUNTS)
    for each in (projections.follow_all, projections.project_all, projections.rebuild_all):
        yield from wrong(partial(each, bus, USAGE), OBJECTS)
    yield from wrong(partial(projection, version=1), NAMES)
    yield from wrong(partial(projection, "n", version=1), version=COUNTS, lanes=(42, "llm", [42]), kinds=(42, [42]))
    yield from wrong(projection("n", version=1), (42, "x", None))
    yield from wrong(partial(projections.trim_session, one), POSITIONS)
    yield from wrong(partial(projections.trim_session, one, 1), force=FLAGS)
    yield from wrong(projections.find_projection, (*OBJECTS, "", "json:nothing"))


def first(state: State, _: State) -> State:
    return state


def of_bounds(bus: Bus) -> Iterator[Case]:
    del bus
    found = [each for module in ("bounds", "agent", "projections", "mcp") for each in names(f"lanebus.{module}")]
    kinds = [kind for kind in found if inspect.isclass(kind) and kind.__name__.endswith("Bounds")]
    assert len(kinds) > 10
    values: Values = (None, "x", -1, [], math.nan)
    for kind in kinds:
        yield from wrong(kind, **dict.fromkeys(inspect.signature(kind).parameters, values))


def names(module: str) -> list[Callable[..., object]]:
    """Return what a module exports."""
    found = import_module(module)
    return [getattr(found, name) for name in found.__all__]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def done(result: object) -> None:
    """Wait for what a call returned, take its first item, or enter its block."""
    if isinstance(result, AbstractAsyncContextManager):
        async with cast("AbstractAsyncContextManager[object]", result):
            pass
    elif isinstance(result, AsyncGenerator):
        try:
            await anext(cast("AsyncGenerator[object, None]", result))
        finally:
            await cast("AsyncGenerator[object, None]", result).aclose()
    elif inspect.isawaitable(result):
        await result


async def faults(*cases: Case) -> list[str]:
    """Return the calls that took a wrong value, or raised a raw error or one without advice."""
    found = list[str]()
    for name, values, call in cases:
        for value in values:
            try:
                with anyio.fail_after(30):
                    await done(call(value))
                found.append(f"{name}: took {value!r}")
            except BusError as error:
                if isinstance(error, InvalidArgument) and not error.advice:
                    found.append(f"{name}: {value!r}: {error}")
            except Exception as error:  # noqa: BLE001  # a raw error is what the test looks for
                found.append(f"{name}: {value!r}: {error!r}")
    return found


@pytest.mark.parametrize("of", [of_bus, of_session, of_commands, of_agents, of_values, of_bounds])
async def test_a_wrong_argument_raises_a_typed_error(of: Callable[[Bus], Iterator[Case]]) -> None:
    async with fresh_bus() as bus:
        await bus.session("s1").publish(HI)
        assert await faults(*of(bus)) == []


async def test_a_wrong_argument_of_a_fold_raises_a_typed_error() -> None:
    async with fresh_bus() as bus:
        await bus.session("s1").publish(HI)
        found = await context.build_context(bus.session("s1"))
        assert await faults(*of_contexts(bus, found), *of_projections(bus)) == []


MODULES = ("", ".messages", ".agent", ".context", ".projections", ".providers", ".codecs", ".media", ".archive", ".mcp")


@pytest.mark.parametrize("module", [f"lanebus{each}" for each in MODULES])
def test_every_exported_function_that_takes_texts_numbers_or_flags_has_a_row_with_wrong_ones(module: str) -> None:
    """The classes of objects are left to type checkers: a wrong object fails at its first attribute."""
    known = {*re.findall(r"\w+", Path(__file__).read_text(encoding="utf-8"))}
    functions = [each for each in names(module) if inspect.isfunction(each) and takes_values(each)]
    assert [each.__name__ for each in functions if each.__name__ not in known | UNCHECKED] == []


UNCHECKED = {"archive_session", "check_chain", "session_lines", "usage_tokens"}
"""store nothing that they are given: an archive's caller is a session, and a flag only chooses a number"""


def takes_values(function: Callable[..., object]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(re.search(r"\b(str|int|float|bool|RequestOptions)\b", str(each.annotation)) for each in parameters)


async def test_a_wrong_argument_of_a_recorded_turn_raises_a_typed_error_and_records_nothing() -> None:
    async with fresh_bus() as bus:
        session = bus.session("s1")
        await session.publish(HI)
        async with Recorder(session) as recorder, recorder.turn(model="m") as turn:
            before = (await session.head()).position
            of_tools = [*wrong(turn.tool, (*MESSAGES, "c1"))]
            of_tools += wrong(partial(turn.tool_result, result="x"), (*MESSAGES, "c1"))
            cases = [
                *wrong(recorder.wait_for_work, SECONDS),
                *wrong(recorder.turn, model=(None, 42, {})),
                *wrong(
                    partial(recorder.turn, model="m"),
                    provider=SOME_TEXT,
                    tools=([42], ["x"], [print], 42, add, "x"),
                    max_tokens=COUNTS,
                ),
                *wrong(recorder.end, (None, 42, "finished")),
                *wrong(partial(recorder.end, "stop"), SOME_TEXT),
                *firsts(MESSAGES, turn.piece, turn.fail),
                *wrong(turn.answer, MESSAGES[1:]),
                *wrong(partial(turn.answer, "x"), usage=TEXTS),
            ]
            assert await faults(*cases, *of_tools) == []
            assert (await session.head()).position == before
            await turn.answer(AssistantMessage(content=(ToolCallBlock(id="c1", name="t", arguments={}),)))
            before = (await session.head()).position
            nan, reply = math.nan, cast("Callable[..., object]", agent.ToolReply)
            results = (nan, {"a": nan}, [object()], reply(5), reply("x", {1}))
            assert await faults(*wrong(partial(turn.tool_result, turn.calls[0]), results)) == []
            assert (await session.head()).position == before
            assert await faults(*of_tools, *wrong(turn.approval, (*MESSAGES, "c1"))) == []
            await turn.tool_result(turn.calls[0], "done")


async def test_a_cursor_may_be_given_as_its_text() -> None:
    async with fresh_bus() as bus:
        session = bus.session("s1")
        first, second = (await session.publish(HI), await session.publish(HI))
        for after in (first.cursor, str(first.cursor), "1-0", "1"):
            assert [envelope.position async for envelope in session.read(after=after)] == [second.position]
            async for envelope in session.follow(after=after):
                assert envelope.position == second.position
                break
        assert await session.save_checkpoint("r", str(second.cursor))
        assert await session.load_checkpoint("r") == second.cursor
        with pytest.raises(InvalidCursor, match="'one' is not a cursor: use <position>"):
            await done(session.read(after="one"))


async def test_error_names_the_argument_its_value_and_what_to_pass() -> None:
    async with fresh_bus() as bus:
        with pytest.raises(InvalidArgument, match="`session_id` is 42: pass a text") as caught:
            bus.session(cast("Never", 42))
        assert (caught.value.name, caught.value.given) == ("session_id", "42")
        with pytest.raises(InvalidArgument, match="`seconds` is -1: pass seconds, as a number of 0 or more"):
            await bus.session("s1").publish(HI, seconds=-1)
        with pytest.raises(InvalidArgument, match="`when` is 'later': it should be 'now' or 'turn'"):
            await agent.abort(bus.session("s1"), when=cast("Never", "later"))
        with pytest.raises(InvalidArgument, match="`after` is of type dict: pass a Cursor"):
            await done(bus.session("s1").read(after=cast("Never", {"secret": 1})))
        receipt = await bus.session("s1").publish(HI)
        envelope = await anext(bus.session("s1").read())
        for given in (receipt, envelope, await bus.session("s1").head()):
            with pytest.raises(InvalidArgument, match="pass its `cursor`"):
                await done(bus.session("s1").follow(after=cast("Never", given)))
        with pytest.raises(InvalidArgument, match="pass its `cursor`"):
            await bus.session("s1").publish(HI, expected=cast("Never", envelope))
        for wrong in (-1, True, 1.5):
            with pytest.raises(InvalidArgument, match="pass a cursor, its text, a receipt, or START"):
                await bus.session("s1").publish(HI, expected=cast("Never", wrong))


async def test_error_names_the_argument_as_the_caller_wrote_it() -> None:
    async with fresh_bus() as bus:
        one = bus.session("s1")
        calls: tuple[tuple[Callable[[], object], str], ...] = (
            (lambda: one.read(after=Cursor(-1)), "after.position"),
            (lambda: one.read(after=Cursor(1, -1)), "after.delta"),
            (lambda: one.fork(id=cast("Never", 5)), "id"),
            (lambda: one.publish(HI, epoch=cast("Never", "5")), "epoch"),
            (lambda: bus.consumer("g", "c", agents=cast("Never", 5)), "agents"),
            (lambda: context.branch(one, cast("Never", "1")), "to"),
            (lambda: context.label(one, cast("Never", "1"), "x"), "target"),
            (lambda: cast("Callable[..., object]", AgentLoop)(MODEL, name=cast("Never", 5)), "name"),
            (lambda: SubAgent(cast("Never", 5), None, "d"), "name"),
        )
        for call, name in calls:
            with pytest.raises(InvalidArgument) as caught:
                await done(call())
            assert caught.value.name == name


def test_a_model_given_as_text_is_answered_with_the_call_that_loads_it() -> None:
    with pytest.raises(InvalidArgument, match=r'pass a model, such as load_model\("openai/gpt-5"\)'):
        AgentLoop(cast("Never", "openai/gpt-5"))


async def test_an_epoch_that_no_lease_had_is_told_from_a_lost_lease() -> None:
    async with fresh_bus() as bus:
        one = bus.session("s1")
        await one.publish(HI)
        with pytest.raises(Fenced, match=r"no lease of session 's1' has epoch 5, .*: pass the `epoch` of a lease"):
            await one.publish(HI, epoch=5)


async def test_a_bus_that_is_opened_without_async_with_says_so() -> None:
    opening = cast("Opened", Bus.open())
    with pytest.raises(NotEntered, match=r"`Bus.open\(\)` was awaited: write `async with Bus.open\(\) as …:`"):
        await opening
    with pytest.raises(NotEntered, match="entered with `with`"), opening:
        pass
    with pytest.raises(NotEntered, match="asked for 'session'"):
        opening.session("s1")


def test_a_data_directory_may_be_a_text(short_dir: Path) -> None:
    async def opened() -> None:
        async with Bus.open(data_dir=str(short_dir / "log")) as bus:
            assert (await bus.session("s1").publish(HI)).position == 1
        await stop_server(short_dir / "log")

    anyio.run(opened)


def test_a_response_object_of_an_sdk_is_answered_with_the_call_that_makes_it_json() -> None:
    with pytest.raises(InvalidArgument, match=r"`response` is of type object: .*model_dump\(mode=\"json\"\)"):
        providers.from_anthropic(cast("Never", object()))


def test_a_misspelt_option_of_a_request_is_answered_with_the_right_one() -> None:
    with pytest.raises(InvalidArgument, match="did you mean `max_tokens`"):
        cast("Callable[..., object]", providers.to_anthropic)(context.Context("s1"), model="m", max_token=5)


@pytest.mark.parametrize("verdict", ["rejected", False, agent.Reject(cast("Never", 5))])
async def test_a_guard_that_returns_no_verdict_does_not_let_messages_pass(verdict: object) -> None:
    async def guard(_: object) -> object:
        return verdict

    await _refused(guard, "guard returns Reject")


def silent(prompts: object) -> None:
    """A guard that is not async."""
    del prompts


async def test_a_guard_that_is_not_async_does_not_let_messages_pass() -> None:
    await _refused(silent, "`async def`")


async def _refused(guard: object, text: str) -> None:
    async with fresh_bus() as bus:
        session = bus.session("s1")
        worker = Worker(bus, AgentLoop(ScriptedModel("hello"), guards=[cast("Never", guard)]))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            with pytest.raises(BusError, match=text):
                await agent.ask(session, "hi", seconds=60)
            tasks.cancel_scope.cancel()


class _Opaque:
    """A type that JSON cannot hold."""


def of_opaque(a: _Opaque) -> int:
    """Take an object."""
    return id(a)


def yields(a: int) -> Iterator[int]:
    """Yield numbers."""
    yield a


async def yields_async(a: int) -> AsyncIterator[int]:
    """Yield numbers."""
    yield a


@pytest.mark.parametrize(
    ("function", "text"), [(of_opaque, "types that a model can pass"), (yields, "yields"), (yields_async, "yields")]
)
def test_a_function_that_cannot_be_a_tool_is_refused(function: Callable[..., object], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        tool(function)


def test_a_fold_that_yields_is_refused() -> None:
    def fold(state: int, envelope: Envelope) -> Iterator[int]:
        yield state + envelope.position

    with pytest.raises(InvalidProjection, match="its fold yields: return the state"):
        projection("yielding", version=1, initial=0)(cast("Never", fold))


async def test_what_is_entered_or_run_twice_says_so() -> None:
    async with fresh_bus() as bus:
        async with Recorder(bus.session("s1")) as recorder:
            with pytest.raises(agent.RecorderMisused, match="open already: make another Recorder"):
                await recorder.__aenter__()
            assert not await recorder.wait_for_work(0)
        worker = Worker(bus, AgentLoop(MODEL))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(SetupError, match="runs already"):
                await worker.run()
            tasks.cancel_scope.cancel()
    with pytest.raises(Closed, match="open another"):  # and no exception group
        await worker.run()


async def test_what_bus_open_returned_is_entered_only_once() -> None:
    opening = Bus.open("redis://127.0.0.1:1")
    for match in ("refused", "entered twice"):
        with pytest.raises(BusError, match=f"(?i){match}"):
            async with opening:
                pass
    with pytest.raises(NotEntered):
        await opening.__aenter__()
