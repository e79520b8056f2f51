"""Run a script in Node beside the installed packages.

@pytest.mark.needs("referees")
async def test_x(referees: Path):
    said = await run_node(referees, Path(__file__).parent / "client.mjs", url)
"""

import os
import sys
from pathlib import Path

import anyio
import pytest

from tests.support.suite.needs import find

NODE = Path(sys.prefix) / "bin/node"


@pytest.fixture
def referees() -> Path:
    """The folder whose `node_modules` holds the clients of other projects."""
    path = find("referees")
    assert path is not None
    return path


async def run_node(referees: Path, script: Path, *arguments: str, seconds: float = 120) -> str:
    """Run a script as a module that may import the installed packages. Return what it printed.

    Args:
        referees: the folder of the fixture.
        script: the script. It runs as a copy beside `node_modules`, so it imports packages by name.
        arguments: what the script finds in `process.argv` from 2 on.
        seconds: longest run; the script is killed then.

    Raises:
        AssertionError: it failed; the text is what it wrote.
    """
    copy = _copied(script, referees)
    try:
        with anyio.fail_after(seconds):
            done = await anyio.run_process([str(NODE), str(copy), *arguments], check=False)
    finally:
        await anyio.Path(copy).unlink(missing_ok=True)
    assert done.returncode == 0, f"{script.name}: {done.stderr.decode()}\n{done.stdout.decode()}"
    return done.stdout.decode()


def _copied(script: Path, folder: Path) -> Path:
    copy = folder / f"{script.stem}-{os.getpid()}-{script.stat().st_mtime_ns}.mjs"
    copy.write_bytes(script.read_bytes())
    return copy
