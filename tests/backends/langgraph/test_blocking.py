"""Methods that block, from threads, from programs without an event loop, and from other loops."""

import asyncio

import anyio
import pytest

from lanebus.errors import Closed
from lanebus.langgraph import LanebusSaver, LanebusStore, WouldBlock, bus_in_thread
from tests.support.backends.langgraph_graphs import config_of, conversation, counting, named, said
from tests.support.servers.real import RealServer

__all__ = ()

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


async def test_a_worker_thread_of_the_loop_may_block(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
        graph = counting(LanebusSaver(bus), end=5)
        result = await anyio.to_thread.run_sync(lambda: graph.invoke({"steps": []}, T))
        assert result == {"steps": [0, 1, 2, 3, 4]}


async def test_on_the_loops_own_thread_every_blocking_method_is_refused(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
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


def test_methods_that_await_work_on_every_loop(shared_valkey: RealServer) -> None:
    async def run() -> object:
        return await counting(saver, end=3).ainvoke({"steps": []}, T)

    with bus_in_thread(shared_valkey.url) as bus:
        saver = LanebusSaver(bus)
        assert asyncio.run(run()) == {"steps": [0, 1, 2]}
        assert len(list(saver.list(T))) == 5


async def test_a_cancelled_call_of_another_loop_is_cancelled_on_the_buss(shared_valkey: RealServer) -> None:
    with bus_in_thread(shared_valkey.url) as bus:
        saver = LanebusSaver(bus)
        task = asyncio.create_task(saver.aget_tuple(T))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await saver.aget_tuple(T) is None
