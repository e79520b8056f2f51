"""Each code block in the README and the documentation runs as written, and type-checks."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import anyio
import pytest

from lanebus import Bus
from lanebus.agent import AgentLoop
from lanebus.bus import stop_server
from tests.support.backends.frameworks import marks_of
from tests.support.docs.blocks import PAGES, Block, as_module, blocks, run_parts
from tests.support.paths import ROOT

__all__ = ()

PARTS = {
    page: [
        block for block in blocks(page) if block.language == "python" and block.reason is None and not block.is_program
    ]
    for page in PAGES
}
PROGRAMS = [(page, block) for page in PAGES for block in blocks(page) if block.is_program]
SHELL = [(page, block) for page in PAGES for block in blocks(page) if block.language == "sh"]
README = ROOT / "README.md"
MARKS = {page: marks_of(block.code for block in blocks(page) if block.language == "python") for page in PAGES}
"""what a page needs beside the packages of `make test`"""


def name_of(value: object) -> str:
    """Return the id of a page, or of a block by its line."""
    if isinstance(value, Path):
        return value.relative_to(ROOT).as_posix()
    return str(value.line) if isinstance(value, Block) else str(value)


def environment(directory: Path) -> dict[str, str]:
    """Return a page program's environment: an embedded server in `directory`, and this installation's commands."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LANEBUS_")}
    return {**kept, "PATH": path, "LANEBUS_DATA_DIR": str(directory), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name_of(page), marks=MARKS[page] if page == README else [*MARKS[page], pytest.mark.full])
        for page, parts in PARTS.items()
        if parts
    ],
)
async def test_parts_of_a_page_run_in_their_order_and_print_what_it_says(
    page: Path, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "none")
    monkeypatch.chdir(short_dir)
    with anyio.fail_after(240):
        async with Bus.open(data_dir=short_dir / "log") as bus:
            told = await run_parts(page, PARTS[page], {"bus": bus, "session": bus.session("support-42")})
    for part, lines in zip(PARTS[page], told, strict=True):
        assert lines == (part.output or ""), f"{page}:{part.line}"
    await stop_server(short_dir / "log")


def test_a_part_of_the_readme_makes_an_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    seen = list[object]()
    parts = [*PARTS[README], Block("python", "seen.append(agent)", 1, None, None)]
    anyio.run(run_parts, README, parts, {"seen": seen})
    assert [type(each) for each in seen] == [AgentLoop]


@pytest.mark.full
@pytest.mark.parametrize(
    ("page", "program"), [pytest.param(*each, marks=MARKS[each[0]]) for each in PROGRAMS], ids=name_of
)
def test_program_of_a_page_prints_what_it_says(page: Path, program: Block, short_dir: Path) -> None:
    command = [sys.executable, "-c", program.code]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(short_dir), cwd=short_dir
    ) as run:
        output, errors = run.communicate(timeout=240)
    assert (run.returncode, errors) == (0, "")
    assert output == (program.output or "")


@pytest.mark.full
@pytest.mark.parametrize(
    ("page", "block"),
    [pytest.param(page, block, marks=MARKS[page]) for page, block in SHELL if block.reason is None],
    ids=name_of,
)
def test_shell_block_of_a_page_runs(page: Path, block: Block, short_dir: Path) -> None:
    for part in PARTS[page]:
        if part.title is not None:
            (short_dir / part.title).write_text(part.code, encoding="utf-8")
    run = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.code],
        cwd=short_dir,
        env=environment(short_dir / "log"),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    if block.output is not None:
        assert run.stdout == block.output
    anyio.run(stop_server, short_dir / "log")


@pytest.mark.full
@pytest.mark.skipif(
    find_spec("mypy") is None and os.environ.get("CI") != "true", reason="needs mypy: pip install 'lanebus[check]'"
)
def test_blocks_of_pages_type_check(tmp_path: Path) -> None:
    """All pages are checked in one run: starting the checker takes most of its time."""
    for page, parts in PARTS.items():
        if parts:
            name = page.relative_to(ROOT).with_suffix("").as_posix().replace("/", "_").replace("-", "_")
            (tmp_path / f"{name}.py").write_text(as_module(page, parts), encoding="utf-8")
    for page, program in PROGRAMS:
        (tmp_path / f"program_{page.stem.replace('-', '_')}_{program.line}.py").write_text(
            program.code, encoding="utf-8"
        )
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_python_block_is_found() -> None:
    assert len(PARTS[README]) == 1
    assert len(PROGRAMS) >= 1
