"""A directory of a test's own whose path is short: a unix socket's path may not be long, and pytest's are."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from lanebus.bus.embedded.server import stop_server

__all__ = ("short_dir",)


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """Gone afterwards, after the embedded server that a test may have left in it."""
    directory = Path(tempfile.mkdtemp(prefix="lanebus-")).resolve()
    yield directory
    anyio.run(stop_server, directory)
    shutil.rmtree(directory)
