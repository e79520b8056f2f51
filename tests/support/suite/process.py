"""Settings of each test process: compiled modules, one certificate authority, the event loop, garbage, and the order.

- Modules stay compiled, even if PYTHONDONTWRITEBYTECODE is set. Otherwise every test process compiles all test modules,
  and each of the several hundred processes that tests start compiles `bus` and `handlers` again.
- Clients trust only one certificate authority, whose key was deleted. Each HTTP client would load the system's 140,
  which takes up to a tenth of a second.
- `LANEBUS_LOOP` names the event loop: uvloop, or by default that of asyncio. `make uvloop` runs the contract on it.
- Garbage is collected after each file of tests, and rarely in between: visiting what was imported and collected takes a
  tenth of the suite's CPU time. What a test left open in a cycle is reported at the end of its file at the latest.
- Tests in a browser all start in one process, so that only one browser is started.
"""

import asyncio
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from importlib import import_module
from pathlib import Path

import anyio
import pytest

__all__ = ("short_dir",)

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("authority.pem"))  # child processes inherit it
gc.disable()  # until all tests are collected

LOOP = os.environ.get("LANEBUS_LOOP", "")

if LOOP:

    @pytest.hookimpl
    def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
        """Return the one way to make a loop."""
        return {LOOP: import_module(LOOP).new_event_loop}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Enable garbage collection, also in the process that only directs the others, and where the collection fails."""
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 50, 100)
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def look_for_garbage() -> Iterator[None]:
    """Report with the last test of a file what its tests left open."""
    yield
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before pytest collects garbage and reports it
def pytest_unconfigure() -> None:
    gc.unfreeze()


@pytest.hookimpl(trylast=True)  # after tests were deselected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests in a browser at the start of the last process's share.

    A run with several processes first gives each an equal, contiguous share. Later, idle processes take tests from the
    ends of other shares.
    """
    workers: dict[str, int] = getattr(config, "workerinput", {})
    processes = workers.get("workercount", 1)
    browser = [item for item in items if item.get_closest_marker("browser")]
    others = [item for item in items if not item.get_closest_marker("browser")]
    before = min(len(items) * (processes - 1) // processes, len(others))
    items[:] = [*others[:before], *browser, *others[before:]]


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """Yield a directory whose path is short enough for a unix socket; pytest's own paths are too long.

    Afterwards its embedded server is ended and the directory removed.
    """
    from lanebus.bus import stop_server

    directory = Path(tempfile.mkdtemp(prefix="lanebus-")).resolve()
    yield directory
    anyio.run(stop_server, directory)
    shutil.rmtree(directory)
