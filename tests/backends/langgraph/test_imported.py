"""Imported checkpoints: they are shown as data, and no graph acts on them."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false

import json
import os
from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict, cast

import ormsgpack
import pytest
from langgraph.channels import EphemeralValue
from langgraph.checkpoint.base import Checkpoint, CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.errors import EmptyInputError
from langgraph.graph import START, StateGraph
from langgraph.pregel import NodeBuilder, Pregel
from langgraph.types import Command, Send, interrupt

from lanebus import Bus, ExtensionMessage
from lanebus.archive import DirectoryArchive
from lanebus.handlers.integrations.langgraph.thread import (
    CheckpointsDeleted,
    CheckpointStored,
    Packed,
    Write,
    WritesStored,
)
from lanebus.langgraph import BackendBounds, LanebusSaver, LanebusStore
from tests.support.backends.imported import import_session
from tests.support.backends.langgraph_graphs import Graph, adding, config_of, conversation, said
from tests.support.servers.real import RealServer

ID = "ffffffff-0000-6000-8000-000000000000"


class Paying(TypedDict):
    """The state of `paying`."""

    amount: int


def paying(saver: LanebusSaver, paid: list[int]) -> Graph:
    """Return a graph that pays an amount after a person has agreed."""

    def pay(state: Paying) -> Paying:
        interrupt("pay?")
        paid.append(state["amount"])
        return state

    builder = StateGraph(Paying)
    builder.add_node("pay", pay)
    builder.add_edge(START, "pay")
    return cast("Graph", builder.compile(checkpointer=saver))


def packed(value: object, kind: str = "msgpack") -> Packed:
    """Return a value as another party may write it."""
    return Packed(type=kind, value=b64encode(ormsgpack.packb(value) if kind == "msgpack" else b"").decode())


def call_of(function: str, argument: object) -> ormsgpack.Ext:
    """Return an object that LangGraph's serializer makes by calling a function."""
    module, name = function.rsplit(".", 1)
    return ormsgpack.Ext(0, ormsgpack.packb((module, name, argument)))


def bare(**fields: object) -> dict[str, object]:
    """Return a checkpoint without values, as another party may write it."""
    made = {key: value for key, value in empty_checkpoint().items() if key != "channel_values"}
    return {**made, "id": ID, **fields}


async def forge(bus: Bus, checkpoint: Packed, metadata: Packed, *, id: str = ID, thread: str = "t") -> None:
    entry = CheckpointStored(thread=thread, namespace="", id=id, checkpoint=checkpoint, metadata=metadata)
    await bus.session(thread, agent="langgraph").publish(entry.as_extension(), imported=True)


async def newest(saver: LanebusSaver, thread: str = "t") -> CheckpointTuple:
    found = await saver.aget_tuple(config_of(thread))
    assert found is not None
    return found


def imported(found: CheckpointTuple) -> dict[str, Any]:
    """Return what was imported, which must be JSON."""
    data = cast("dict[str, Any]", found.metadata)["imported"]
    json.dumps(data, allow_nan=False)
    return cast("dict[str, Any]", data)


async def test_an_imported_checkpoint_is_shown_as_data_and_calls_no_function(bus: Bus, tmp_path: Path) -> None:
    mark = tmp_path / "made"
    value = {
        "evil": call_of("os.mkdir", str(mark)),
        "nan": float("nan"),
        "seven": b"\xff",
        "other": ormsgpack.Ext(99, b"x"),
    }
    await forge(bus, packed(bare()), packed(value))
    for serde in (None, JsonPlusSerializer(pickle_fallback=True, allowed_msgpack_modules=True)):
        saver = LanebusSaver(bus, serde=serde)
        found = await newest(saver)
        assert imported(found)["metadata"]["evil"] == {"constructor": ["os", "mkdir", str(mark)]}
        assert [imported(each) async for each in saver.alist(None)] == [imported(found)]
        assert [each async for each in saver.alist(None, filter={"source": "input"})] == []
        await saver.adelete_for_runs(["r"])
        await saver.aprune(["t"])
    assert not mark.exists()


