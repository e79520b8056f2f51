"""What `LanebusSaver` stores and returns, beyond the conformance suite."""

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import JsonValue

from lanebus import ExtensionMessage
from lanebus.errors import InvalidArgument, SessionExists
from lanebus.handlers.integrations.bounds import BackendBounds
from lanebus.langgraph import LanebusSaver
from tests.support.backends.langgraph_graphs import adding, config_of, conversation, counting, named, said
from tests.support.servers.real import AnyServer, RealServer
from tests.support.suite.scale import randomness

__all__ = ()

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


async def test_pending_writes_are_in_the_order_of_their_tasks_paths(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
        saver = LanebusSaver(bus)
        await put(saver, 1)
        at = config_of("t", checkpoint_id="00000001")
        await saver.aput_writes(at, [("a", 3), ("b", 4)], "task-1", "path-2")
        await saver.aput_writes(at, [("a", 1), ("__error__", 0)], "task-2", "path-1")
        await saver.aput_writes(at, [("a", 5)], "task-0", "path-2")
        found = await LanebusSaver(bus).aget_tuple(at)
        assert found is not None
        assert found.pending_writes == [
            ("task-2", "__error__", 0),
            ("task-2", "a", 1),
            ("task-0", "a", 5),
            ("task-1", "a", 3),
            ("task-1", "b", 4),
        ]


async def test_a_write_that_is_stored_stays_and_an_error_is_replaced(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
        saver, at = LanebusSaver(bus), config_of("t", checkpoint_id="00000001")
        await put(saver, 1)
        await saver.aput_writes(at, [("a", 1), ("__error__", "first")], "task")
        await saver.aput_writes(at, [("a", 2), ("__error__", "second"), ("b", 3)], "task")
        found = await saver.aget_tuple(at)
        assert found is not None
        assert found.pending_writes == [("task", "__error__", "second"), ("task", "a", 1), ("task", "b", 3)]
        before = (await bus.session("t").head()).position
        await saver.aput_writes(at, [("a", 4)], "task")
        assert (await bus.session("t").head()).position == before


@pytest.mark.parametrize("bounds", [BackendBounds(), BackendBounds(inline_bytes=1), BackendBounds(batch_bytes=1)])
async def test_lists_that_grow_shrink_and_change_are_read_as_they_were(
    shared_valkey: RealServer, bounds: BackendBounds
) -> None:
    random, expected = randomness("lists"), dict[int, list[object]]()
    async with shared_valkey.bus() as bus:
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


async def test_a_long_list_that_grows_is_stored_as_its_new_elements(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
        saver = LanebusSaver(bus)
        texts = ["x" * 1_000] * 50
        await put(saver, 1, items=texts)
        before = (await bus.session("t").head()).size_bytes
        for number in range(2, 12):
            texts = [*texts, f"y{number}" * 500]
            await put(saver, number, items=texts)
        grown = (await bus.session("t").head()).size_bytes - before
        assert grown < 10 * 2 * 50_000 / 10  # ten lists of fifty thousand bytes are not there


async def test_what_a_caller_changes_in_a_value_changes_no_later_read(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
        saver = LanebusSaver(bus)
        await put(saver, 1, items=[{"a": 1}], fields={"b": [1]})
        values = await values_of(saver, 1)
        values["items"][0]["a"] = 2
        values["fields"]["b"].append(2)
        assert await values_of(saver, 1) == {"items": [{"a": 1}], "fields": {"b": [1]}}


async def test_a_deleted_thread_holds_nothing_and_can_begin_anew(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
        saver = LanebusSaver(bus)
        await put(saver, 1, items=[1])
        await saver.adelete_thread("t")
        assert await all_of(LanebusSaver(bus)) == []
        await put(saver, 2, items=[1, 2])
        assert [each.checkpoint["channel_values"] for each in await all_of(LanebusSaver(bus))] == [{"items": [1, 2]}]


async def test_after_the_newest_checkpoint_was_deleted_the_one_before_it_is_the_newest(
    shared_valkey: RealServer,
) -> None:
    async with shared_valkey.bus() as bus:
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


async def test_deleting_a_thread_that_holds_nothing_appends_nothing(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
        await LanebusSaver(bus).adelete_thread("t")
        assert (await bus.session("t").head()).position == 0


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


async def test_a_list_of_all_threads_names_each_by_its_own_id(shared_valkey: RealServer) -> None:
    threads = {"plain", "with a space", "ünï", "x" * 65}
    async with shared_valkey.bus() as bus:
        saver = LanebusSaver(bus)
        for thread in threads:
            await counting(saver, end=1).ainvoke({"steps": []}, config_of(thread))
        found = await all_of(LanebusSaver(bus), None)
        assert {named(each.config) for each in found} == threads
        assert [each.checkpoint["id"] for each in found] == sorted(
            (each.checkpoint["id"] for each in found), reverse=True
        )


async def test_a_graph_with_this_saver_has_the_history_that_it_has_in_memory(shared_valkey: RealServer) -> None:
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

    async with shared_valkey.bus() as bus:
        assert await history(LanebusSaver(bus)) == await history(InMemorySaver())


async def test_branches_from_one_checkpoint_keep_their_own_values(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
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


async def test_a_prune_keeps_what_delta_channels_are_put_together_from(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
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


async def test_with_an_encrypted_serializer_the_session_has_no_text(shared_valkey: RealServer) -> None:
    class Reversed:
        """A cipher for tests."""

        def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
            return "reversed", bytes(255 - each for each in plaintext)

        def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
            assert ciphername == "reversed"
            return bytes(255 - each for each in ciphertext)

    async with shared_valkey.bus() as bus:
        graph = conversation(LanebusSaver(bus, serde=EncryptedSerializer(Reversed(), JsonPlusSerializer())))
        await graph.ainvoke(said("secret"), config_of("t"))
        assert (await graph.aget_state(config_of("t"))).values["messages"][1].text == "You said: secret"
        entries = [envelope async for envelope in bus.session("t").read()]
        assert {str(envelope.lane) for envelope in entries} == {"extension"}
        assert not any(b"secret" in envelope.message.to_json_bytes() for envelope in entries)  # type: ignore[union-attr]


async def test_unreadable_entries_of_others_change_nothing(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
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


async def test_many_messages_at_once_are_shown_in_several_appends_before_their_checkpoint(
    shared_valkey: RealServer,
) -> None:
    async with shared_valkey.bus() as bus:
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


async def test_a_message_too_large_for_the_lane_is_shown_in_part_and_stored_whole(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
        saver = LanebusSaver(bus)
        large = AIMessage(
            "long " * 500_000, id="1", tool_calls=[{"name": "t", "args": {"x": "y" * 2_000_000}, "id": "1"}]
        )
        await put(saver, 1, messages=[large])
        assert (await values_of(LanebusSaver(bus), 1))["messages"] == [large]


async def test_a_config_without_a_thread_is_refused(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
        with pytest.raises(InvalidArgument, match="thread_id"):
            await LanebusSaver(bus).aget_tuple({"configurable": {}})


async def test_a_cancelled_put_stores_a_checkpoint_whole_or_not_at_all(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
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


async def test_only_known_types_become_objects(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
        await put(LanebusSaver(bus), 1, ticket=Ticket(7), person=HumanMessage("hi", id="1"))
        values = await values_of(LanebusSaver(bus), 1)
        assert values == {"ticket": {"number": 7}, "person": HumanMessage("hi", id="1")}
        allowing = JsonPlusSerializer(allowed_msgpack_modules=[Ticket])
        assert (await values_of(LanebusSaver(bus, serde=allowing), 1))["ticket"] == Ticket(7)
