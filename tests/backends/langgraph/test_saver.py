"""What `LanebusSaver` stores and returns: the conformance suite, blocking callers, and several processes."""

# The conformance suite is typed, but has no marker that says so.
# pyright: reportMissingTypeStubs=false

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from random import Random
from typing import Any

import anyio
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.report import ProgressCallbacks
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import JsonValue

from lanebus import Bus, ExtensionMessage
from lanebus.errors import Closed, InvalidArgument, SessionExists
from lanebus.langgraph import BackendBounds, LanebusSaver, LanebusStore, WouldBlock, bus_in_thread
from tests.support.backends.artefacts import artefact
from tests.support.backends.langgraph_graphs import adding, config_of, conversation, counting, named, said
from tests.support.paths import ROOT
from tests.support.servers.real import AnyServer, RealServer
from tests.support.suite.scale import randomness

METADATA: CheckpointMetadata = {"source": "loop", "step": 0, "parents": {}}


def checkpoint(number: int, **values: object) -> Checkpoint:
    """Return a checkpoint in which each channel has the version `number`."""
    made = empty_checkpoint()
    versions: dict[str, str | int | float] = dict.fromkeys(values, number)
    return {**made, "id": f"{number:08}", "channel_values": values, "channel_versions": versions}


async def put(saver: LanebusSaver, number: int, **values: object) -> None:
    """Store a checkpoint that follows the previous one."""
    made = checkpoint(number, **values)
    parent = {"checkpoint_id": f"{number - 1:08}"} if number > 1 else {}
    await saver.aput(config_of("t", checkpoint_ns="", **parent), made, METADATA, made["channel_versions"])


async def values_of(saver: LanebusSaver, number: int) -> dict[str, Any]:
    """Return the values of a checkpoint."""
    found = await saver.aget_tuple(config_of("t", checkpoint_id=f"{number:08}"))
    assert found is not None
    return found.checkpoint["channel_values"]


async def all_of(saver: LanebusSaver, thread: str | None = "t") -> list[CheckpointTuple]:
    """Return the checkpoints of a thread, or of all threads."""
    return [each async for each in saver.alist(config_of(thread) if thread else None)]


async def test_pending_writes_are_in_the_order_of_their_tasks_paths_and_only_an_error_is_replaced(bus: Bus) -> None:
    saver, at = LanebusSaver(bus), config_of("t", checkpoint_id="00000001")
    await put(saver, 1)
    await saver.aput_writes(at, [("a", 3), ("b", 4)], "task-1", "path-2")
    await saver.aput_writes(at, [("a", 1), ("__error__", "first")], "task-2", "path-1")
    await saver.aput_writes(at, [("a", 5)], "task-0", "path-2")
    await saver.aput_writes(at, [("a", 2), ("__error__", "second"), ("b", 3)], "task-2", "path-1")
    before = (await bus.session("t").head()).position
    await saver.aput_writes(at, [("a", 4)], "task-2", "path-1")
    assert (await bus.session("t").head()).position == before
    for reader in (saver, LanebusSaver(bus)):
        found = await reader.aget_tuple(at)
        assert found is not None
        assert found.pending_writes == [
            *(("task-2", "__error__", "second"), ("task-2", "a", 1), ("task-2", "b", 3)),
            *(("task-0", "a", 5), ("task-1", "a", 3), ("task-1", "b", 4)),
        ]


@pytest.mark.parametrize("bounds", [BackendBounds(), BackendBounds(inline_bytes=1), BackendBounds(batch_bytes=1)])
async def test_lists_that_grow_shrink_and_change_are_read_as_they_were(bus: Bus, bounds: BackendBounds) -> None:
    random, expected = randomness("lists"), dict[int, list[object]]()
    saver, value = LanebusSaver(bus, bounds=bounds), list[object]()
    for number in range(1, 60):
        match random.randrange(5):
            case 0:
                value = value[random.randrange(3) :]
            case 1:
                value = value[: max(len(value) - random.randrange(4), 0)]
            case 2 if value:
                value = [*value]
                value[random.randrange(len(value))] = f"changed {number}"
            case _:
                value = [*value, *range(number, number + random.randrange(4))]
        expected[number] = value
        await put(saver, number, items=value)
    for reader in (saver, LanebusSaver(bus)):  # from memory, and folded anew
        for number, wanted in expected.items():
            assert (await values_of(reader, number))["items"] == wanted