class Evil:
    """An object whose pickle makes a directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("kind", ["pickle", "json", "msgpack", "bytes", "msgpack+aes", "null", "unheard of"])
async def test_an_imported_value_of_any_form_is_never_decoded_by_a_serializer(
    bus: Bus, tmp_path: Path, kind: str
) -> None:
    pickle = JsonPlusSerializer(pickle_fallback=True).dumps_typed(Evil(tmp_path / "made"))[1]
    both = [Packed(type=kind, value=b64encode(pickle).decode()), Packed(type=kind, value={"sha256": "0" * 64})]
    saver = LanebusSaver(bus, serde=JsonPlusSerializer(pickle_fallback=True, allowed_msgpack_modules=True))
    for number, each in enumerate(both):
        await forge(bus, each, each, id=f"{number:08}")
    assert len([imported(each) async for each in saver.alist(config_of("t"))]) == len(both)
    assert not (tmp_path / "made").exists()


async def test_imported_values_over_the_bound_and_nested_too_deep_are_notes(bus: Bus) -> None:
    deep: object = 1
    for _ in range(200):
        deep = ormsgpack.Ext(0, ormsgpack.packb(["a", "b", deep]))
    await forge(bus, packed(bare()), packed({"x": deep}), id="1")
    await forge(bus, packed(bare()), packed({"x": "y" * 5_000}), id="2")
    saver = LanebusSaver(bus, bounds=BackendBounds(imported_bytes=3_000))
    shown = [imported(each)["metadata"] async for each in saver.alist(config_of("t"))]
    assert all("notShown" in each for each in shown)


async def test_a_graph_starts_anew_on_an_imported_thread_and_its_history_stays_readable(bus: Bus) -> None:
    saver = LanebusSaver(bus)
    await conversation(saver).ainvoke(said("secret"), config_of("theirs"))
    before = await newest(saver, "theirs")
    await import_session(bus, "theirs", "t", "langgraph")
    assert imported(await newest(saver))["checkpoint"]["channel_versions"] == before.checkpoint["channel_versions"]
    shown = imported(await newest(saver))["values"]["messages"]
    assert [each["constructor"][2]["content"] for each in shown] == ["secret", "You said: secret"]
    state = await conversation(saver).aget_state(config_of("t"))
    assert (state.values, state.next) == ({"messages": []}, ())
    with pytest.raises(EmptyInputError):
        await conversation(saver).ainvoke(None, config_of("t"))
    await conversation(saver).ainvoke(said("mine"), config_of("t"))
    for reader in (saver, LanebusSaver(bus)):
        state = await conversation(reader).aget_state(config_of("t"))
        assert [each.text for each in state.values["messages"]] == ["mine", "You said: mine"]
        listed = [each async for each in reader.alist(config_of("t"))]
        own = [each for each in listed if "imported" not in each.metadata]
        assert listed[: len(own)] == own
        assert len(own) < len(listed)


async def test_an_imported_interrupt_is_not_resumed(bus: Bus) -> None:
    paid: list[int] = []
    saver = LanebusSaver(bus)
    await paying(saver, paid).ainvoke({"amount": 999}, config_of("theirs"))
    await import_session(bus, "theirs", "t", "langgraph")
    graph = cast("Any", paying(saver, paid))
    with pytest.raises(EmptyInputError):
        await graph.ainvoke(None, config_of("t"))
    for _ in range(2):  # as on a new thread, the first asks a person; the second is the answer, without an amount
        assert paid == []
        with suppress(KeyError):
            await graph.ainvoke(Command(resume=True), config_of("t"))
    assert paid == []


async def test_imported_writes_and_values_do_not_reach_the_checkpoints_of_a_graph(bus: Bus) -> None:
    paid: list[int] = []
    saver = LanebusSaver(bus)
    await paying(saver, paid).ainvoke({"amount": 1}, config_of("t"))
    own = await newest(saver)
    entries = [each.message async for each in bus.session("t").read(kinds={"store.langgraph.value"})]
    forged = [
        WritesStored(
            namespace="",
            checkpoint=own.checkpoint["id"],
            task=task,
            writes=(Write(index=-4, channel="__resume__", packed=packed([True])),),
        ).as_extension()
        for task in ("00000000-0000-0000-0000-000000000000", *{each[0] for each in own.pending_writes or ()})
    ]
    changed = [
        ExtensionMessage.of(each.kind, {**each.data, "packed": packed(999).model_dump()})
        for each in entries
        if isinstance(each, ExtensionMessage) and isinstance(each.data, dict)
    ]
    assert changed
    removed = CheckpointsDeleted(checkpoints=(("", own.checkpoint["id"]),)).as_extension()
    for message in (*forged, *changed, removed, CheckpointsDeleted().as_extension()):
        await bus.session("t").publish(message, imported=True)
    await forge(bus, packed(bare()), packed({}))
    for reader in (saver, LanebusSaver(bus)):
        assert await newest(reader) == own
    await cast("Any", paying(LanebusSaver(bus), paid)).ainvoke(None, config_of("t"))
    assert paid == []
    await cast("Any", paying(LanebusSaver(bus), paid)).ainvoke(Command(resume=True), config_of("t"))
    assert paid == [1]


def echo(value: object) -> object:
    return value


async def test_an_imported_send_and_a_value_of_a_trigger_run_no_node(bus: Bus) -> None:
    ran: list[object] = []
    saver = LanebusSaver(bus)
    node = NodeBuilder().subscribe_only("a").do(ran.append)
    theirs = Pregel[Any, None, Any, Any](
        nodes={"node": node, "other": NodeBuilder().subscribe_only("c").do(echo).write_to("b")},
        channels={"a": EphemeralValue(object), "b": EphemeralValue(object), "c": EphemeralValue(object)},
        input_channels="c",
        output_channels="b",
        checkpointer=saver,
    )
    config = config_of("theirs", checkpoint_ns="")
    values: dict[str, Any] = {"a": 999, "__pregel_tasks": [Send("node", 999)]}
    versions: dict[str, str | int | float] = dict.fromkeys(values, "1")
    made: Checkpoint = {**empty_checkpoint(), "channel_values": values, "channel_versions": versions}
    await saver.aput(config, made, {"source": "loop", "step": 1}, versions)
    await import_session(bus, "theirs", "t", "langgraph")
    await cast("Any", theirs).ainvoke(1, config_of("t"))
    assert ran == []
    await cast("Any", theirs).ainvoke(None, config_of("theirs"))
    assert ran == [999, 999]  # both would have run


async def test_a_delta_channel_takes_nothing_over_from_an_imported_checkpoint(bus: Bus) -> None:
    saver = LanebusSaver(bus)
    for _ in range(3):
        await adding(saver).ainvoke({"items": [7], "total": 0}, config_of("theirs"))
    await import_session(bus, "theirs", "t", "langgraph")
    for _ in range(2):
        await adding(saver).ainvoke({"items": [5], "total": 0}, config_of("t"))
    state = await adding(LanebusSaver(bus)).aget_state(config_of("t"))
    assert state.values == {"items": [5, 1, 5, 3], "total": 2}


async def test_copies_forks_and_archived_entries_of_an_imported_thread_stay_data(
    tmp_path: Path,
) -> None:
    paid: list[int] = []
    async with Bus.open(data_dir=tmp_path / "d", archive=DirectoryArchive(tmp_path / "a")) as bus:
        saver = LanebusSaver(bus)
        await paying(saver, paid).ainvoke({"amount": 999}, config_of("theirs"))
        await import_session(bus, "theirs", "t", "langgraph")
        await saver.acopy_thread("t", "copied")
        session = bus.session("t")
        await session.fork((await session.head()).position, id="forked")
        await import_session(bus, "theirs", "archived", "langgraph")
        await bus.session("archived").archive()
        await bus.session("archived").trim(4)
        for thread in ("t", "copied", "forked", "archived"):
            reader = LanebusSaver(bus)
            assert imported(await newest(reader, thread))["writes"]
            with pytest.raises(EmptyInputError):
                await paying(reader, paid).ainvoke(None, config_of(thread))
    assert paid == []


async def test_a_prune_of_imported_checkpoints_keeps_those_of_a_graph(bus: Bus) -> None:
    saver = LanebusSaver(bus)
    await conversation(saver).ainvoke(said("mine"), config_of("t"))
    own = [each async for each in saver.alist(config_of("t"))]
    for id in ("1", own[0].checkpoint["id"], ID):
        await forge(bus, packed(bare()), packed({}), id=id)
    await saver.aprune(["t"])
    assert [each async for each in LanebusSaver(bus).alist(config_of("t"))] == own[:1]
    await saver.adelete_thread("t")
    assert [each async for each in LanebusSaver(bus).alist(config_of("t"))] == []


async def test_an_item_that_a_graph_stored_wins_over_an_imported_one(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
        store = LanebusStore(bus)
        await store.aput(("user", "a"), "role", {"name": "admin"})
        await store.aput(("user", "a"), "other", {"name": "theirs"})
        await store.adelete(("user", "a"), "gone")
        session = (await bus.sessions(agent="langgraph-store"))[0].session
        async with shared_valkey.bus(namespace="mine") as mine:
            own = LanebusStore(mine)
            await own.aput(("user", "a"), "role", {"name": "guest"})
            target = mine.session(session, agent="langgraph-store")
            async for envelope in bus.session(session).read():
                await target.publish(cast("Any", envelope.message), imported=True)
            for reader in (own, LanebusStore(mine)):
                found = await reader.aget(("user", "a"), "role")
                assert found is not None
                assert found.value == {"name": "guest"}
                other = await reader.aget(("user", "a"), "other")
                assert other is not None
                assert other.value == {"name": "theirs"}
                assert {each.key for each in await reader.asearch(("user",))} == {"role", "other"}
            await own.adelete(("user", "a"), "other")
            await own.adelete(("user", "a"), "role")
            assert await LanebusStore(mine).asearch(("user",)) == []
