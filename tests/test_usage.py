"""Wrong uses of what the packages export are refused with the argument's name and what to do instead."""

import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Never, cast

import anyio
import pytest

from lanebus import Bounds, Bus, BusError, Envelope, Limits, MediaRef, ToolResultMessage, Usage, UserMessage
from lanebus.agent import (
    AgentLoop,
    CompactionPolicy,
    Compactor,
    OfflineModel,
    Recorder,
    RecorderMisused,
    Reject,
    ToolSpec,
    Worker,
    ask,
    failure_of,
    run_worker,
    tool,
)
from lanebus.archive import DirectoryArchive, ObjectArchive, archive_session, archive_store_at, check_chain
from lanebus.bounds import WorkBounds
from lanebus.codecs import EventReader, coding_agent_codec, universal_client_codec
from lanebus.context import (
    Context,
    HeadroomTrigger,
    ReserveTrigger,
    WarmContext,
    build_context,
    compact,
    compact_loops,
    context_tokens,
    evolve,
    first_to_keep,
    loops_of,
    prune,
    revert,
    undo_compaction,
    usage_tokens,
)
from lanebus.errors import Closed, InvalidArgument, NotEntered, SetupError
from lanebus.groups import RetryPolicy
from lanebus.mcp import mcp_tools
from lanebus.media import (
    DirectoryMedia,
    KeyedMedia,
    ObjectMedia,
    as_agentflow,
    media_of,
    media_store_at,
    resolve_media,
)
from lanebus.messages import blocks_text, extract_json, read_message, result_text, split_reasoning
from lanebus.projections import (
    USAGE,
    InvalidProjection,
    Views,
    find_projection,
    follow_all,
    look,
    project_all,
    projection,
    read_links,
    rebuild_all,
    session_lines,
    summary,
    tree_usage,
    trim_session,
)
from lanebus.providers import (
    AnthropicAnswer,
    ToolChoice,
    from_anthropic,
    from_gemini,
    from_openai_chat,
    from_openai_responses,
    to_anthropic,
    to_gemini,
    to_openai_chat,
    to_openai_responses,
)
from lanebus.telemetry import otel_tracing
from lanebus.testing import ScriptedModel
from tests import test_arguments
from tests.support.agent.agents import fresh_bus
from tests.test_arguments import Call, Values, faults

__all__ = ()

OBJECTS: Values = (None, 42, "s1")
TEXTS: Values = (42, b"x", {})
COUNTS: Values = ("1", -1, 1.5, True)
SECONDS: Values = ("1", -1, float("nan"), True)
FLAGS: Values = (None, "yes", 5)
PLACES: Values = (5, None, "")
HI = UserMessage.text("hi")
MODEL = OfflineModel()
LOOP = {"loop_id": "s1.main.1"}


def called(
    function: Callable[..., object],
    *before: object,
    name: str = "",
    after: Sequence[object] = (),
    given: Mapping[str, object] | None = None,
) -> Call:
    """Return a function that passes a wrong value as the argument `name`, or between the other arguments."""

    def call(bad: Never) -> object:
        named = {**(given or {}), name: bad} if name else given or {}
        return function(*before, **named) if name else function(*before, bad, *after, **named)

    return call


def counts(function: Callable[..., object], *names: str, **given: object) -> dict[str, tuple[Values, Call]]:
    return {f"{function.__name__} {name}": (COUNTS, called(function, name=name, given=given)) for name in names}


