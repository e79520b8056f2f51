"""The pytest plugin, as a project of a user sees it: pytest in a process of its own, without this suite's settings."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lanebus import AssistantMessage, ToolCallBlock
from lanebus.agent import ModelRequest
from lanebus.context import Context
from lanebus.testing import ScriptedModel, ScriptEnded
from tests.support.paths import ROOT

BLOCK = re.compile(r'^```python title="(?P<title>[^"]+)"\n(?P<code>.*?)^```$', re.MULTILINE | re.DOTALL)
PAGE = {
    found["title"]: found["code"]
    for found in BLOCK.finditer((ROOT / "docs/how-to/test-your-agent.md").read_text(encoding="utf-8"))
}
USES = """
async def test_the_bus_is_new({arguments}):
    session = lanebus_bus.session("s")
    assert (await session.head()).position == 0
    folder = lanebus_data_dir
    from lanebus import UserMessage
    await session.publish(UserMessage.text("hi"))
    with open("seen.txt", "a") as seen:
        print(folder, file=seen)

test_again = test_the_bus_is_new
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a user's project, with the plugin as its entry point would load it."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:valkey", "-p", "no:lanebus"]
    # Plugins of other packages import what they need when they are loaded, which takes seconds.
    others = ("langsmith_plugin", "inline_snapshot", "schemathesis", "ag_ui_validate")
    command += [part for name in others for part in ("-p", f"no:{name}")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "LANEBUS"))}
    return subprocess.run(
        [*command, "-p", "lanebus.pytest_plugin", *words],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.full
@pytest.mark.parametrize(
    ("ini", "mark", "words"),
    [
        ("asyncio_mode = auto", "", ()),
        ("asyncio_mode = strict", "asyncio", ()),
        ("asyncio_mode = strict", "anyio", ()),
        ("", "anyio", ("-p", "no:asyncio")),
    ],
)
def test_each_test_has_a_bus_of_its_own_that_is_thrown_away(
    tmp_path: Path, ini: str, mark: str, words: tuple[str, ...]
) -> None:
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{ini}\n")
    (tmp_path / "conftest.py").write_text(PAGE["conftest.py"])
    line = f"import pytest\npytestmark = pytest.mark.{mark}\n" if mark else ""
    (tmp_path / "test_uses.py").write_text(line + USES.format(arguments="lanebus_bus, lanebus_data_dir"))
    done = run(tmp_path, *words)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    folders = [Path(each) for each in (tmp_path / "seen.txt").read_text().split()]
    assert len(set(folders)) == 2
    assert [each for each in folders if each.parent.exists()] == []


@pytest.mark.full
def test_the_example_of_the_page_passes(tmp_path: Path) -> None:
    for title, code in PAGE.items():
        (tmp_path / title).write_text(code)
    done = run(tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


PLAIN = """
import sys

def test_plain():
    assert {'pydantic', 'redis', 'lanebus.bus', 'lanebus.handlers'} & set(sys.modules) == set()
"""


@pytest.mark.full
def test_a_run_that_uses_no_fixture_imports_nothing_of_the_bus(tmp_path: Path) -> None:
    (tmp_path / "test_plain.py").write_text(PLAIN)
    done = run(tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_plugin_is_an_entry_point_of_the_package() -> None:
    assert (
        '[project.entry-points.pytest11]\nlanebus = "lanebus.pytest_plugin"\n' in (ROOT / "pyproject.toml").read_text()
    )


async def test_a_script_gives_its_answers_in_order_and_then_names_the_call_that_has_none() -> None:
    call = ToolCallBlock(id="c", name="weather", arguments={})
    model = ScriptedModel(call).then("done", ValueError("down"))
    request = ModelRequest(Context("s"))
    first, second = [[each async for each in model.stream(request)] for _ in range(2)]
    assert first == [AssistantMessage(content=(call,), stop_reason="toolUse")]
    assert [each.text_content() for each in second if isinstance(each, AssistantMessage)] == ["done"]
    assert model.left == 1
    with pytest.raises(ValueError, match="down"):
        await anext(model.stream(request))
    with pytest.raises(ScriptEnded, match="no answer for call 4"):
        await anext(model.stream(request))
    assert model.requests == 4 * [request]
