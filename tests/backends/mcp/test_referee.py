"""The MCP SDK's own tests of its two seams, with our stores in place of theirs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import anyio

from lanebus import Bus
from tests.support.backends.sources import source_of
from tests.support.paths import ROOT
from tests.support.servers.real import RealServer

__all__ = ()

REFEREES = (Path(__file__).parent / "referee.txt").read_text().split()


def test_the_sdks_own_tests_pass_with_our_stores(shared_valkey: RealServer) -> None:
    namespace = "referee"
    environment = {
        **os.environ,
        "LANEBUS_URL": shared_valkey.url,
        "LANEBUS_NAMESPACE": namespace,
        "PYTHONPATH": str(ROOT / "tests" / "support" / "backends"),
    }
    # Their conftest needs packages that record spans and find blocking calls; the plugin has its fixture of the loop.
    # Their options load a plugin for examples.
    options = [
        "--noconftest",
        "-o",
        "addopts=",
        "-p",
        "anyio",
        "-p",
        "no:asyncio",
        "-p",
        "no:lanebus",
        "-p",
        "no:valkey",
    ]
    command = [sys.executable, "-m", "pytest", "-p", "mcp_plugin", "-p", "no:cacheprovider", *options, *REFEREES]
    run = subprocess.run(
        command, cwd=source_of("mcp"), env=environment, capture_output=True, text=True, check=False, timeout=280
    )
    kept = ROOT / "build" / "backends" / "mcp.txt"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(run.stdout + run.stderr)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr
    assert re.search(r"= 22 passed in [^,]*=$", run.stdout.strip()), run.stdout[-400:]

    async def written() -> int:
        async with Bus.open(shared_valkey.url, namespace=namespace) as bus:
            return len(await bus.sessions())

    assert anyio.run(written) >= 18  # nearly every test wrote to a store of its own
