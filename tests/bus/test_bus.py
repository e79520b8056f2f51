"""Opening and closing a bus."""

import subprocess
import sys
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from lanebus import Bus, Closed, SetupError, Unavailable
from lanebus.bounds import PublishBounds
from lanebus.bus import Bounds
from lanebus.bus.embedded.server import find_binary
from lanebus.bus.errors import OldNamespace, UnsafeServer
from lanebus.errors import DurabilityWarning, OutcomeUnknown
from tests.support.log.said import said, words
from tests.support.paths import ROOT
from tests.support.servers.real import RealServer, eventually, real_server, shortly


async def test_without_a_url_the_embedded_server_is_used_and_keeps_its_log(short_dir: Path) -> None:
    async with Bus.open(data_dir=short_dir) as bus:
        await bus.session("s").publish(said("a"))
    async with Bus.open(data_dir=short_dir) as bus:
        assert await words(bus.session("s")) == ["a"]
    await eventually(lambda: not (short_dir / "sock").exists())


async def test_two_buses_of_one_process_share_the_embedded_server(short_dir: Path) -> None:
    async with Bus.open(data_dir=short_dir) as one, Bus.open(data_dir=short_dir) as two:
        await one.session("s").publish(said("a"))
        await two.session("s").publish(said("b"))
        assert await words(one.session("s")) == await words(two.session("s")) == ["a", "b"]


async def test_namespaces_do_not_see_each_other(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus("one") as one, shared_valkey.bus("two") as two:
        await one.session("s").publish(said("a"))
        assert await words(two.session("s")) == []
        assert await two.sessions() == []
        assert [head.session for head in await one.sessions()] == ["s"]


async def test_sessions_are_listed_with_the_last_changed_one_first(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
        for name in ("a", "b", "a", "c", "b"):
            await bus.session(name).publish(said("x"))
            await anyio.sleep(0.002)  # so that the server's clock, of milliseconds, has moved
        assert [head.session for head in await bus.sessions()] == ["b", "c", "a"]


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_a_server_that_would_delete_sessions_is_refused(valkey: RealServer, policy: str) -> None:
    valkey.do("CONFIG", "SET", "maxmemory-policy", policy)
    with pytest.raises(UnsafeServer) as caught:
        async with valkey.bus():
            pass
    assert (caught.value.setting, caught.value.found) == ("maxmemory-policy", policy)


async def test_a_server_without_a_log_on_disk_is_warned_of(valkey: RealServer) -> None:
    valkey.do("CONFIG", "SET", "appendonly", "no")
    with pytest.warns(DurabilityWarning):
        async with valkey.bus() as bus:
            await bus.session("s").publish(said("a"))


async def test_a_namespace_of_a_newer_or_older_form_is_refused_and_says_what_to_do(shared_valkey: RealServer) -> None:
    for schema, error in (("99", UnsafeServer), ("1", OldNamespace)):
        shared_valkey.do("HSET", "lanebus:config", "schema", schema)
        with pytest.raises(error) as caught:
            async with shared_valkey.bus():
                pass
        assert shared_valkey.do("HGET", "lanebus:config", "schema") == schema
    assert isinstance(old := caught.value, OldNamespace)
    assert (old.namespace, old.schema) == ("lanebus", 1)
    assert "lanebus export" in str(old)


async def test_the_number_of_buckets_of_a_namespace_never_changes(shared_valkey: RealServer) -> None:
    shared_valkey.do("HSET", "lanebus:config", "buckets", "7")
    async with shared_valkey.bus() as bus:
        await bus.session("s").publish(said("a"))
        assert await words(bus.session("s")) == ["a"]
    assert shared_valkey.do("HGET", "lanebus:config", "buckets") == "7"


async def test_a_wrong_password_is_refused_without_retries() -> None:
    with real_server(find_binary()) as server:
        server.do("CONFIG", "SET", "requirepass", "right")
        for url in (server.url, f"unix://:wrong@{server.socket}"):
            with pytest.raises(SetupError) as caught:
                async with shortly(), Bus.open(url):
                    pass
            assert "wrong" not in str(caught.value)
        async with Bus.open(f"unix://:right@{server.socket}") as bus:
            assert (await bus.session("s").publish(said("a"))).position == 1


@pytest.mark.parametrize("error", [ValueError("mine"), SystemExit(3), ExceptionGroup("g", [ValueError("mine")])])
async def test_an_error_of_the_block_is_raised_unchanged(shared_valkey: RealServer, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        async with shared_valkey.bus():
            raise error
    assert caught.value is error


async def test_cancellation_passes_through_a_bus(shared_valkey: RealServer) -> None:
    reached: list[str] = []
    with anyio.move_on_after(0.05) as scope:
        async with shared_valkey.bus():
            await anyio.sleep_forever()
        reached.append("behind")
    assert scope.cancelled_caught
    assert reached == []


async def test_closing_waits_for_publishes_in_flight(shared_valkey: RealServer) -> None:
    async with anyio.create_task_group() as tasks, shared_valkey.bus() as bus:
        for index in range(50):
            tasks.start_soon(bus.session("s").publish, said(str(index)))
        await anyio.lowlevel.checkpoint()  # they have begun
    async with shared_valkey.bus() as bus:
        assert await words(bus.session("s")) == [str(index) for index in range(50)]


async def test_closing_does_not_wait_forever_for_a_silent_server(valkey: RealServer) -> None:
    errors: list[Exception] = []

    async def publish(bus: Bus, text: str) -> None:
        try:
            await bus.session("s").publish(said(text))
        except (Closed, Unavailable) as error:
            errors.append(error)

    bounds = Bounds(publish=PublishBounds(close_seconds=0.1))
    async with anyio.create_task_group() as tasks, valkey.bus(bounds=bounds) as bus:
        await bus.session("s").publish(said("a"))
        valkey.pause()
        for text in ("b", "c", "d"):  # the last one is behind those on their way
            tasks.start_soon(publish, bus, text)
            await anyio.wait_all_tasks_blocked()
    valkey.resume()
    assert [type(error) for error in errors] == [OutcomeUnknown, OutcomeUnknown, Closed]
    async with valkey.bus() as bus:
        assert "d" not in await words(bus.session("s"))


@pytest.mark.full
def test_leaving_a_program_by_exit_keeps_its_code(short_dir: Path) -> None:
    code = (
        "import asyncio, pathlib, sys\nfrom lanebus import Bus\n"
        "async def main():\n"
        "    async with Bus.open(data_dir=pathlib.Path(sys.argv[1])):\n"
        "        sys.exit(3)\n"
        "asyncio.run(main())\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(short_dir)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (3, "")
