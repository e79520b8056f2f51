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

from lanebus.bus.embedded.server import find_binary
from lanebus.bus.errors import Unavailable
from lanebus.handlers.cli.access import Patience, open_bus
from lanebus.handlers.cli.options import Settings
from tests.support.cli.command_line import CommandLine
from tests.support.cli.monitored import monitored_command
from tests.support.servers.clusters import at_free_port
from tests.support.servers.real import RealServer, eventually

__all__ = ()

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


@pytest.fixture
def tcp_server() -> Generator[tuple[RealServer, int]]:
    """A server with a port, and the port."""
    with at_free_port() as found:
        yield found


@pytest.mark.parametrize("words", [WORKER, SERVE], ids=["worker", "serve"])
async def test_a_service_waits_for_its_server_and_says_so(
    lanebus: CommandLine, late: RealServer, words: tuple[str, ...]
) -> None:
    async with monitored_command(lanebus, *words, "--url", late.url) as process:
        line = await process.event("server.awaited")
        assert (line["level"], "No such file" in str(line["fault"])) == ("warning", True)
        late.start()
        await process.event("server.found", what="open")
        assert (await process.get("/healthz")).status_code == 200
        await process.end(signal.SIGTERM)


@pytest.mark.parametrize("words", [WORKER, SERVE], ids=["worker", "serve"])
async def test_sigterm_ends_a_service_that_waits(
    lanebus: CommandLine, late: RealServer, words: tuple[str, ...]
) -> None:
    async with monitored_command(lanebus, *words, "--url", late.url) as process:
        await process.event("server.awaited")
        assert await process.end(signal.SIGTERM) == 143


@pytest.mark.parametrize("words", [WORKER, SERVE], ids=["worker", "serve"])
def test_a_service_ends_at_once_if_it_shall_not_wait(
    lanebus: CommandLine, late: RealServer, words: tuple[str, ...]
) -> None:
    answer = lanebus(*words, "--url", late.url, "--wait", "0")
    assert (answer.code, "server.awaited" in answer.err) == (5, False)
    assert "No such file" in answer.err


@pytest.mark.parametrize(
    ("url", "code", "said"),
    [
        ("unix://app:wrong@{socket}", 2, "refused the user or password"),
        ("unix://app:pass@{socket}?db=99", 2, "no database 99"),
        ("unix://{socket}?password_file=/nowhere/at/all", 2, "password file /nowhere/at/all"),
        ("redis+cluster://127.0.0.1:{port}", 2, "is not in a cluster"),
        ("rediss://127.0.0.1:{port}", 5, "does not speak TLS"),
    ],
)
def test_a_fault_that_waiting_does_not_cure_ends_a_service(
    lanebus: CommandLine, tcp_server: tuple[RealServer, int], url: str, code: int, said: str
) -> None:
    server, port = tcp_server
    server.do("ACL", "SETUSER", "app", "on", ">pass", "~*", "+@all")
    answer = lanebus(*WORKER, "--url", url.format(socket=server.socket, port=port))
    assert (answer.code, said in answer.err, "server.awaited" in answer.err) == (code, True, False), answer.err


async def test_the_log_says_once_a_period_that_the_server_is_awaited(
    late: RealServer, caplog: pytest.LogCaptureFixture
) -> None:
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
