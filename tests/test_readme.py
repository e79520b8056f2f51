"""Each Python block of the README runs as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from lanebus.agent import AgentLoop
from tests.support.paths import ROOT

_BLOCKS = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
_PROGRAMS = [block for block in _BLOCKS if "anyio.run(" in block]
_PARTS = [block for block in _BLOCKS if "anyio.run(" not in block]


def test_every_block_of_the_readme_is_run_here() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(_PROGRAMS) + len(_PARTS) == len(re.findall(r"^\s*```\s*(?:py|python)\b", text, re.MULTILINE)) > 1


@pytest.mark.parametrize("program", _PROGRAMS)
def test_a_program_of_the_readme_publishes_and_follows(program: str, short_dir: Path) -> None:
    environment = {**os.environ, "LANEBUS_DATA_DIR": str(short_dir), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    environment.pop("LANEBUS_URL", None)
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as run:
        assert run.stdout is not None
        told = [run.stdout.readline() for _ in range(2)]  # it follows without end
        run.terminate()
        errors = run.communicate()[1]
    assert [line.split(" ")[:2] for line in told] == [["1", "llm"], ["2", "extension"]], errors


@pytest.mark.parametrize("part", _PARTS)
def test_a_part_of_a_program_in_the_readme_makes_an_agent(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    names: dict[str, object] = {"bank": SimpleNamespace()}  # the reader's own
    exec(compile(part, "README.md", "exec"), names)  # noqa: S102  # our own text
    assert isinstance(names["agent"], AgentLoop)