async def test_a_long_list_that_grows_is_stored_as_its_new_elements(bus: Bus) -> None:
    saver = LanebusSaver(bus)
    texts = ["x" * 1_000] * 50
    await put(saver, 1, items=texts)
    before = (await bus.session("t").head()).size_bytes
    for number in range(2, 12):
        texts = [*texts, f"y{number}" * 500]
        await put(saver, number, items=texts)
    grown = (await bus.session("t").head()).size_bytes - before
    assert grown < 10 * 2 * 50_000 / 10  # ten lists of fifty thousand bytes are not there


async def test_a_large_value_is_stored_whole_and_what_a_caller_changes_in_one_changes_no_later_read(bus: Bus) -> None:
    saver = LanebusSaver(bus)
    calls = [{"name": "t", "args": {"x": "y" * 2_000_000}, "id": "1"}]
    large = AIMessage("long " * 500_000, id="1", tool_calls=calls)
    await put(saver, 1, items=[{"a": 1}], fields={"b": [1]}, messages=[large])
    values = await values_of(saver, 1)
    values["items"][0]["a"] = 2
    values["fields"]["b"].append(2)
    for reader in (saver, LanebusSaver(bus)):
        assert await values_of(reader, 1) == {"items": [{"a": 1}], "fields": {"b": [1]}, "messages": [large]}


async def test_a_deleted_thread_holds_nothing_and_can_begin_anew(bus: Bus) -> None:
    saver = LanebusSaver(bus)
    await saver.adelete_thread("t")
    assert (await bus.session("t").head()).position == 0  # it held nothing
    await put(saver, 1, items=[1])
    await saver.adelete_thread("t")
    assert await all_of(LanebusSaver(bus)) == []
    await put(saver, 2, items=[1, 2])
    assert [each.checkpoint["channel_values"] for each in await all_of(LanebusSaver(bus))] == [{"items": [1, 2]}]
    with pytest.raises(InvalidArgument, match="thread_id"):
        await saver.aget_tuple({"configurable": {}})


async def test_after_the_newest_checkpoint_was_deleted_the_one_before_it_is_the_newest(bus: Bus) -> None:
    saver = LanebusSaver(bus)
    await put(saver, 1, items=[1])
    made = checkpoint(2, items=[1, 2])
    metadata: CheckpointMetadata = {**METADATA, "run_id": "r"}
    await saver.aput(config_of("t", checkpoint_ns=""), made, metadata, made["channel_versions"])
    await saver.adelete_for_runs(["r"])
    for each in (saver, LanebusSaver(bus)):
        found = await each.aget_tuple(config_of("t"))
        assert found is not None
        assert found.checkpoint["channel_values"] == {"items": [1]}


@pytest.mark.cluster("a thread and its copy are on several nodes")
async def test_a_copy_goes_its_own_way_and_outlives_its_source(server: AnyServer) -> None:
    target = "a copy: with characters that no session id has"
    async with server.bus() as bus:
        saver = LanebusSaver(bus)
        graph = conversation(saver)
        await graph.ainvoke(said("one"), config_of("t"))
        await saver.acopy_thread("t", target)
        await graph.ainvoke(said("two"), config_of("t"))
        await saver.adelete_thread("t")
        await graph.ainvoke(said("three"), config_of(target))
        state = await conversation(LanebusSaver(bus)).aget_state(config_of(target))
        assert [each.text for each in state.values["messages"]] == ["one", "You said: one", "three", "You said: three"]
        assert {named(each.config) for each in await all_of(saver, None)} == {target}
        with pytest.raises(SessionExists):
            await saver.acopy_thread(target, "t")


async def test_a_list_of_all_threads_names_each_by_its_own_id(bus: Bus) -> None:
    threads = {"plain", "with a space", "ünï", "x" * 65}
    saver = LanebusSaver(bus)
    for thread in threads:
        await counting(saver, end=1).ainvoke({"steps": []}, config_of(thread))
    found = await all_of(LanebusSaver(bus), None)
    assert {named(each.config) for each in found} == threads
    assert [each.checkpoint["id"] for each in found] == sorted((each.checkpoint["id"] for each in found), reverse=True)


