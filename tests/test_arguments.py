"""Every public call that takes ids, cursors, positions, messages, names or seconds refuses what cannot be meant.

The error is typed, and its sentence says what to pass instead.
"""

import inspect
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Never, Protocol, cast

import anyio
import pytest

from lanebus import (
    START,
    AssistantMessage,
    Bus,
    BusError,
    Cursor,
    ExtensionMessage,
    MediaRef,
    SystemMessage,
    ToolCallBlock,
    UserMessage,
)
from lanebus.agent import (
    AgentLoop,
    Compactor,
    LoopLimits,
    OfflineModel,
    RecordedTurn,
    Recorder,
    SubAgent,
    Tool,
    ToolReply,
    Worker,
    abort,
    answered,
    approve,
    ask,
    decide_call,
    deny,
    follow_up,
    handoff,
    load_agent,
    load_model,
    pause,
    read_request,
    request_compaction,
    resume,
    steer,
    tool,
)
from lanebus.bus import stop_server
from lanebus.bus.hooks import NoTracing
from lanebus.bus.messages import Approve, parse_control
from lanebus.bus.wire import Receipt
from lanebus.context import branch, branch_with_summary, build_context, compact, label, prune, read_tree
from lanebus.errors import Fenced, InvalidArgument, InvalidCursor, NotEntered
from lanebus.media import media_from_file
from lanebus.messages import TurnId, parse_event
from lanebus.projections import USAGE, follow, look, project, projection, rebuild
from tests.support.agent.agents import fresh_bus
from tests.support.paths import ROOT

__all__ = ()


class Opened(Protocol):
    """How newcomers use what `Bus.open` returns."""

    def __await__(self) -> Generator[None, None, None]: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> None: ...
    def session(self, session_id: str) -> None: ...


Values = tuple[object, ...]
Call = Callable[[Never], object]
"""calls something with a wrong value in place of one argument"""

CURSORS: Values = (42, -1, "x", {}, Cursor(-1), Cursor(1, -1), ("1", 0), b"1", None)
TEXTS: Values = (42, {}, b"x")
KEYS: Values = (*TEXTS, "")
NAMES: Values = (*TEXTS, None, "", "a b")
PAGE = ROOT / "README.md"
FLAGS: Values = ("yes", 1, None)
POSITIONS: Values = ("1", -1, 1.5, {}, True)
SECONDS: Values = ("1", -1, math.nan, {}, True)
SOME_SECONDS: Values = (*SECONDS, None)
LEASE_SECONDS: Values = (*SOME_SECONDS, 0, math.inf)
MESSAGES: Values = (None, {}, 42, b"x", [])
OBJECTS: Values = (None, 42, "s1")

TURN = TurnId(loop_id="s1.main.1", turn_index=0)
HI = UserMessage.text("hi")