def of_values() -> dict[str, tuple[Values, Call]]:
    return {
        **counts(Limits, "message_bytes", "session_bytes", "namespace_bytes", "reserve_bytes"),
        **counts(CompactionPolicy, "window", "reserve", "keep_recent", "max_tokens", "attempts"),
        **{
            f"CompactionPolicy {name}": (SECONDS, called(CompactionPolicy, name=name))
            for name in ("pause", "drain_seconds", "silence_seconds")
        },
        "CompactionPolicy model": ((5, "x", OfflineModel), called(CompactionPolicy, name="model")),
        "CompactionPolicy instructions": (TEXTS, called(CompactionPolicy, name="instructions")),
        "CompactionPolicy clock": (OBJECTS, called(CompactionPolicy, name="clock")),
        "CompactionPolicy estimator": (OBJECTS, called(CompactionPolicy, name="estimator")),
        "Compactor": (OBJECTS, called(Compactor)),
        "Compactor policy": ((5, "x"), called(Compactor, MODEL)),
        "Bounds": ((None, 5, WorkBounds()), called(Bounds, name="publish")),
        "ToolSpec name": ((*TEXTS, None, ""), called(ToolSpec, after=("d", {}))),
        "ToolSpec description": ((*TEXTS, None), called(ToolSpec, "n", after=({},))),
        "ToolSpec schema": ((5, None, "{}", []), called(ToolSpec, "n", "d")),
        "ToolChoice": ((5, None, "x"), called(ToolChoice)),
        "ToolChoice name": ((5, None, ""), called(ToolChoice, "named")),
        "ScriptedModel": ((5, None, b"x", HI), called(ScriptedModel)),
        **counts(HeadroomTrigger, "window", "system"),
        **{
            f"HeadroomTrigger {name}": ((-1, 2, "x", float("nan")), called(HeadroomTrigger, name=name))
            for name in ("full", "least_free")
        },
        **counts(ReserveTrigger, "window"),
        **counts(ReserveTrigger, "reserve", window=9),
        "ReserveTrigger is_enabled": (FLAGS, called(ReserveTrigger, name="is_enabled", given={"window": 9})),
        "RetryPolicy retried": ((5, "x", (5,), ValueError), called(RetryPolicy, name="retried")),
        "RetryPolicy is_retried": (OBJECTS, called(RetryPolicy, name="is_retried")),
        "Views": (OBJECTS, called(Views)),
        "EventReader": (COUNTS, called(EventReader, name="position")),
        "AnthropicAnswer model": (TEXTS, called(AnthropicAnswer)),
        "AnthropicAnswer rates": ((5, "x"), called(AnthropicAnswer, "m")),
        "AnthropicAnswer names": (OBJECTS, called(AnthropicAnswer, "m", None)),
        "coding_agent_codec": (TEXTS, called(coding_agent_codec, name="provider")),
        "universal_client_codec": ((5, "x"), called(universal_client_codec, name="files")),
        "otel_tracing": ((5, "x"), called(otel_tracing)),
        "DirectoryMedia": ((5, None, "x"), called(DirectoryMedia)),
        "DirectoryArchive": ((5, None, "x"), called(DirectoryArchive)),
        "ObjectMedia": (OBJECTS, called(ObjectMedia)),
        "ObjectArchive": (OBJECTS, called(ObjectArchive)),
        "KeyedMedia": (OBJECTS, called(KeyedMedia)),
        "media_store_at": (PLACES, called(media_store_at)),
        "archive_store_at": (PLACES, called(archive_store_at)),
        "UserMessage": (("hi", [5]), called(UserMessage, name="content")),
        "Usage": (("x", 1.5, True), called(Usage, name="input", given={"output": 0})),
        "MediaRef.of": ((5, None, Path("x"), ""), called(MediaRef.of)),
        "MediaRef.from_url": ((5, None, b"x"), called(MediaRef.from_url)),
        "MediaRef.from_bytes": ((5, None, "x", b""), called(MediaRef.from_bytes)),
        "with_images": ((5, None, [5]), called(UserMessage.with_images, "x")),
        "with_audio": ((5, None, [5]), called(UserMessage.with_audio, "x")),
        "ToolResultMessage.of": ((5, None), called(ToolResultMessage.of)),
    }


