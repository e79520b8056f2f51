"""One suite for the harness' store in memory and for ours: both do the same. It is the referee of the store's seam."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai_harness.step_persistence import (
    ContinuableSnapshot,
    InMemoryStepStore,
    RunRecord,
    StepEvent,
    StepPersistence,
    StepStore,
    ToolEffectRecord,
    continue_run,
)

from lanebus import Bus, Delta
from lanebus.bus.wire import DecodeFailure
from lanebus.context import build_context
from lanebus.handlers.integrations.bounds import BackendBounds
from lanebus.projections import TURNS, USAGE, project
from lanebus.pydantic_ai import LanebusStepStore
from tests.support.held import held
from tests.support.servers.kinds import Shared
from tests.support.servers.real import RealServer

Store: TypeAlias = InMemoryStepStore | LanebusStepStore

STARTED = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(
    params=["memory", "valkey", "tiny", pytest.param("cluster", marks=pytest.mark.cluster("runs are on several nodes"))]
)
async def store(request: pytest.FixtureRequest, shared: Shared) -> AsyncGenerator[Store]:
    """Their store, and ours. With tiny bounds, each call reads the log."""
    if request.param == "memory":
        yield InMemoryStepStore()
        return
    bounds = BackendBounds(cached_sessions=1, inline_bytes=1) if request.param == "tiny" else BackendBounds()
    async with held(shared[request.param].bus()) as bus:
        yield LanebusStepStore(bus, bounds=bounds)


def ask(text: str) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(text)])


def tell(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)])


def snapshot(*messages: ModelMessage, key: str | None = None, **fields: object) -> ContinuableSnapshot:
    made = ContinuableSnapshot(run_id="r", step_index=1, messages=[*messages], timestamp=STARTED, idempotency_key=key)
    return replace(made, **fields)  # type: ignore[arg-type]  # any field


def event(kind: str = "run_started", **fields: object) -> StepEvent:
    return replace(StepEvent(run_id="r", kind="run_started", step_index=0), kind=kind, **fields)  # type: ignore[arg-type]


def effect(call: str, **fields: object) -> ToolEffectRecord:
    return replace(ToolEffectRecord(tool_call_id=call, tool_name="t", run_id="r", status="started"), **fields)  # type: ignore[arg-type]


async def test_the_store_has_the_methods_of_the_protocol_and_nothing_of_an_unknown_run(store: Store) -> None:
    assert isinstance(store, StepStore)
    assert await store.get_run(run_id="r") is None
    assert await store.list_runs() == []
    assert await store.list_events(run_id="r") == []
    assert await store.latest_snapshot(run_id="r", include_interrupted=True) is None
    assert await store.list_snapshots(run_id="r") == []
    assert await store.get_tool_effect(run_id="r", tool_call_id="c") is None
    assert await store.list_unresolved_tool_effects(run_id="r") == []


async def test_runs_are_listed_by_parent_and_conversation_in_the_order_of_their_starts(store: Store) -> None:
    runs = [
        RunRecord(
            run_id=f"run {number}",
            conversation_id="xy"[number % 2],
            parent_run_id="p" if number else None,
            agent_name="a",
            metadata={"n": str(number)},
            started_at=STARTED - timedelta(hours=number),
            registration_id=f"id {number}",
        )
        for number in range(4)
    ]
    for run in runs:
        await store.register_run(run)
    assert [await store.get_run(run_id=run.run_id) for run in runs] == runs
    assert await store.list_runs() == runs[::-1]
    assert await store.list_runs(parent_run_id="p") == runs[:0:-1]
    assert await store.list_runs(conversation_id="y") == [runs[3], runs[1]]
    assert await store.list_runs(parent_run_id="p", conversation_id="x") == [runs[2]]
    assert await store.list_runs(parent_run_id="none") == []


async def test_events_are_kept_in_order_and_once_for_each_key(store: Store) -> None:
    events = [
        event(idempotency_key="1", metadata={"a": "b"}, conversation_id="c"),
        event("tool_call_failed", tool_call_id="call", tool_name="t", error="no", agent_name="a", parent_run_id="p"),
        event("tool_call_failed", step_index=3),
    ]
    for each in (*events, events[0]):
        await store.append_event(each)
    assert await store.list_events(run_id="r") == events
    assert await store.list_events(run_id="other") == []


async def test_the_newest_complete_snapshot_is_found(store: Store) -> None:
    first: list[ModelMessage] = [ask("q0"), tell("a0")]
    second = [*first, ask("q1")]
    complete = snapshot(*first, conversation_id="c", parent_run_id="p", agent_name="a")
    interrupted = snapshot(*second, state="interrupted", step_index=2)
    await store.save_snapshot(complete)
    await store.save_snapshot(interrupted)
    assert await store.latest_snapshot(run_id="r") == complete
    assert await store.latest_snapshot(run_id="r", include_interrupted=True) == interrupted
    assert await store.list_snapshots(run_id="r") == [complete]
    assert await store.list_snapshots(run_id="r", include_interrupted=True) == [complete, interrupted]


async def test_snapshots_of_a_rewritten_history_are_kept(store: Store) -> None:
    old: list[ModelMessage] = [ask("q0"), tell("a0"), ask("q1"), tell("a1")]
    histories: list[list[ModelMessage]] = [
        old[:2],
        old,
        [ask("summary"), *old[2:]],
        [],
        [ask("summary")],
        [*old, ask("x" * 300_000), tell("last")],
    ]
    saved = [snapshot(*history, step_index=step) for step, history in enumerate(histories)]
    for each in saved:
        await store.save_snapshot(each)
    assert await store.list_snapshots(run_id="r") == saved


async def test_a_repeated_snapshot_is_saved_once(store: Store) -> None:
    messages: list[ModelMessage] = [ask("q0"), tell("a0")]
    for key in ("0:1:complete", "1:2:complete", "1:2:complete", "0:9:late", "1:2:interrupted", "free", "free"):
        await store.save_snapshot(snapshot(*messages, key=key))
    found = await store.list_snapshots(run_id="r")
    assert [each.idempotency_key for each in found] == ["0:1:complete", "1:2:complete", "1:2:interrupted", "free"]


async def test_a_tool_call_is_unresolved_until_it_ends(store: Store) -> None:
    one, other = effect("call 1"), effect("call 2")
    await store.record_tool_effect(one)
    await store.record_tool_effect(other)
    assert await store.list_unresolved_tool_effects(run_id="r") == [one, other]
    ended = replace(one, status="completed", ended_at=STARTED, idempotency_key="k", effect_summary="s")
    await store.record_tool_effect(ended)
    assert await store.get_tool_effect(run_id="r", tool_call_id="call 1") == ended
    assert await store.list_unresolved_tool_effects(run_id="r") == [other]
    await store.record_tool_effect(replace(other, status="failed"))
    assert await store.list_unresolved_tool_effects(run_id="r") == []


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


async def test_a_run_of_an_agent_leaves_its_steps(store: Store) -> None:
    agent = Agent(TestModel(), tools=[double], capabilities=[StepPersistence(store=store, run_id="r")])
    result = await agent.run("go")
    assert [each.kind for each in await store.list_events(run_id="r")] == [
        *("run_started", "model_request_started", "model_request_completed"),
        *("tool_call_started", "tool_call_completed"),
        *("model_request_started", "model_request_completed", "run_completed"),
    ]
    assert await continue_run(store, run_id="r") == result.all_messages()
    assert await store.list_unresolved_tool_effects(run_id="r") == []
    with pytest.raises(ValueError, match="already in the store"):
        await agent.run("again")


async def test_a_run_that_failed_in_a_tool_goes_on_from_its_snapshot(store: Store) -> None:
    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart("double", {"number": 2}, "call-1")])
        if fails:
            raise ModelHTTPError(503, "m")
        return tell("4")

    fails = True
    agent = Agent(FunctionModel(answer), tools=[double])
    with pytest.raises(ModelHTTPError):
        await agent.run("go", capabilities=[StepPersistence(store=store, run_id="first")])
    fails = False
    messages = await continue_run(store, run_id="first")
    again = await agent.run(message_history=messages, capabilities=[StepPersistence(store=store, run_id="second")])
    assert again.output == "4"
    assert len(await continue_run(store, run_id="second")) == 4


async def test_a_run_is_registered_once(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as one, shared_valkey.bus() as other:
        run = RunRecord(run_id="r", registration_id="a")
        await LanebusStepStore(one).register_run(run)
        await LanebusStepStore(other).register_run(run)
        for taken in (replace(run, registration_id="b"), replace(run, registration_id=None)):
            with pytest.raises(ValueError, match="already in the store"):
                await LanebusStepStore(other).register_run(taken)


async def test_a_run_shows_its_messages_turns_and_usage(bus: Bus) -> None:
    store = LanebusStepStore(bus)
    agent = Agent(TestModel(), instructions="Be brief.", tools=[double])
    result = await agent.run("go", capabilities=[StepPersistence(store=store, run_id="r")])
    session = bus.session("r")
    assert len((await build_context(session)).messages) == 4
    assert [e.message async for e in session.read(kinds={"leafMove"})] == []
    state = (await project(session, TURNS)).state
    assert [(str(turn.turn_id), turn.status) for turn in state.turns] == [
        ("r.main.1#0", "completed"),
        ("r.main.1#1", "completed"),
    ]
    total = (await project(session, USAGE)).state.total.usage
    assert (total.input, total.output) == (result.usage.input_tokens, result.usage.output_tokens)


async def test_each_message_is_stored_once_over_all_snapshots(bus: Bus) -> None:
    store = LanebusStepStore(bus)
    messages: list[ModelMessage] = []
    for number in range(20):
        messages += [ask(f"q{number}"), tell("x" * 1_000)]
        await store.save_snapshot(snapshot(*messages, step_index=number))
    assert (await bus.session("r").head()).size_bytes < 20 * 5_000


async def test_imported_steps_are_not_continued_and_settle_no_tool_call(shared_valkey: RealServer) -> None:
    def effect(status: str) -> ToolEffectRecord:
        return ToolEffectRecord(run_id="r", tool_call_id="c", tool_name="pay", status=status, started_at=STARTED)  # type: ignore[arg-type]  # a status

    async with shared_valkey.bus() as bus, shared_valkey.bus(namespace="mine") as mine:
        theirs, own = LanebusStepStore(bus), LanebusStepStore(mine)
        await theirs.register_run(RunRecord(run_id="r", started_at=STARTED))
        await theirs.save_snapshot(snapshot(ask("pay 999"), key="9:1:complete"))
        await theirs.record_tool_effect(effect("completed"))
        await own.record_tool_effect(effect("started"))
        async for envelope in bus.session("r").read():
            if not isinstance(envelope.message, DecodeFailure | Delta):
                await mine.session("r").publish(envelope.message, imported=True)
        for reader in (own, LanebusStepStore(mine)):
            assert await reader.get_run(run_id="r") is None
            assert await reader.latest_snapshot(run_id="r", include_interrupted=True) is None
            assert await reader.list_events(run_id="r") == []
            assert await reader.list_unresolved_tool_effects(run_id="r") == [effect("started")]
        await own.save_snapshot(snapshot(ask("pay 1"), key="1:1:complete"))
        found = await LanebusStepStore(mine).list_snapshots(run_id="r")
        said = [str(message.parts) for each in found for message in each.messages]
        assert ["pay 1" in each for each in said] == [True]