def of_bus(bus: Bus) -> dict[str, tuple[Values, Call]]:
    consumer, letters = bus.consumer("g", "c"), bus.dead_letters("g")
    return {
        "bus.session": (NAMES, bus.session),
        "bus.bucket_of": (NAMES, bus.bucket_of),
        "bus.sessions": ((*POSITIONS, 64), lambda bad: bus.sessions(bucket=bad)),
        "bus.consumer group": (NAMES, lambda bad: bus.consumer(bad, "c")),
        "bus.consumer name": (NAMES, lambda bad: bus.consumer("g", bad)),
        "bus.consumer heartbeat": ((*SOME_SECONDS[:-2], None, 0), lambda bad: bus.consumer("g", "c", heartbeat=bad)),
        "bus.consumer start": ((None, "later", {}), lambda bad: bus.consumer("g", "c", start=bad)),
        "bus.consumer agents": ((42, "ab", [42], [""]), lambda bad: bus.consumer("g", "c", agents=bad)),
        "bus.dead_letters": (NAMES, bus.dead_letters),
        "bus.group_status": (NAMES, bus.group_status),
        "bus.remove_group": (NAMES, bus.remove_group),
        "bus.activity": ((42, "x"), bus.activity),
        "bus.lease_status": ((*OBJECTS, [42]), bus.lease_status),
        "bus.media.get": ((None, 42, "x"), bus.media.get),
        "Bus.open url": ((42, b"u", {}), Bus.open),
        "Bus.open data_dir": ((42, {}, ""), lambda bad: Bus.open(data_dir=bad)),
        "Bus.open namespace": ((42, None, ""), lambda bad: Bus.open(namespace=bad)),
        "Bus.open inline_limit_bytes": (POSITIONS, lambda bad: Bus.open(inline_limit_bytes=bad)),
        "Bus.open media": (("x", Path("x"), 42), lambda bad: Bus.open(media=bad)),
        "Bus.open archive": (("x", Path("x"), 42), lambda bad: Bus.open(archive=bad)),
        "Bus.open tracing": ((None, 42, "x", NoTracing), lambda bad: Bus.open(tracing=bad)),
        "Bus.open limits": (("x",), lambda bad: Bus.open(limits=bad)),
        "Bus.open bounds": (("x",), lambda bad: Bus.open(bounds=bad)),
        "consumer.fetch": (("1", 0, None, 1.5), consumer.fetch),
        "consumer.ack": (OBJECTS, consumer.ack),
        "consumer.nack": (OBJECTS, consumer.nack),
        "consumer.nack delay": (SECONDS[:-1], lambda bad: consumer.nack(delay=bad)),
        "consumer.heartbeat": (OBJECTS, consumer.heartbeat),
        "consumer.dead_letter": (OBJECTS, lambda bad: consumer.dead_letter(bad, reason="x")),
        "letters.read": ((42, "", "a b"), letters.read),
        "letters.get": ((None, 42, "x"), letters.get),
        "letters.redrive": ((None, [42], ["x"]), letters.redrive),
        "Worker bus": (OBJECTS, lambda bad: Worker(bad, AgentLoop(OfflineModel()))),
        "Worker agent": ((*OBJECTS, AgentLoop), lambda bad: Worker(bus, bad)),
        "Worker agents": ((42, [loop()], {"x": 5}, {5: loop()}, {"x": AgentLoop}), lambda bad: works(bus, agents=bad)),
        "Worker retry": ((None, 3), lambda bad: works(bus, retry=bad)),
        "Worker bounds": ((None, 3), lambda bad: works(bus, bounds=bad)),
        "Worker heartbeat": (SOME_SECONDS[:-1], lambda bad: works(bus, heartbeat=bad)),
        "Worker start": ((None, "later"), lambda bad: works(bus, start=bad)),
        "Worker concurrency": ((*POSITIONS, 0, None), lambda bad: Worker(bus, loop(), concurrency=bad)),
        "Worker name": ((42, "a b", ""), lambda bad: Worker(bus, loop(), name=bad)),
        "Worker drain_seconds": (SOME_SECONDS, lambda bad: Worker(bus, loop(), drain_seconds=bad)),
    }


