"""The command line as its users have it: a process, on a data directory of its own, at a pipe or a terminal.

def test_x(lanebus: CommandLine): assert lanebus("sessions").code == 0
def test_y(lanebus: CommandLine): assert lanebus.anew("sessions").code == 0

The first forks from a process that has everything imported already, which takes a hundredth of the time of the second:
that one starts Python anew, as users do. `test_cli.py` does so with every command.
"""

import fcntl
import json
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from codecs import IncrementalDecoder, getincrementaldecoder
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from typing import cast

import anyio
import pytest
from pydantic import JsonValue

from lanebus.bus.embedded import keeper
from lanebus.bus.embedded.data_dir import DataDir
from lanebus.bus.embedded.server import server_status
from tests.support.cli.starter import Started, Starter, starting
from tests.support.paths import ROOT
from tests.support.servers.clusters import wait_until

__all__ = ("SECONDS", "Answer", "CommandLine", "Running", "Terminal", "lanebus", "objects", "starter", "unopened")

SECONDS = 120.0
"""for a machine under load: nothing here is a claim about speed"""

Running = Started


@dataclass(frozen=True)
class Answer:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def object(self) -> dict[str, JsonValue]:
        """The one line of JSON that it printed."""
        [only] = objects(self.out)
        return only


def objects(text: str) -> list[dict[str, JsonValue]]:
    """JSON, one object a line."""
    return [cast("dict[str, JsonValue]", json.loads(line)) for line in text.splitlines()]


@dataclass
class Terminal:
    """What a command says on a terminal while it goes on."""

    descriptor: int
    said: str = ""
    """all of it, as it was sent"""
    process: Started | None = None
    _decoder: IncrementalDecoder = field(default_factory=lambda: getincrementaldecoder("utf-8")("replace"))

    def resize(self, columns: int, lines: int) -> None:
        """Give the window another size."""
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read_until(self, text: str, *, after: int = 0) -> int:
        """Wait until a text was said behind a place; gives the place behind it."""
        deadline = time.monotonic() + SECONDS
        while (found := self.said.find(text, after)) < 0:
            assert time.monotonic() < deadline, self.said[-2000:]
            if not self._read():
                raise AssertionError(f"it ended without {text!r}: {self.said[-2000:]}")
        return found + len(text)

    def end(self, number: int) -> int:
        """Send a signal and wait until the command has ended; gives its code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait until the command has ended and all it said is read; gives its code."""
        assert self.process is not None
        while self._read():
            pass
        return self.process.wait(SECONDS)

    def _read(self) -> bool:
        if not select.select([self.descriptor], [], [], SECONDS)[0]:
            raise AssertionError(f"it says nothing: {self.said[-2000:]}")
        try:
            data = os.read(self.descriptor, 65536)
        except OSError:  # nobody is at the other end any more
            return False
        self.said += self._decoder.decode(data)
        return bool(data)


@dataclass
class CommandLine:
    """Runs `lanebus` with one data directory."""

    data_dir: Path
    starter: Starter

    def __call__(
        self, *arguments: str | Path, stdin: str | bytes = b"", env: Mapping[str, str] | None = None
    ) -> Answer:
        """Run a command to its end, its output in pipes."""
        with self.fed(*arguments, env=env) as process:
            out, err = process.communicate(stdin.encode() if isinstance(stdin, str) else stdin)
        return Answer(process.wait(), out, err)

    def anew(self, *arguments: str | Path, stdin: str | bytes = b"", env: Mapping[str, str] | None = None) -> Answer:
        """Do the same in a Python that is started for it; only such a one obeys variables like PYTHONIOENCODING."""
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "lanebus.handlers.cli", *map(str, arguments)],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            cwd=ROOT,
            env=self._environment(env),
            timeout=SECONDS,
            check=False,
        )
        return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())

    @contextmanager
    def running(self, *arguments: str | Path) -> Generator[Started]:
        """A command that goes on; it is killed at the end of the block if it still does."""
        with self.fed(*arguments) as process:
            assert process.stdin is not None
            process.stdin.close()
            process.stdin = None
            yield process

    @contextmanager
    def fed(self, *arguments: str | Path, env: Mapping[str, str] | None = None) -> Generator[Started]:
        """The same, with a stdin to write to."""
        with self.starter.start([*map(str, arguments)], self._environment(env)) as process:
            # Who waits for a line that never comes gets the end of the file instead, and fails rather than hangs.
            patience = Timer(SECONDS, process.kill)
            patience.start()
            try:
                yield process
            finally:
                patience.cancel()

    def at_terminal(self, *arguments: str | Path, columns: int = 80, typed: str = "") -> Answer:
        """Run a command to its end, with a terminal for all it says; `err` is in `out`, as a user sees it.

        Args:
            typed: what is typed before it asks for it.
        """
        with self.on_terminal(*arguments, columns=columns, typed=typed) as terminal:
            code = terminal.wait()
        return Answer(code, terminal.said.replace("\r\n", "\n"), "")

    @contextmanager
    def on_terminal(
        self,
        *arguments: str | Path,
        columns: int = 80,
        lines: int = 24,
        typed: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Generator[Terminal]:
        """A command that goes on, with a terminal of its own; it is killed at the end of the block if it still does."""
        ours, theirs = pty.openpty()
        terminal = Terminal(ours)
        terminal.resize(columns, lines)
        if typed:
            os.write(ours, typed.encode())
        try:
            environment = self._environment({"TERM": "xterm", **(env or {})})
            try:
                terminal.process = self.starter.start_at(theirs, [*map(str, arguments)], environment)
            finally:
                os.close(theirs)
            with terminal.process:
                yield terminal
        finally:
            os.close(ours)

    def wait_stopped(self) -> None:
        """Until the embedded server has ended, which it does by itself."""
        wait_until(lambda: not anyio.run(server_status, self.data_dir).running)

    def _environment(self, more: Mapping[str, str] | None) -> dict[str, str]:
        return {**_bare_environment(), "LANEBUS_DATA_DIR": str(self.data_dir), "TZ": "UTC", **(more or {})}


def _bare_environment() -> dict[str, str]:
    """Ours, without what changes how a command behaves."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in {"COLUMNS", "LINES"} and not name.startswith(("LANEBUS_", "PYTHON"))
    }


def pytest_configure() -> None:
    """Let Ctrl-C end the commands that tests start. A run in the background ignores it, and so would its children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def starter() -> Generator[Starter]:
    """The process that starts commands, for all tests."""
    with starting(_bare_environment()) as started:
        yield started


@pytest.fixture
def lanebus(unopened: CommandLine) -> Generator[CommandLine]:
    """The command line on a new data directory; its server runs from the first command to the end of the test."""
    place = DataDir.at(unopened.data_dir)
    place.prepare()
    openers = keeper.open_lock(str(place.path), keeper.OPENERS_LOCK)
    try:
        assert keeper.take(openers, fcntl.LOCK_SH)
        yield unopened
    finally:
        os.close(openers)


@pytest.fixture
def unopened(starter: Starter) -> Generator[CommandLine]:
    """The same where nobody holds the directory: its server runs as long as a command does. It is not even made yet."""
    # Not pytest's own directory: its path is too long for a socket in some places.
    parent = Path(tempfile.mkdtemp(prefix="lanebus-")).resolve()
    line = CommandLine(parent / "d", starter)
    try:
        yield line
        line.wait_stopped()
    finally:
        status = anyio.run(server_status, line.data_dir)
        for pid in (status.pid, status.keeper_pid):
            if pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        shutil.rmtree(parent)