async def test_a_graph_with_this_saver_has_the_history_that_it_has_in_memory(bus: Bus) -> None:
    async def history(saver: LanebusSaver | InMemorySaver) -> list[tuple[object, object, object]]:
        graph = conversation(saver)
        for text in ("hi", "weather?", "bye"):
            await graph.ainvoke(said(text), config_of("t"))
        states = [each async for each in graph.aget_state_history(config_of("t"))]
        return [
            (
                [message.text for message in each.values.get("messages", [])],
                each.next,
                (each.metadata or {}).get("step"),
            )
            for each in states
        ]

    assert await history(LanebusSaver(bus)) == await history(InMemorySaver())


async def test_branches_from_one_checkpoint_keep_their_own_values(bus: Bus) -> None:
    graph = conversation(LanebusSaver(bus))
    await graph.ainvoke(said("start"), config_of("t"))
    old = (await graph.aget_state(config_of("t"))).config
    ends: list[RunnableConfig] = []
    for text in ("left", "right"):
        await graph.ainvoke(said(text), old)
        ends.append((await graph.aget_state(config_of("t"))).config)
    for text, end in zip(("left", "right"), ends, strict=True):
        state = await graph.aget_state(end)
        assert [each.text for each in state.values["messages"]][2:] == [text, f"You said: {text}"]


async def test_a_prune_keeps_what_delta_channels_are_put_together_from(bus: Bus) -> None:
    saver = LanebusSaver(bus)
    graph = adding(saver)
    for number in range(1, 25):
        await graph.ainvoke({"items": [-1], "total": 0}, config_of("t"))
        before = (await graph.aget_state(config_of("t"))).values
        assert (len(before["items"]), before["total"]) == (2 * number, number)
        await saver.aprune(["t"])
        assert (await graph.aget_state(config_of("t"))).values == before
    assert len(await all_of(saver)) < 24  # of 72; the last value is at most seven changes old
    with pytest.raises(InvalidArgument, match="strategy"):
        await saver.aprune(["t"], strategy="some")


async def test_with_an_encrypted_serializer_the_session_has_no_text(bus: Bus) -> None:
    class Reversed:
        """A cipher for tests."""

        def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
            return "reversed", bytes(255 - each for each in plaintext)

        def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
            assert ciphername == "reversed"
            return bytes(255 - each for each in ciphertext)

    graph = conversation(LanebusSaver(bus, serde=EncryptedSerializer(Reversed(), JsonPlusSerializer())))
    await graph.ainvoke(said("secret"), config_of("t"))
    assert (await graph.aget_state(config_of("t"))).values["messages"][1].text == "You said: secret"
    entries = [envelope async for envelope in bus.session("t").read()]
    assert {str(envelope.lane) for envelope in entries} == {"extension"}
    assert not any(b"secret" in envelope.message.to_json_bytes() for envelope in entries)  # type: ignore[union-attr]


async def test_unreadable_entries_of_others_change_nothing(bus: Bus) -> None:
    saver = LanebusSaver(bus)
    await put(saver, 1, items=[1])
    kinds = ("value", "checkpoint", "writes", "deleted", "thread", "shown", "unknown")
    wrong: tuple[JsonValue, ...] = (None, 1, {"namespace": 1})
    for kind in kinds:
        for data in wrong:
            await bus.session("t").publish(ExtensionMessage.of(f"store.langgraph.{kind}", data))
    await put(saver, 2, items=[1, 2])
    for reader in (saver, LanebusSaver(bus)):
        assert [each.checkpoint["channel_values"]["items"] for each in await all_of(reader)] == [[1, 2], [1]]


async def test_many_messages_at_once_are_shown_in_several_appends_before_their_checkpoint(bus: Bus) -> None:
    saver = LanebusSaver(bus, bounds=BackendBounds(batch_count=3))
    messages = [HumanMessage(f"m{number}", id=str(number)) for number in range(10)]
    await put(saver, 1, messages=messages)
    kinds = [
        envelope.message.kind if isinstance(envelope.message, ExtensionMessage) else "m"
        async for envelope in bus.session("t").read()
    ]
    shown = "store.langgraph.shown"
    assert kinds == [
        *(["m"] * 3 + [shown]) * 3,
        *("m", shown, "store.langgraph.value", "store.langgraph.checkpoint"),
    ]
    assert (await values_of(saver, 1))["messages"] == messages