def of_session(bus: Bus) -> dict[str, tuple[Values, Call]]:
    one, other = bus.session("s1"), bus.session("s2")
    return {
        "publish": ((*MESSAGES, "text"), one.publish),
        "publish key": (KEYS, lambda bad: one.publish(HI, key=bad)),
        "publish expected": (POSITIONS[1:], lambda bad: one.publish(HI, expected=bad)),
        "publish epoch": (POSITIONS, lambda bad: one.publish(HI, epoch=bad)),
        "publish wake": (("yes", 2), lambda bad: one.publish(HI, wake=bad)),
        "publish seconds": (SOME_SECONDS, lambda bad: one.publish(HI, seconds=bad)),
        "try_publish key": (KEYS, lambda bad: one.try_publish(HI, key=bad)),
        "close": (MESSAGES, other.close),
        "close reason": ((*TEXTS, None), lambda bad: other.close(reason=bad)),
        "reopen reason": ((*TEXTS, None), lambda bad: other.reopen(reason=bad)),
        "reopen key": (KEYS, lambda bad: other.reopen(key=bad)),
        "preview": ((*MESSAGES, "text", HI), one.preview),
        "preview epoch": (POSITIONS, lambda bad: one.preview(epoch=bad)),
        "preview seconds": (SOME_SECONDS, lambda bad: one.preview(seconds=bad)),
        "read after": (CURSORS, lambda bad: one.read(after=bad)),
        "read until": (POSITIONS, lambda bad: one.read(until=bad)),
        "read lanes": ((42, None, "x", ["x"], [42]), lambda bad: one.read(lanes=bad)),
        "read kinds": ((42, [42], {"x": ["a"]}), lambda bad: one.read(kinds=bad)),
        "pages after": (CURSORS, lambda bad: one.pages(after=bad)),
        "first_page after": (CURSORS, lambda bad: one.first_page(after=bad)),
        "follow after": (CURSORS, lambda bad: one.follow(after=bad)),
        "follow buffer_bytes": ((*POSITIONS, None), lambda bad: one.follow(buffer_bytes=bad)),
        "subscribe after": (CURSORS, lambda bad: one.subscribe(after=bad)),
        "load_projection": (NAMES, lambda bad: one.load_projection(bad, 1)),
        "load_projection version": ((*POSITIONS, None), lambda bad: one.load_projection("n", bad)),
        "save_projection": (NAMES, lambda bad: one.save_projection(bad, 1, b"", cursor=START, expected=0)),
        "save_projection state": (OBJECTS, lambda bad: one.save_projection("n", 1, bad, cursor=START, expected=0)),
        "save_projection cursor": (CURSORS, lambda bad: one.save_projection("n", 1, b"", cursor=bad, expected=0)),
        "save_projection expected": (
            POSITIONS,
            lambda bad: one.save_projection("n", 1, b"", cursor=START, expected=bad),
        ),
        "drop_projection": (NAMES, lambda bad: one.drop_projection(bad, 1)),
        "load_checkpoint": (NAMES, one.load_checkpoint),
        "save_checkpoint": (NAMES, lambda bad: one.save_checkpoint(bad, START)),
        "save_checkpoint cursor": (CURSORS, lambda bad: one.save_checkpoint("r", bad)),
        "drop_checkpoint": (NAMES, one.drop_checkpoint),
        "trim": ((*POSITIONS, None), one.trim),
        "trim force": (FLAGS, lambda bad: one.trim(1, force=bad)),
        "trim dry_run": (FLAGS, lambda bad: one.trim(1, dry_run=bad)),
        "erase media": (FLAGS, lambda bad: other.erase(media=bad)),
        "erase force": (FLAGS, lambda bad: other.erase(force=bad)),
        "erase rewrite": (FLAGS, lambda bad: other.erase(rewrite=bad)),
        "lease": ((*TEXTS, None), one.lease),
        "lease seconds": (LEASE_SECONDS, lambda bad: one.lease("h", seconds=bad)),
        "lease wait": (SECONDS, lambda bad: one.lease("h", wait=bad)),
        "acquire_lease": ((*KEYS, None), lambda bad: one.acquire_lease(bad, 1.0)),
        "acquire_lease seconds": (LEASE_SECONDS, lambda bad: one.acquire_lease("o", bad)),
        "renew_lease": (OBJECTS, lambda bad: one.renew_lease(bad, 1.0)),
        "release_lease": (OBJECTS, one.release_lease),
        "wait_for_wake_up": (CURSORS, one.wait_for_wake_up),
        "fork": (POSITIONS, one.fork),
        "fork id": ((42, "", "a b"), lambda bad: one.fork(1, id=bad)),
        "sibling": (NAMES, one.sibling),
        "hand_over": (NAMES, one.hand_over),
        "hand_over by": (TEXTS, lambda bad: one.hand_over("b", by=bad)),
        "hand_over reason": (TEXTS, lambda bad: one.hand_over("b", reason=bad)),
        "hand_over key": (TEXTS, lambda bad: one.hand_over("b", key=bad)),
        "hand_over expected": (POSITIONS[1:], lambda bad: one.hand_over("b", expected=bad)),
    }