def of_functions(bus: Bus, context: Context) -> dict[str, tuple[Values, Call]]:
    one = bus.session("s1")
    alls = (follow_all, project_all, rebuild_all)
    readers = (from_anthropic, from_gemini, from_openai_chat, from_openai_responses)
    forms = (to_anthropic, to_gemini, to_openai_chat, to_openai_responses)

    def form(name: str) -> Call:
        return called(to_anthropic, context, name=name, given={"model": "m"})

    return {
        **{f"{each.__name__} bus": (OBJECTS, called(each, after=(USAGE, first))) for each in alls},
        **{f"{each.__name__} projection": (OBJECTS, called(each, bus, after=(first,))) for each in alls},
        **{f"{each.__name__} merge": (OBJECTS, called(each, bus, USAGE)) for each in alls},
        **{f"{each.__name__} bounds": ((5, "x"), called(each, bus, USAGE, first, name="bounds")) for each in alls},
        **{each.__name__: ((*OBJECTS, []), called(each)) for each in readers},
        **{each.__name__: (OBJECTS, called(each)) for each in forms},
        "to model": (TEXTS, form("model")),
        "to max_tokens": ((*COUNTS, 0), form("max_tokens")),
        "to tools": ((5, None, [5], "x", [print], [ToolSpec("a", "", {})] * 2), form("tools")),
        "to tool_choice": ((5, "auto"), form("tool_choice")),
        "to media": ((5, "x"), form("media")),
        "to stream": (FLAGS, form("stream")),
        "to an unknown option": ((5,), form("max_token")),
        "WarmContext": (OBJECTS, called(WarmContext)),
        "compact_loops": (OBJECTS, called(compact_loops, one)),
        "compact_loops block": (({"x": 5},), called(compact_loops, one)),
        "compact estimator": (OBJECTS, called(compact, one, "s", None, name="estimator")),
        "prune estimator": (OBJECTS, called(prune, one, [1], name="estimator")),
        "context_tokens": (OBJECTS, called(context_tokens)),
        "context_tokens estimator": (OBJECTS, called(context_tokens, context)),
        "evolve": ((None, 5, HI), called(evolve, context)),
        "first_to_keep": (OBJECTS, called(first_to_keep)),
        "first_to_keep tokens": (COUNTS, called(first_to_keep, context)),
        "first_to_keep up_to": (COUNTS, called(first_to_keep, context, name="up_to")),
        "loops_of": ((5, None, "x", [5]), called(loops_of)),
        "usage_tokens": (OBJECTS, called(usage_tokens)),
        "look known": ((5, "x"), called(look, one, USAGE, name="known")),
        "read_links": (OBJECTS, called(read_links)),
        "session_lines": (OBJECTS, called(session_lines)),
        "session_lines views": ((5, "x"), called(session_lines, bus)),
        "session_lines heads": ((5, "x", [5]), called(session_lines, bus, name="heads")),
        "summary": (OBJECTS, called(summary)),
        "tree_usage": (OBJECTS, called(tree_usage)),
        "trim_session": (OBJECTS, called(trim_session, after=(1,))),
        "trim_session before": (COUNTS, called(trim_session, one)),
        "trim_session force": (FLAGS, called(trim_session, one, 1, name="force")),
        "session.trim force": (FLAGS, called(one.trim, 1, name="force")),
        "unfetched_work": ((*COUNTS, 0), called(bus.unfetched_work)),
        "failure_of": ((*OBJECTS, HI), called(failure_of)),
        "extract_json": ((*OBJECTS, HI), called(extract_json)),
        "read_message": (OBJECTS, called(read_message)),
        "split_reasoning": ((None, 5, b"x"), called(split_reasoning)),
        "blocks_text": ((None, 5, "x", [5]), called(blocks_text)),
        "as_agentflow": (OBJECTS, called(as_agentflow)),
        "media_of": (OBJECTS, called(listed)),
        "resolve_media": ((5, None, "x", [5]), called(resolve_media, after=(None,))),
        "resolve_media store": ((5, "x"), called(resolve_media, [HI])),
        "resolve_media limit_bytes": (COUNTS, called(resolve_media, [HI], None, name="limit_bytes")),
        "resolve_media sign_seconds": (SECONDS, called(resolve_media, [HI], None, name="sign_seconds")),
        "archive_session": (OBJECTS, called(archive_session, after=("s1",))),
        "check_chain": (OBJECTS, called(check_chain, after=("s1",))),
        "revert": (OBJECTS, called(revert, after=(1, "s", "failure"), given=LOOP)),
        "revert summary": (TEXTS, called(revert, one, 1, after=("failure",), given=LOOP)),
        "revert category": ((5, None, "x"), called(revert, one, 1, "s", given=LOOP)),
        "undo_compaction": (OBJECTS, called(undo_compaction)),
        "find_projection": ((*OBJECTS, "", "json:nothing"), called(find_projection)),
        "run_worker": (OBJECTS, called(run_worker, after=("json:loads",))),
        "run_worker target": ((*OBJECTS, "json:nothing"), called(run_worker, bus)),
        "result_text": ((5, None, "x", [5]), called(result_text, after=(None,))),
        "mcp_tools only": ((5, "x", [5]), called(mcp_tools, "http://localhost:1/mcp", name="only")),
        "mcp_tools call_seconds": (SECONDS, called(mcp_tools, "http://localhost:1/mcp", name="call_seconds")),
        "mcp_tools connect_seconds": (SECONDS, called(mcp_tools, "http://localhost:1/mcp", name="connect_seconds")),
        "mcp_tools trust_hints": (FLAGS, called(mcp_tools, "http://localhost:1/mcp", name="trust_hints")),
        "mcp_tools on_unknown": (OBJECTS, called(mcp_tools, "http://localhost:1/mcp", name="on_unknown")),
        "mcp_tools bounds": (OBJECTS, called(mcp_tools, "http://localhost:1/mcp", name="bounds")),
    }


