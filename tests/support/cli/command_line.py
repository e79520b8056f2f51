"""The command line as its users have it: a process of its own, on a data directory of its own, at a pipe or a terminal.

def test_x(lanebus: CommandLine): assert lanebus("sessions").code == 0
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
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import cast

import anyio
import pytest
from pydantic import JsonValue

from bus.server import server_status
from tests.support.paths import ROOT

__all__ = ("Answer", "CommandLine", "Running", "Terminal", "lanebus", "objects")

SECONDS = 60
"""for a machine under load: nothing here is a claim about speed"""

Running = subprocess.Popen[str]


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
    process: subprocess.Popen[bytes] | None = None

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
        self.said += data.decode(errors="replace")
        return bool(data)


@dataclass
class CommandLine:
    """Runs `lanebus` with one data directory."""

    data_dir: Path

    def __call__(
        self, *arguments: str | Path, stdin: str | bytes = b"", env: Mapping[str, str] | None = None
    ) -> Answer:
        """Run a command to its end, its output in pipes."""
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            self._command(*arguments),
            input=data,
            capture_output=True,
            cwd=ROOT,
            env=self._environment(env),
            timeout=SECONDS,
            check=False,
        )
        return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())

    @contextmanager
    def running(self, *arguments: str | Path) -> Generator[Running]:
        """A command that goes on; it is killed at the end of the block if it still does."""
        with self.fed(*arguments) as process:
            assert process.stdin is not None
            process.stdin.close()
            process.stdin = None
            yield process

    @contextmanager
    def fed(self, *arguments: str | Path) -> Generator[Running]:
        """The same, with a stdin to write to."""
        process = subprocess.Popen(
            self._command(*arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=self._environment(None),
            text=True,
        )
        # Who waits for a line that never comes gets the end of the file instead, and fails rather than hangs.
        patience = Timer(SECONDS, process.kill)
        patience.start()
        with process:
            try:
                yield process
            finally:
                patience.cancel()
                process.kill()

    def at_terminal(self, *arguments: str | Path, columns: int = 80, typed: str = "") -> Answer:
        """Run a command to its end, with a terminal for all it says; `err` is in `out`, as a user sees it.

        Args:
            typed: what is typed before it asks for it.
        """
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        said = bytearray()
        with subprocess.Popen(
            self._command(*arguments),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=ROOT,
            env=self._environment(None),
            start_new_session=True,
        ) as process:
            os.close(theirs)
            try:
                os.write(ours, typed.encode())
                # The terminal gives an error once nobody is at its other end.
                with suppress(OSError):
                    while data := os.read(ours, 65536):
                        said += data
                code = process.wait(SECONDS)
            finally:
                os.close(ours)
                process.kill()
        return Answer(code, said.decode().replace("\r\n", "\n"), "")

    @contextmanager
    def on_terminal(
        self, *arguments: str | Path, columns: int = 80, lines: int = 24, env: Mapping[str, str] | None = None
    ) -> Generator["Terminal"]:
        """A command that goes on, with a terminal of its own; it is killed at the end of the block if it still does."""
        ours, theirs = pty.openpty()
        terminal = Terminal(ours)
        terminal.resize(columns, lines)
        with subprocess.Popen(
            self._command(*arguments),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=ROOT,
            env=self._environment({"TERM": "xterm", **(env or {})}),
            start_new_session=True,
        ) as process:
            os.close(theirs)
            terminal.process = process
            try:
                yield terminal
            finally:
                process.kill()
                os.close(ours)

    def wait_stopped(self) -> None:
        """Until the embedded server has ended, which it does by itself."""
        deadline = time.monotonic() + SECONDS
        while (status := anyio.run(server_status, self.data_dir)).running:
            assert time.monotonic() < deadline, status

    def _command(self, *arguments: str | Path) -> list[str]:
        return [sys.executable, "-W", "error", "-m", "handlers.cli", *map(str, arguments)]

    def _environment(self, more: Mapping[str, str] | None) -> dict[str, str]:
        ours = ("LANEBUS_", "PYTHON")
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in {"COLUMNS", "LINES"} and not name.startswith(ours)
        }
        return {**kept, "LANEBUS_DATA_DIR": str(self.data_dir), "TZ": "UTC", **(more or {})}


@pytest.fixture
def lanebus() -> Generator[CommandLine]:
    """The command line on a new data directory; its server has ended when the test has."""
    # Not pytest's own directory: its path is too long for a socket in some places.
    parent = Path(tempfile.mkdtemp(prefix="lanebus-")).resolve()
    line = CommandLine(parent / "d")
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