def of_functions(bus: Bus) -> dict[str, tuple[Values, Call]]:
    one = bus.session("s1")
    return {
        **{
            f"{command.__name__} session": (OBJECTS, command)
            for command in (abort, pause, handoff, resume, request_compaction)
        },
        "abort loop_id": (TEXTS, lambda bad: abort(one, loop_id=bad)),
        "abort when": ((None, "x", 42), lambda bad: abort(one, when=bad)),
        "abort by": (TEXTS, lambda bad: abort(one, by=bad)),
        "abort key": (KEYS, lambda bad: abort(one, key=bad)),
        "steer": ((*MESSAGES, AssistantMessage.text("x")), lambda bad: steer(one, bad)),
        "steer key": (KEYS, lambda bad: steer(one, "x", key=bad)),
        "follow_up": ((*MESSAGES, AssistantMessage.text("x")), lambda bad: follow_up(one, bad)),
        "decide_call session": (OBJECTS, lambda bad: decide_call(bad, Approve(turn_id=TURN, tool_call_id="c"))),
        "decide_call control": (OBJECTS, lambda bad: decide_call(one, bad)),
        "approve turn_id": ((*TEXTS, None, "x"), lambda bad: approve(one, bad, "c")),
        "approve tool_call_id": ((*TEXTS, None), lambda bad: approve(one, TURN, bad)),
        "deny turn_id": ((*TEXTS, None, "x"), lambda bad: deny(one, bad, "c")),
        "deny session": (OBJECTS, lambda bad: deny(bad, "main.1#0", "c")),
        "read_request": (OBJECTS, lambda bad: read_request(bad, TURN)),
        "read_request turn_id": ((*TEXTS, None, "x"), lambda bad: read_request(one, bad)),
        "answered": (OBJECTS, lambda bad: answered(one, bad)),
        "answered seconds": (SECONDS, lambda bad: answered(one, Receipt((1,), False), seconds=bad)),
        "ask": (
            (*MESSAGES, AssistantMessage.text("x"), SystemMessage.text("x"), ExtensionMessage.of("x")),
            lambda bad: ask(one, bad),
        ),
        "ask session": (OBJECTS, lambda bad: ask(bad, "x")),
        "ask seconds": (SECONDS, lambda bad: ask(one, "x", seconds=bad)),
        "load_agent": (OBJECTS, load_agent),
        "load_model": (OBJECTS, load_model),
        "load_model option": ((1, "x"), lambda bad: loads("anthropic/x", max_token=bad)),
        "OfflineModel": ((*TEXTS, None, ""), lambda bad: OfflineModel(name=bad)),
        "AgentLoop model": ((*OBJECTS, "anthropic/x", OfflineModel), AgentLoop),
        "AgentLoop tools": ((42, None, add, "add", [42], [print]), loops),
        "AgentLoop system": (TEXTS, lambda bad: loops(system=bad)),
        "AgentLoop name": (NAMES, lambda bad: loops(name=bad)),
        "AgentLoop config": ((*KEYS, None), lambda bad: loops(config=bad)),
        "AgentLoop limits": ((None, 3), lambda bad: loops(limits=bad)),
        "AgentLoop max_turns": ((*POSITIONS, 0), lambda bad: loops(max_turns=bad)),
        "AgentLoop max_tokens": ((*POSITIONS, 0, None), lambda bad: loops(max_tokens=bad)),
        "AgentLoop guards": ((42, None, print, [42]), lambda bad: loops(guards=bad)),
        "AgentLoop retry": ((None, 3), lambda bad: loops(retry=bad)),
        "AgentLoop drain_seconds": (SOME_SECONDS, lambda bad: loops(drain_seconds=bad)),
        "AgentLoop silence_seconds": (SECONDS, lambda bad: loops(silence_seconds=bad)),
        "AgentLoop compaction": ((42, "yes", Compactor), lambda bad: loops(compaction=bad)),
        "AgentLoop clock": ((None, 42), lambda bad: loops(clock=bad)),
        "LoopLimits turns": (POSITIONS, lambda bad: LoopLimits(turns=bad)),
        "LoopLimits tokens": (POSITIONS, lambda bad: LoopLimits(tokens=bad)),
        "LoopLimits seconds": (SECONDS, lambda bad: LoopLimits(seconds=bad)),
        "LoopLimits cost": (TEXTS[1:], lambda bad: LoopLimits(cost=bad)),
        "SubAgent name": (NAMES, lambda bad: SubAgent(bad, None, "d")),
        "SubAgent agent": ((42, "x", AgentLoop), lambda bad: SubAgent("x", bad, "d")),
        "SubAgent description": ((*TEXTS, None), lambda bad: SubAgent("x", None, bad)),
        "SubAgent max_depth": ((*POSITIONS, None), lambda bad: SubAgent("x", None, "d", max_depth=bad)),
        "SubAgent max_children": ((*POSITIONS, 0), lambda bad: SubAgent("x", None, "d", max_children=bad)),
        "SubAgent seconds": (SECONDS, lambda bad: SubAgent("x", None, "d", seconds=bad)),
        "tool": ((42, "add", int), tool),
        "tool name": (KEYS, lambda bad: tool(name=bad)(print)),
        "tool description": (TEXTS, lambda bad: tool(description=bad)(print)),
        "tool idempotent": ((None, "yes", 1), lambda bad: tool(idempotent=bad)(print)),
        "tool on_unknown": ((None, "x", 1), lambda bad: tool(on_unknown=bad)(print)),
        "tool approval": ((None, "yes", 1), lambda bad: tool(approval=bad)(print)),
        "tool timeout": ((*SECONDS, 0), lambda bad: tool(timeout=bad)(print)),
        "tool sequential": ((None, "yes", 1), lambda bad: tool(sequential=bad)(print)),
        "Tool": (("x",), lambda bad: cast("Callable[..., object]", Tool)(name=bad)),
        "Recorder": (OBJECTS, Recorder),
        "Recorder agent": (TEXTS, lambda bad: Recorder(one, agent=bad)),
        "Recorder lease": ((42, "x"), lambda bad: Recorder(one, lease=bad)),
        "Recorder config": ((*KEYS, None), lambda bad: Recorder(one, config=bad)),
        "Recorder wait": (SECONDS, lambda bad: Recorder(one, wait=bad)),
        "Recorder limits": ((None, 3), lambda bad: Recorder(one, limits=bad)),
        "Recorder clock": ((None, 3), lambda bad: Recorder(one, clock=bad)),
        "Recorder bounds": ((None, 3), lambda bad: Recorder(one, bounds=bad)),
        "build_context": (OBJECTS, build_context),
        "build_context at": (POSITIONS, lambda bad: build_context(one, at=bad)),
        "read_tree": (OBJECTS, read_tree),
        "read_tree at": (POSITIONS, lambda bad: read_tree(one, at=bad)),
        "build_context leaf": (("1", -1, 1.5, {}), lambda bad: build_context(one, leaf=bad)),
        "branch session": (OBJECTS, lambda bad: branch(bad, None)),
        "branch to": (("1", -1, 1.5, {}), lambda bad: branch(one, bad)),
        "branch_with_summary": ((*TEXTS, None), lambda bad: branch_with_summary(one, None, bad)),
        "compact": ((*TEXTS, None), lambda bad: compact(one, bad, None)),
        "compact first_kept": (POSITIONS, lambda bad: compact(one, "x", bad)),
        "compact first_kept of no entry": ((0, 99), lambda bad: compact(one, "x", bad)),
        "prune": ((42, None, ["1"], "1"), lambda bad: prune(one, bad)),
        "label": ((None, "1", 1.5), lambda bad: label(one, bad, "x")),
        "label name": (TEXTS, lambda bad: label(one, 1, bad)),
        **{
            f"{function.__name__} session": (OBJECTS, partial(function, projection=USAGE))
            for function in (project, look, rebuild)
        },
        "project projection": ((None, "usage"), partial(project, one)),
        "follow projection": ((None, "usage"), partial(follow, one)),
        "follow a projection after": (CURSORS[:-1], lambda bad: follow(one, USAGE, after=bad)),
        "follow store_every": ((*POSITIONS, 0, None), lambda bad: follow(one, USAGE, store_every=bad)),
        "projection name": (NAMES, lambda bad: projection(bad, version=1)),
        "projection version": ((*POSITIONS, 0, None), lambda bad: projection("n", version=bad)),
        "projection lanes": ((42, "llm", [42]), lambda bad: projection("n", version=1, lanes=bad)),
        "projection kinds": ((42, [42]), lambda bad: projection("n", version=1, kinds=bad)),
        "projection function": ((42, "x", None), projection("n", version=1)),
        "UserMessage": (("hi",), cast("Call", UserMessage)),
        "ExtensionMessage": (("k",), cast("Call", ExtensionMessage)),
        "TurnId": (("s1.main.1#0",), cast("Call", TurnId)),
        "Cursor.parse": ((None, 42, b"1", "x", {}), Cursor.parse),
        "UserMessage.text": ((*TEXTS, None), UserMessage.text),
        "SystemMessage.text": ((*TEXTS, None), SystemMessage.text),
        "AssistantMessage.text": ((*TEXTS, None), AssistantMessage.text),
        "ExtensionMessage.of": ((*TEXTS, None, ""), lambda bad: ExtensionMessage.of(bad, {})),
        "ExtensionMessage.of data": (({1: 2}, object(), b"x"), lambda bad: ExtensionMessage.of("k", bad)),
        "parse_event": ((*OBJECTS, HI), parse_event),
        "parse_control": ((*OBJECTS, HI), parse_control),
        "MediaRef.from_file": ((None, 42), MediaRef.from_file),
        "MediaRef.from_file limit_bytes": ((*POSITIONS, None), lambda bad: MediaRef.from_file(PAGE, limit_bytes=bad)),
        "media_from_file limit_bytes": ((*POSITIONS, None), lambda bad: media_from_file(PAGE, limit_bytes=bad)),
        "TurnId.from_text": ((None, 42, "x"), TurnId.from_text),
    }


