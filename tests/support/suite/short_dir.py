"""A directory for one test with a path short enough for a unix socket; pytest's own paths are too long."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from lanebus.bus import stop_server

__all__ = ("short_dir",)


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """Yield a directory. Afterwards its embedded server is ended and the directory removed."""
    directory = Path(tempfile.mkdtemp(prefix="lanebus-")).resolve()
    yield directory
    anyio.run(stop_server, directory)
    shutil.rmtree(directory)
