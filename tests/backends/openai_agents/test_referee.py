"""The SDK's own tests, unchanged, with sessions of lanebus in place of theirs in SQLite and in memory.

`referee.txt` lists them: all tests of these files that make such a session and do not use SQLite's own attributes.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.backends.sources import source_of
from tests.support.paths import ROOT
from tests.support.servers.real import RealServer

__all__ = ()

LISTED = Path(__file__).with_name("referee.txt").read_text().split()


@pytest.mark.full
@pytest.mark.parametrize(
    ("folder", "passed", "used"),
    [("tests/memory", 212, 193), ("tests/deferred_session_writes", 154, 154), ("tests/test_agent_runner.py", 71, 71)],
)
def test_all_listed_tests_of_the_sdk_pass_with_our_sessions(
    folder: str, passed: int, used: int, shared_valkey: RealServer
) -> None:
    listed = [name for name in LISTED if name.startswith(folder)]
    environment = {
        **os.environ,
        "LANEBUS_URL": shared_valkey.url,
        "PYTHONPATH": str(ROOT / "tests" / "support" / "backends"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "openai_agents_plugin", "-q", *listed]
    run = subprocess.run(
        command,
        cwd=source_of("openai-agents"),
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    output = ROOT / "build" / "backends" / f"openai_agents-{Path(folder).stem}.txt"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(f"{' '.join(command[:8])} … ({len(listed)} names of referee.txt)\n{run.stdout}{run.stderr}")
    assert re.findall(r"\d+ (?:passed|failed|skipped|errors?|x\w+|deselected)", run.stdout) == [f"{passed} passed"]
    assert f"sessions of lanebus were used by {used} tests" in run.stdout
    assert run.returncode == 0