def of_recorder(recorder: Recorder, turn: RecordedTurn) -> dict[str, tuple[Values, Call]]:
    return {
        "recorder.wait_for_work": (SECONDS, recorder.wait_for_work),
        "recorder.turn model": ((None, 42, {}), lambda bad: recorder.turn(model=bad)),
        "recorder.turn provider": ((*TEXTS, None), lambda bad: recorder.turn(model="m", provider=bad)),
        "recorder.turn tools": (([42], ["x"], [print], 42, add, "x"), lambda bad: recorder.turn(model="m", tools=bad)),
        "recorder.turn max_tokens": ((*POSITIONS, 0, None), lambda bad: recorder.turn(model="m", max_tokens=bad)),
        "recorder.end": ((None, 42, "finished"), recorder.end),
        "recorder.end text": ((*TEXTS, None), lambda bad: recorder.end("stop", bad)),
        "turn.piece": (MESSAGES, turn.piece),
        "turn.answer": (MESSAGES[1:], turn.answer),
        "turn.answer usage": (TEXTS, lambda bad: turn.answer("x", usage=bad)),
        "turn.fail": (MESSAGES, turn.fail),
        "turn.tool": ((*MESSAGES, "c1"), turn.tool),
        "turn.tool_result": ((*MESSAGES, "c1"), lambda bad: turn.tool_result(bad, "x")),
        "turn.approval": ((*MESSAGES, "c1"), turn.approval),
    }


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def loop() -> AgentLoop:
    return AgentLoop(OfflineModel())


