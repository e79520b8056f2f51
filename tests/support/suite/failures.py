"""Report failures when they happen, and end tests that hang.

Each failed test is printed at once, with its output and the command to repeat it, and appended to `test-failures.txt`
in the directory where pytest was started. So an interrupted run loses no failure.

Each phase of a test may take `LANEBUS_TEST_SECONDS`, by default 300. After that the process prints the stack of every
asyncio task and every thread, and exits. A run with several processes counts the test as failed and continues.
"""

import asyncio
import faulthandler
import gc
import io
import os
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.suite.scale import SCALE, SEED

__all__ = ("FILE",)

FILE = "test-failures.txt"
"""the name of the file; each run starts a new one"""

SECONDS = float(os.environ.get("LANEBUS_TEST_SECONDS", "300"))
"""seconds that one phase of a test may take; generous, even for a machine ten times slower"""

_stderr = pytest.StashKey[int]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.stash[_stderr] = os.dup(2)  # before pytest captures output, so that this is the real stderr
    if not hasattr(config, "workerinput"):  # with several processes, only the main one collects the reports
        config.pluginmanager.register(Failures(config, Path(config.invocation_params.dir) / FILE))


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[_stderr])
    del config.stash[_stderr]


class Failures:
    """Writes down each failure when it is reported."""

    def __init__(self, config: pytest.Config, path: Path) -> None:
        self._config, self._path = config, path
        path.unlink(missing_ok=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._write(report.nodeid, report.when or "", report.longreprtext, report.sections)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(report.nodeid, "collection", report.longreprtext, report.sections)

    def _write(self, test: str, phase: str, text: str, sections: list[tuple[str, str]]) -> None:
        lines = [f"FAILED {test} ({phase})", text, *(f"--- {name} ---\n{output}" for name, output in sections)]
        lines.append(f"Repeat it: LANEBUS_SEED={SEED} LANEBUS_SCALE={SCALE:g} python -m pytest {test!r}\n")
        whole = "\n".join(lines)
        with self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(whole + "\n")
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if isinstance(reporter, pytest.TerminalReporter):
            reporter.ensure_newline()
            reporter.write_line(whole, red=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    with _bound(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with _bound(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    with _bound(item):
        return (yield)


@contextmanager
def _bound(item: pytest.Item) -> Generator[None, None, None]:
    """End the process if the block takes too long: `_watch` prints the tasks, and a second later all threads follow."""
    if not _watch.is_alive():
        _watch.start()
    file = item.config.stash[_stderr]
    _watch.watched = _Watched(file, item.nodeid)
    faulthandler.dump_traceback_later(SECONDS + 1, file=file, exit=True)  # also if a thread never releases the GIL
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        _watch.watched = None


@dataclass(frozen=True, slots=True)
class _Watched:
    """A phase of a test."""

    file: int
    """file descriptor to print to"""
    test: str
    deadline: float = field(default_factory=lambda: time.monotonic() + SECONDS)


class _Watch(threading.Thread):
    """Prints the tasks of a phase that takes too long.

    One thread watches all phases: a timer for each would start 24,000 threads in a run of the suite.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.watched: _Watched | None = None

    def run(self) -> None:
        told: _Watched | None = None
        while True:
            watched, seconds = self.watched, SECONDS  # a phase that starts meanwhile gets the full time
            if watched is not None and watched is not told:
                seconds = watched.deadline - time.monotonic()
                if seconds <= 0:
                    _print_tasks(watched.file, watched.test)
                    told, seconds = watched, SECONDS
            time.sleep(seconds)


_watch = _Watch()


def _print_tasks(file: int, test: str) -> None:
    """Write the stacks of all tasks. They belong to event loops of other threads, which are about to end."""
    text = io.StringIO()
    print(f"\n{test}: no end after {SECONDS:g} s", file=text)
    for found in gc.get_objects():
        if isinstance(found, asyncio.Task) and not found.done():
            found.print_stack(file=text)
    os.write(file, text.getvalue().encode(errors="backslashreplace"))
