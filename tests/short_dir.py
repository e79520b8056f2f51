"""A directory of a test's own whose path is short: a unix socket's path may not be long, and pytest's are."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from bus.server import stop_server

__all__ = ("short_dir",)


@pytest_asyncio.fixture
async def short_dir() -> AsyncIterator[Path]:
    """Gone afterwards, after the embedded server that a test may have left in it."""
    directory = Path(os.path.realpath(tempfile.mkdtemp(prefix="lanebus-")))
    yield directory
    await stop_server(directory)
    shutil.rmtree(directory)
