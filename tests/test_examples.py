"""Each example runs with the command in its docstring and prints the output in its docstring."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.backends.frameworks import marks_of
from tests.support.paths import ROOT

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


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_names_its_own_command(example: Path) -> None:
    text = example.read_text(encoding="utf-8")
    assert f"python examples/{example.name}" in text
    assert len(text.splitlines()) < 65


def test_there_are_examples() -> None:
    numbers = [path.stem[:2] for path in EXAMPLES]
    assert numbers[:12] == [f"{number:02}" for number in range(1, 13)]
    assert len(set(numbers)) == len(numbers)
