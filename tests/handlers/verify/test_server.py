"""A log is not reported as whole if its server may have lost entries undetected."""

import json
import subprocess
import sys

import pytest

from lanebus import UserMessage
from lanebus.handlers.verify import verify_session
from tests.support.paths import ROOT
from tests.support.servers.real import RealServer, real_server
from tests.support.suite.needs import find

pytestmark = [pytest.mark.needs("redis-server"), pytest.mark.filterwarnings("ignore::lanebus.errors.DurabilityWarning")]


def verify(server: RealServer, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lanebus.handlers.cli", "verify", *words, "--url", server.url]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.full
async def test_a_log_continued_after_a_restart_is_not_whole_on_a_server_that_may_lose_entries() -> None:
    binary = find("redis-server")
    assert binary is not None
    with real_server(binary, "--aof-load-truncated", "yes") as server:
        async with server.bus() as bus:
            await bus.session("one").publish(UserMessage.text("a"))
            await bus.session("two").publish(UserMessage.text("a"))
        server.kill()
        server.start()
        async with server.bus() as bus:
            await bus.session("one").publish(UserMessage.text("b"))
            one, two = await verify_session(bus, "one"), await verify_session(bus, "two")
        assert one is not None
        assert two is not None
        assert (one.is_faultless, one.is_whole) == (True, False)
        assert "may lose acknowledged entries" in one.risk
        assert two.is_whole, "nothing was acknowledged after the start"

        shown = verify(server, "--all", "--table")
        assert shown.returncode == 0
        verdicts = {line.split()[0]: line.split()[1] for line in shown.stdout.splitlines()}
        assert verdicts == {"one": "unproven", "two": "whole"}
        assert f"2 sessions: no problem found, but unproven: {one.risk}\n" in shown.stderr
        told = json.loads(verify(server, "one", "--json").stdout)
        assert (told["is_whole"], told["risk"]) == (False, one.risk)

        server.do("CONFIG", "SET", "aof-load-truncated", "no")
        async with server.bus() as bus:
            settled = await verify_session(bus, "one")
        assert settled is not None
        assert settled.is_whole
