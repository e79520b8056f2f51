"""Several processes with the same threads: kills, races, and many threads at once."""

import subprocess
import sys
from random import Random
from typing import Any

import anyio
import pytest
from langgraph.checkpoint.base import empty_checkpoint

from lanebus.langgraph import LanebusSaver
from tests.support.backends.langgraph_graphs import config_of, counting
from tests.support.paths import ROOT
from tests.support.servers.real import AnyServer, RealServer

__all__ = ()


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
        assert begun == [*range(begun[0], 20)]  # no step that was stored runs again
        assert begun[0] in {len(stored), len(stored) + 1}  # the writes of one more step may be stored


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
async def test_a_thousand_threads_run_at_once(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
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