def listed(message: Never) -> object:
    return list(media_of(message))


def first(state: object, _: object) -> object:
    return state


def of_bounds() -> dict[str, tuple[Values, Call]]:
    found = [*names("lanebus.bounds"), *names("lanebus.agent"), *names("lanebus.projections"), *names("lanebus.mcp")]
    kinds = [kind for kind in found if inspect.isclass(kind) and kind.__name__.endswith("Bounds")]
    assert len(kinds) > 10
    return {
        f"{kind.__name__} {field}": ((None, "x", -1, [], float("nan")), called(kind, name=field))
        for kind in kinds
        for field in inspect.signature(kind).parameters
    }


def names(module: str) -> list[Callable[..., object]]:
    """Return what a module exports."""
    found = import_module(module)
    return [getattr(found, name) for name in found.__all__]


async def test_a_wrong_bound_raises_a_typed_error() -> None:
    assert [fault async for fault in faults(of_bounds())] == []


MODULES = ("", ".messages", ".agent", ".context", ".projections", ".providers", ".codecs", ".media", ".archive", ".mcp")
ELSEWHERE = {"media_from_file": "its rows are those of MediaRef.from_file"}


@pytest.mark.parametrize("module", [f"lanebus{each}" for each in MODULES])
def test_every_exported_function_has_a_row_with_wrong_arguments(module: str) -> None:
    rows = Path(__file__).read_text(encoding="utf-8") + Path(test_arguments.__file__ or "").read_text(encoding="utf-8")
    known = {*re.findall(r"\w+", rows)} | {*ELSEWHERE}
    functions = [each for each in names(module) if inspect.isfunction(each) and inspect.signature(each).parameters]
    assert [each.__name__ for each in functions if each.__name__ not in known] == []


async def test_a_wrong_field_of_a_value_raises_a_typed_error() -> None:
    assert [fault async for fault in faults(of_values())] == []


async def test_a_wrong_argument_of_a_function_raises_a_typed_error() -> None:
    async with fresh_bus() as bus:
        session = bus.session("s1")
        await session.publish(HI)
        found = of_functions(bus, await build_context(session))
        assert [fault async for fault in faults(found)] == []


def test_a_response_object_of_an_sdk_is_answered_with_the_call_that_makes_it_json() -> None:
    with pytest.raises(InvalidArgument, match=r"`response` is of type object: .*model_dump\(mode=\"json\"\)"):
        from_anthropic(cast("Never", object()))


def test_a_misspelt_option_of_a_request_is_answered_with_the_right_one() -> None:
    with pytest.raises(InvalidArgument, match="did you mean `max_tokens`"):
        cast("Callable[..., object]", to_anthropic)(Context("s1"), model="m", max_token=5)


@pytest.mark.parametrize("verdict", ["rejected", False, Reject(cast("Never", 5))])
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
                await ask(session, "hi", seconds=60)
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
            with pytest.raises(RecorderMisused, match="open already: make another Recorder"):
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
