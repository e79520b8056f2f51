"""A bus in processes that are not like the suite's: forked, spawned, with several threads or event loops."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import cast

import anyio
import pytest
from anyio.to_thread import run_sync

from lanebus import Bus, SetupError
from lanebus.bus import server_status
from lanebus.errors import OpenedElsewhere
from tests.support.log.said import said, words
from tests.support.paths import ROOT
from tests.support.servers.real import DEADLINE, RealServer

REFUSED = OpenedElsewhere.__name__


def begin(program: str, data_dir: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.servers.embeddings", program, str(data_dir)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


async def run(program: str, data_dir: Path) -> dict[str, object]:
    """Run a program of embeddings.py, and return what it printed."""
    with begin(program, data_dir) as process:
        try:
            printed, _ = await run_sync(lambda: process.communicate(timeout=DEADLINE))
        finally:
            process.kill()
    assert process.returncode == 0
    return cast("dict[str, object]", json.loads(printed))


@pytest.mark.full
async def test_a_forked_child_is_refused_each_call_and_its_parent_loses_nothing(short_dir: Path) -> None:
    found = await run("forked", short_dir)
    for calls in cast("list[dict[str, str]]", found["calls"]):
        assert {name: error for name, error in calls.items() if error != REFUSED} == {}
    assert found["log"] == ["first", "parent 0", "parent 1", "parent 2"]


@pytest.mark.full
async def test_a_child_that_leaves_the_blocks_of_its_parent_closes_nothing(short_dir: Path) -> None:
    found = await run("forked_within", short_dir)
    assert found == {"status": 7, "followed": [2, 3], "log": ["first", "in flight", "after"]}


@pytest.mark.full
async def test_the_embedded_server_ends_with_its_openers_and_not_with_their_forked_children(short_dir: Path) -> None:
    with begin("outlived", short_dir) as process:
        assert process.stdout is not None
        child = int(await run_sync(process.stdout.readline))
        try:
            await run_sync(process.wait)
            with anyio.fail_after(DEADLINE):
                while (await server_status(short_dir)).running:  # noqa: ASYNC110  # another process ends it
                    await anyio.sleep(0.01)
            os.kill(child, 0)  # it lives
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.full
async def test_children_of_each_kind_open_a_bus_of_their_own(short_dir: Path) -> None:
    assert await run("started", short_dir) == {"log": ["first", "child", "child", "child"]}


@pytest.mark.full
async def test_the_loop_of_another_thread_is_refused_each_call_before_anything_is_sent(short_dir: Path) -> None:
    found = await run("threaded", short_dir)
    calls = cast("dict[str, str]", found["calls"])
    assert {name: error for name, error in calls.items() if error != REFUSED} == {}
    assert found["log"] == ["first", "thread"]


@pytest.mark.full
async def test_a_second_loop_is_refused_each_call_after_the_first_has_ended(short_dir: Path) -> None:
    calls = cast("dict[str, str]", (await run("twice", short_dir))["calls"])
    assert {name: error for name, error in calls.items() if error not in {REFUSED, "Closed"}} == {}


@pytest.mark.full
async def test_a_loop_that_is_run_anew_for_each_call_works(short_dir: Path) -> None:
    assert await run("nested", short_dir) == {"followed": [1, 2], "log": ["first", "second"]}


async def test_the_errors_name_the_remedy() -> None:
    assert "open a bus of its own in the child process" in str(OpenedElsewhere("process"))
    assert "run_coroutine_threadsafe" in str(OpenedElsewhere("event loop"))


def test_a_bus_needs_the_loop_of_asyncio() -> None:
    opening = Bus.open().__aenter__()
    with pytest.raises(SetupError, match="asyncio"):
        opening.send(None)


def test_under_uvloop_a_bus_works_and_hears_of_a_lost_connection(shared_valkey: RealServer) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def used() -> list[str]:
        async with shared_valkey.bus() as bus:
            session = bus.session("s")
            await session.publish(said("0"))
            following = session.follow()
            await anext(following)
            async with bus.consumer("g", "c") as consumer:
                await consumer.fetch(1)
            shared_valkey.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            for number in (1, 2):
                await session.publish(said(str(number)))
                await anext(following)
            await following.aclose()
            async with session.lease("holder"):
                await session.preview()
            return await words(session)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(used()) == ["0", "1", "2"]