async def test_a_cancelled_put_stores_a_checkpoint_whole_or_not_at_all(bus: Bus) -> None:
    saver, random = LanebusSaver(bus), Random(1)  # noqa: S311
    for number in range(1, 40):
        task = asyncio.create_task(put(saver, number, items=[*range(number)], other="x" * 100))
        for _ in range(random.randrange(12)):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    found = await all_of(LanebusSaver(bus))
    assert [each.checkpoint["channel_values"]["items"] for each in found] == [
        [*range(int(each.checkpoint["id"]))] for each in found
    ]


@dataclass
class Ticket:
    """An object that a graph stores."""

    number: int


async def test_only_known_types_become_objects(bus: Bus) -> None:
    await put(LanebusSaver(bus), 1, ticket=Ticket(7), person=HumanMessage("hi", id="1"))
    values = await values_of(LanebusSaver(bus), 1)
    assert values == {"ticket": {"number": 7}, "person": HumanMessage("hi", id="1")}
    allowing = JsonPlusSerializer(allowed_msgpack_modules=[Ticket])
    assert (await values_of(LanebusSaver(bus, serde=allowing), 1))["ticket"] == Ticket(7)


T = config_of("t")


def test_a_program_without_an_event_loop_runs_graphs(shared_valkey: RealServer) -> None:
    with bus_in_thread(shared_valkey.url) as bus:
        saver, store = LanebusSaver(bus), LanebusStore(bus)
        graph = conversation(saver, store)
        graph.invoke(said("hi"), T)
        assert [each.text for each in graph.get_state(T).values["messages"]] == ["hi", "You said: hi"]
        assert len(list(graph.get_state_history(T))) == len(list(saver.list(T))) == 3
        saver.copy_thread("t", "copy")
        saver.delete_thread("t")
        saver.prune(["copy"])
        assert saver.get_tuple(T) is None
        found = list(saver.list(None, limit=2))
        assert [named(each.config) for each in found] == ["copy"]
        saver.delete_for_runs(["none"])
        store.put(("a",), "k", {"x": 1})
        item = store.get(("a",), "k")
        assert item is not None
        assert item.value == {"x": 1}
    with pytest.raises(Closed):
        saver.get_tuple(T)


async def test_a_blocking_method_is_refused_on_the_loops_own_thread_and_runs_in_a_worker_thread(bus: Bus) -> None:
    saver, store = LanebusSaver(bus), LanebusStore(bus)
    with pytest.raises(WouldBlock, match="await `aget_tuple` instead"):
        saver.get_tuple(T)
    with pytest.raises(WouldBlock, match="await `alist` instead"):
        list(saver.list(T))
    with pytest.raises(WouldBlock, match="await `abatch` instead"):
        store.get(("a",), "k")
    with pytest.raises(WouldBlock):
        counting(saver).invoke({"steps": []}, T)
    assert (await bus.session("t").head()).position == 0
    result = await anyio.to_thread.run_sync(lambda: counting(saver, end=5).invoke({"steps": []}, T))
    assert result == {"steps": [0, 1, 2, 3, 4]}


async def test_methods_that_await_work_on_every_loop_and_a_cancelled_call_is_cancelled_on_the_buss(
    shared_valkey: RealServer,
) -> None:
    with bus_in_thread(shared_valkey.url) as bus:
        saver = LanebusSaver(bus)
        task = asyncio.create_task(saver.aget_tuple(T))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await saver.aget_tuple(T) is None
        assert await counting(saver, end=3).ainvoke({"steps": []}, T) == {"steps": [0, 1, 2]}
        assert len([each async for each in saver.alist(T)]) == 5


TESTS = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "delete_for_runs": 7,
    "copy_thread": 8,
    "prune": 8,
}


TINY = BackendBounds(cached_sessions=1, inline_bytes=1, batch_bytes=1, batch_count=1, shown_bytes=1)


