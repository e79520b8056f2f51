"""A service that starts before its server waits for it, and ends at once for what waiting does not cure."""

import logging
import shutil
import signal
import tempfile
from collections.abc import Generator
from math import inf
from pathlib import Path

import anyio
import pytest
from anyio.to_thread import run_sync

from lanebus.bus.embedded.server import find_binary
from lanebus.bus.errors import Unavailable
from lanebus.handlers.cli.access import Patience, open_bus
from lanebus.handlers.cli.options import Settings
from tests.support.cli.command_line import CommandLine
from tests.support.cli.monitored import monitored_command
from tests.support.servers.clusters import at_free_port
from tests.support.servers.real import RealServer, eventually

pytestmark = pytest.mark.full

WORKER = ("worker", "lanebus.handlers.agent.demo:agent", "--name", "w1")
SERVE = ("serve", "--port", "0")


@pytest.fixture
def late() -> Generator[RealServer]:
    """A server that is not started yet."""
    directory = Path(tempfile.mkdtemp(prefix="lanebus-")).resolve()
    server = RealServer(find_binary(), directory)
    try:
        yield server
    finally:
        server.kill()
        shutil.rmtree(directory)


@pytest.mark.parametrize("words", [WORKER, SERVE], ids=["worker", "serve"])
async def test_a_service_waits_for_its_server_unless_it_shall_not_and_obeys_signals_meanwhile(
    lanebus: CommandLine, late: RealServer, words: tuple[str, ...]
) -> None:
    answer = await run_sync(lambda: lanebus(*words, "--url", late.url, "--wait", "0"))
    assert (answer.code, "server.awaited" in answer.err, "No such file" in answer.err) == (5, False, True)
    async with monitored_command(lanebus, *words, "--url", late.url) as process:
        await process.event("server.awaited")
        assert await process.end(signal.SIGTERM) == 143
    async with monitored_command(lanebus, *words, "--url", late.url) as process:
        line = await process.event("server.awaited")
        assert (line["level"], "No such file" in str(line["fault"])) == ("warning", True)
        late.start()
        await process.event("server.found", what="open")
        assert (await process.get("/healthz")).status_code == 200
        await process.end(signal.SIGTERM)


def test_a_fault_that_waiting_does_not_cure_ends_a_service(lanebus: CommandLine) -> None:
    with at_free_port() as (server, port):
        server.do("ACL", "SETUSER", "app", "on", ">pass", "~*", "+@all")
        for url, code, said in (
            (f"unix://app:wrong@{server.socket}", 2, "refused the user or password"),
            (f"unix://app:pass@{server.socket}?db=99", 2, "no database 99"),
            (f"unix://{server.socket}?password_file=/nowhere/at/all", 2, "password file /nowhere/at/all"),
            (f"redis+cluster://127.0.0.1:{port}", 2, "is not in a cluster"),
            (f"rediss://127.0.0.1:{port}", 5, "does not speak TLS"),
        ):
            answer = lanebus(*WORKER, "--url", url)
            found = (answer.code, said in answer.err, "server.awaited" in answer.err)
            assert found == (code, True, False), answer.err


async def test_the_log_says_once_a_period_that_it_waits(late: RealServer, caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings(late.url, None, "lanebus")

    def told() -> int:
        return sum(getattr(each, "event", "") == "server.awaited" for each in caplog.records)

    async def wait(period: float) -> None:
        async with open_bus(settings, Patience(inf, first_pause=0.001, longest_pause=0.001, told=period)):
            pass

    with caplog.at_level(logging.INFO, "lanebus"):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, 0.0)
            await eventually(lambda: told() > 2)
            tasks.cancel_scope.cancel()
        caplog.clear()
        with pytest.raises(Unavailable, match="No such file"):
            async with open_bus(settings, Patience(0.05, first_pause=0.01, longest_pause=0.01)):
                pass
        assert told() == 1
