"""The code blocks, links and paths of the README and the documentation are right, and the examples run."""

import os
import re
import subprocess
import sys
import textwrap
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

PARTS = {
    page: [
        block for block in blocks(page) if block.language == "python" and block.reason is None and not block.is_program
    ]
    for page in PAGES
}
PROGRAMS = [(page, block) for page in PAGES for block in blocks(page) if block.is_program]
assert PROGRAMS
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


# --- examples --------------------------------------------------------------------------------------------------------

EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))
MARKED = [pytest.param(path, id=path.stem, marks=marks_of([path.read_text("utf-8")])) for path in EXAMPLES]


def promised(example: Path) -> str:
    """Return the output in the example's docstring: the text after "prints"."""
    docstring = example.read_text(encoding="utf-8").split('"""')[1]
    return textwrap.dedent(docstring.split("\nprints\n")[1]).strip()


@pytest.mark.full
@pytest.mark.parametrize("example", MARKED)
def test_an_example_prints_what_it_says(example: Path, short_dir: Path) -> None:
    environment = {**os.environ, "LANEBUS_DATA_DIR": str(short_dir), "PYTHONPATH": str(ROOT)}
    environment.pop("LANEBUS_URL", None)
    run = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, env=environment, timeout=120, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.strip() == promised(example)


def test_each_example_is_short_has_a_number_and_names_its_own_command() -> None:
    numbers = [path.stem[:2] for path in EXAMPLES]
    assert numbers[:12] == [f"{number:02}" for number in range(1, 13)]
    assert len(set(numbers)) == len(numbers)
    for example in EXAMPLES:
        text = example.read_text(encoding="utf-8")
        assert f"python examples/{example.name}" in text
        assert len(text.splitlines()) < 65


# --- links -----------------------------------------------------------------------------------------------------------

LINKED = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").glob("*.md")])
_LINK = re.compile(r"(?:\]\(|^\[[\w.]+\]: )(?![a-z]+:)(?P<path>[^)#\s]*)(?:#(?P<anchor>[^)\s]+))?", re.MULTILINE)
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def links_of(page: Path) -> list[tuple[str, str]]:
    """Return the path and the anchor of each link to a file of the repository. Either may be ""."""
    text = _CODE.sub("", page.read_text(encoding="utf-8"))
    return [(found["path"], found["anchor"] or "") for found in _LINK.finditer(text)]


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as code hosts and the site make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


assert ("docs/tutorial.md", "") in links_of(ROOT / "README.md")


@pytest.mark.parametrize("page", LINKED, ids=name_of)
def test_each_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    dead = list[str]()
    for path, anchor in links_of(page):
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors_of(target)):
            dead.append(f"{path}#{anchor}")
    assert dead == []


# --- paths and names in ARCHITECTURE.md and docs/contributing.md -----------------------------------------------------

ARCHITECTURE = ROOT / "ARCHITECTURE.md"
CONTRIBUTING = ROOT / "docs" / "contributing.md"
TEXT = CONTRIBUTING.read_text()
_PATH = re.compile(r"`((?:bench|bus|clients|docs|examples|handlers|lanebus|tests|\.ci)/(?:[\w./-]*\w)?/?)`")


def paths_in(page: Path) -> list[str]:
    """Return the paths of files and folders that a page names."""
    return sorted({*_PATH.findall(page.read_text())})


PATHS = paths_in(CONTRIBUTING)


def test_each_path_of_the_text_is_there() -> None:
    found = paths_in(ARCHITECTURE)
    assert (len(found) > 50, len(PATHS) > 30) == (True, True)
    assert [path for path in {*found, *PATHS} if not (ROOT / path).exists()] == []


def test_each_file_is_named_with_its_folder() -> None:
    """Otherwise the test above does not check it."""
    names = re.findall(r"`([\w./-]+\.(?:py|lua|js))`", ARCHITECTURE.read_text() + TEXT)
    assert [name for name in names if "/" not in name and name != "__init__.py"] == []


def test_the_architecture_is_one_page_that_names_every_package() -> None:
    text = ARCHITECTURE.read_text()
    packages = [path.parent for top in ("bus", "handlers") for path in (ROOT / top).glob("*/__init__.py")]
    assert [f"{path.relative_to(ROOT)}/" for path in packages if f"`{path.relative_to(ROOT)}/`" not in text] == []
    assert len(text.splitlines()) <= 110


def test_each_table_of_the_text_is_there() -> None:
    texts = [(ROOT / path).read_text() for path in PATHS if path.endswith(".py")]
    named = {*re.findall(r"`(_?[A-Z][A-Z_]+)`", TEXT)}
    assert [name for name in named if not any(re.search(rf"^{name}\b", text, re.MULTILINE) for text in texts)] == []