@pytest.mark.cluster("a thread and its copy are on several nodes")
@pytest.mark.parametrize("bounds", [BackendBounds(), TINY], ids=["normal", "tiny"])
async def test_the_conformance_suite_passes_whole(
    server: AnyServer, bounds: BackendBounds, request: pytest.FixtureRequest
) -> None:
    lines: list[str] = []

    def note(capability: str, name: str, passed: bool, error: str | None) -> None:
        lines.append(f"{'passed' if passed else 'FAILED'} {capability}.{name} {error or ''}".rstrip())

    async with server.bus() as bus:

        @checkpointer_test(name="LanebusSaver")
        async def saver() -> AsyncGenerator[LanebusSaver, None]:
            yield LanebusSaver(bus, bounds=bounds)

        report = await validate(saver, progress=ProgressCallbacks(on_test_result=note))
    results = report.results
    failures = [failure for each in results.values() for failure in each.failures]
    artefact(f"langgraph-{request.node.callspec.id}.txt").write_text("\n".join([*lines, ""]))
    assert failures == []
    assert {name: each.tests_passed for name, each in results.items()} == TESTS
    assert len(lines) == sum(TESTS.values()) == 81
    assert sum(each.tests_skipped for each in results.values()) == 0


def run_until(url: str, kill_at: int) -> None:
    """Run the graph in another process, and send it SIGKILL when a step begins."""
    command = [sys.executable, "-m", "tests.support.backends.langgraph_graphs", url, "t"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) == kill_at:
                process.kill()


@pytest.mark.parametrize("kill_at", [0, 7, 19])
async def test_another_process_continues_a_run_that_was_killed(shared_valkey: RealServer, kill_at: int) -> None:
    await anyio.to_thread.run_sync(run_until, shared_valkey.url, kill_at)
    begun: list[int] = []
    async with shared_valkey.bus() as bus:
        graph = counting(LanebusSaver(bus), tell=begun.append)
        stored: list[int] = (await graph.aget_state(config_of("t"))).values["steps"]
        result = await graph.ainvoke(None, config_of("t"), durability="sync")
        assert stored == [*range(len(stored))]
        assert len(stored) >= kill_at  # each step that another one followed was stored
        assert result == {"steps": [*range(20)]}
        first = begun[0] if begun else 20  # it may have ended before it was killed
        assert begun == [*range(first, 20)]  # no step that was stored runs again
        assert first in {len(stored), len(stored) + 1}  # the writes of one more step may be stored


@pytest.mark.cluster("the threads are on several nodes")
async def test_of_two_processes_that_append_to_one_thread_neither_loses_anything(server: AnyServer) -> None:
    async def append(saver: LanebusSaver, name: str) -> None:
        for number in range(30):
            values: dict[str, Any] = {"items": [name] * number, "who": name}
            made = empty_checkpoint()
            versions: dict[str, str | int | float] = {channel: saver.get_next_version(None, None) for channel in values}
            checkpoint = {**made, "id": f"{number:04}-{name}", "channel_values": values, "channel_versions": versions}
            at = await saver.aput(
                config_of("t", checkpoint_ns=""),
                checkpoint,  # type: ignore[arg-type]
                {"source": "loop", "step": number, "parents": {}},
                versions,
            )
            await saver.aput_writes(at, [("items", number)], name)

    async with server.bus() as one, server.bus() as other:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(append, LanebusSaver(one), "one")
            tasks.start_soon(append, LanebusSaver(other), "other")
        found = [each async for each in LanebusSaver(one).alist(config_of("t"))]
        assert len(found) == 60
        for each in found:
            number, _, name = each.checkpoint["id"].partition("-")
            assert each.checkpoint["channel_values"] == {"items": [name] * int(number), "who": name}
            assert each.pending_writes == [(name, "items", int(number))]


@pytest.mark.full
async def test_a_thousand_threads_run_at_once(bus: Bus) -> None:
    saver = LanebusSaver(bus)
    limit, results = anyio.CapacityLimiter(200), dict[int, object]()

    async def run(number: int) -> None:
        async with limit:
            results[number] = await counting(saver, end=2).ainvoke({"steps": []}, config_of(f"t{number}"))

    async with anyio.create_task_group() as tasks:
        for number in range(1_000):
            tasks.start_soon(run, number)
    assert results == {number: {"steps": [0, 1]} for number in range(1_000)}
    fresh, random = LanebusSaver(bus), Random(1)  # noqa: S311
    for number in random.sample(range(1_000), 50):
        assert len([each async for each in fresh.alist(config_of(f"t{number}"))]) == 4
