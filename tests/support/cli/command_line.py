"""The command line as a process, with its own data directory, and with pipes or a terminal.

def test_x(lanebus: CommandLine): assert lanebus("sessions").code == 0
def test_y(lanebus: CommandLine): assert lanebus.anew("sessions").code == 0

The first form forks from a process that has imported everything. It takes a hundredth of the time of the second form,
which starts a new Python as users do. `test_command_line.py` runs every command in the second form.
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

from lanebus.bus import DataDir, server_status
from lanebus.bus.embedded import keeper
from lanebus.handlers.cli.access import WAITING
from tests.support.cli.starter import Started, Starter, starting
from tests.support.paths import ROOT
from tests.support.servers.clusters import wait_until

SECONDS = 120.0
"""seconds; generous, for a machine under load"""

Running = Started


@dataclass(frozen=True)
class Answer:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def object(self) -> dict[str, JsonValue]:
        """The only line of JSON that it printed."""
        [only] = objects(self.out)
        return only


def complete(lanebus: "CommandLine", *words: str) -> list[str]:
    """Return what bash is offered for the last word. Asks again if it is nothing: a slow answer completes nothing."""
    environment = {
        "_LANEBUS_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": f"{len(words) - 1}",
    }
    for _ in range(5):
        answer = lanebus(env=environment)
        assert (answer.code, answer.err) == (0, "")
        if answer.out:
            return [line.partition(",")[2] for line in answer.out.split()]
    return []


def without_hint(errors: str) -> str:
    """Return a command's stderr without the notice that the embedded server starts slowly, as on a busy machine."""
    return errors.replace(f"{WAITING}\n", "")


def objects(text: str) -> list[dict[str, JsonValue]]:
    """Parse one JSON object from each line."""
    return [cast("dict[str, JsonValue]", json.loads(line)) for line in text.splitlines()]


@dataclass
class Terminal:
    """The output of a command that still runs on a terminal."""

    descriptor: int
    said: str = ""
    """the whole output as it was sent"""
    process: Started | None = None
    _decoder: IncrementalDecoder = field(default_factory=lambda: getincrementaldecoder("utf-8")("replace"))

    def resize(self, columns: int, lines: int) -> None:
        """Change the size of the window."""
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read_until(self, text: str, *, after: int = 0) -> int:
        """Wait until the output contains `text` after index `after`. Return the index of its end."""
        deadline = time.monotonic() + SECONDS
        while (found := self.said.find(text, after)) < 0:
            assert time.monotonic() < deadline, self.said[-2000:]
            if not self._read():
                raise AssertionError(f"it ended without {text!r}: {self.said[-2000:]}")
        return found + len(text)

    def end(self, number: int) -> int:
        """Send a signal, wait until the command has ended, and return its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait until the command has ended and its output is read. Return its exit code."""
        assert self.process is not None
        while self._read():
            pass
        return self.process.wait(SECONDS)

    def _read(self) -> bool:
        if not select.select([self.descriptor], [], [], SECONDS)[0]:
            raise AssertionError(f"it says nothing: {self.said[-2000:]}")
        try:
            data = os.read(self.descriptor, 65536)
        except OSError:  # the other end is closed
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
        """Run a command to its end, with its output in pipes."""
        with self.fed(*arguments, env=env) as process:
            out, err = process.communicate(stdin.encode() if isinstance(stdin, str) else stdin)
        return Answer(process.wait(), out, without_hint(err))

    def anew(self, *arguments: str | Path, stdin: str | bytes = b"", env: Mapping[str, str] | None = None) -> Answer:
        """Run a command in a new Python. Only this form obeys variables such as PYTHONIOENCODING."""
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "lanebus.handlers.cli", *map(str, arguments)],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            cwd=ROOT,
            env=self._environment(env),
            timeout=SECONDS,
            check=False,
        )
        return Answer(done.returncode, done.stdout.decode(), without_hint(done.stderr.decode()))

    @contextmanager
    def running(self, *arguments: str | Path) -> Generator[Started]:
        """Start a command. It is killed at the end of the block if it still runs."""
        with self.fed(*arguments) as process:
            assert process.stdin is not None
            process.stdin.close()
            process.stdin = None
            yield process

    @contextmanager
    def fed(self, *arguments: str | Path, env: Mapping[str, str] | None = None) -> Generator[Started]:
        """Start a command as `running` does, with a stdin to write to."""
        with self.starter.start([*map(str, arguments)], self._environment(env)) as process:
            # A test that waits for a line that never arrives gets the end of the file, and fails instead of hanging.
            patience = Timer(SECONDS, process.kill)
            patience.start()
            try:
                yield process
            finally:
                patience.cancel()

    def at_terminal(self, *arguments: str | Path, columns: int = 80, typed: str = "") -> Answer:
        """Run a command to its end on a terminal. Its stderr is part of `out`, as a user sees it.

        Args:
            arguments: of the command.
            columns: width of the terminal.
            typed: input that is typed before the command asks for it.
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
        """Start a command on its own terminal. It is killed at the end of the block if it still runs."""
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
        """Wait until the embedded server has ended by itself."""
        wait_until(lambda: not anyio.run(server_status, self.data_dir).running)

    def _environment(self, more: Mapping[str, str] | None) -> dict[str, str]:
        own = {"LANEBUS_DATA_DIR": str(self.data_dir), "XDG_STATE_HOME": str(self.state_home), "TZ": "UTC"}
        return {**_bare_environment(), **own, **(more or {})}

    @property
    def state_home(self) -> Path:
        """Where the commands keep which logs they have seen. It is removed with the data directory."""
        return self.data_dir.parent / "state"


def _bare_environment() -> dict[str, str]:
    """Return our environment without the variables that change how a command behaves."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in {"COLUMNS", "LINES"} and not name.startswith(("LANEBUS_", "PYTHON"))
    }


def pytest_configure() -> None:
    """Let Ctrl-C end the commands that tests start. A background run ignores it, which children inherit."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def starter() -> Generator[Starter]:
    """The process that starts commands, for all tests."""
    with starting(_bare_environment()) as started:
        yield started


@pytest.fixture
def lanebus(unopened: CommandLine) -> Generator[CommandLine]:
    """The command line on a new data directory. Its server runs from the first command to the end of the test."""
    with _held_open(unopened):
        yield unopened


@pytest.fixture(scope="module")
def module_lanebus(starter: Starter) -> Generator[CommandLine]:
    """The same for all tests of a module."""
    with _new_line(starter) as line, _held_open(line):
        yield line


@pytest.fixture
def unopened(starter: Starter) -> Generator[CommandLine]:
    """The command line on a data directory that does not exist yet. Its server runs only as long as a command does."""
    with _new_line(starter) as line:
        yield line


@contextmanager
def _held_open(line: CommandLine) -> Generator[None]:
    place = DataDir.at(line.data_dir)
    place.prepare()
    openers = keeper.open_lock(str(place.path), keeper.OPENERS_LOCK)
    try:
        assert keeper.take(openers, fcntl.LOCK_SH)
        yield
    finally:
        os.close(openers)


@contextmanager
def _new_line(starter: Starter) -> Generator[CommandLine]:
    # Not pytest's own directory: on some systems its path is too long for a socket.
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