loads = cast("Callable[..., object]", load_model)
loops = partial(cast("Callable[..., object]", AgentLoop), OfflineModel())


def works(bus: Bus, **arguments: object) -> object:
    return cast("Callable[..., object]", Worker)(bus, loop(), **arguments)


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


async def faults(cases: dict[str, tuple[Values, Call]]) -> AsyncIterator[str]:
    """Yield the calls that took a wrong value, or raised a raw error or one without advice."""
    for name, (values, call) in cases.items():
        for value in values:
            try:
                with anyio.fail_after(30):
                    await done(call(cast("Never", value)))
                yield f"{name}: took {value!r}"
            except BusError as error:
                if isinstance(error, InvalidArgument) and not error.advice:
                    yield f"{name}: {value!r}: {error}"
            except Exception as error:  # noqa: BLE001  # a raw error is what the test looks for
                yield f"{name}: {value!r}: {error!r}"


@pytest.mark.parametrize("of", [of_bus, of_session, of_functions])
async def test_a_wrong_argument_raises_a_typed_error(
    of: Callable[[Bus], dict[str, tuple[Values, Call]]],
) -> None:
    async with fresh_bus() as bus:
        await bus.session("s1").publish(HI)
        assert [fault async for fault in faults(of(bus))] == []


async def test_a_wrong_argument_of_a_recorded_turn_raises_a_typed_error_and_records_nothing() -> None:
    async with fresh_bus() as bus:
        session = bus.session("s1")
        await session.publish(HI)
        async with Recorder(session) as recorder, recorder.turn(model="m") as turn:
            before = (await session.head()).position
            found = of_recorder(recorder, turn)
            assert [fault async for fault in faults({k: v for k, v in found.items() if "approval" not in k})] == []
            assert (await session.head()).position == before
            await turn.answer(AssistantMessage(content=(ToolCallBlock(id="c1", name="t", arguments={}),)))
            before = (await session.head()).position
            wrong = (
                math.nan,
                {"a": math.nan},
                [object()],
                ToolReply(cast("Never", 5)),
                ToolReply("x", cast("Never", {1})),
            )
            rows: dict[str, tuple[Values, Call]] = {
                "turn.tool_result result": (wrong, lambda bad: turn.tool_result(turn.calls[0], bad))
            }
            assert [fault async for fault in faults(rows)] == []
            assert (await session.head()).position == before
            assert [fault async for fault in faults({k: v for k, v in found.items() if "turn.tool" in k})] == []
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
            await abort(bus.session("s1"), when=cast("Never", "later"))
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
            (lambda: branch(one, cast("Never", "1")), "to"),
            (lambda: label(one, cast("Never", "1"), "x"), "target"),
            (lambda: loops(name=cast("Never", 5)), "name"),
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
