"""Starts programs without importing their modules again: it forks from a process that has imported them.

async def test_x(starter: Starter):
    with starter.running("tests.support.agent.agent_process", server.url) as process: ...
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import TextIOWrapper
from threading import Lock, Thread
from typing import Self

from tests.support.cli.starter_process import NUMBER, Request
from tests.support.paths import ROOT


@dataclass
class Started:
    """A process, with the part of `subprocess.Popen` that tests need. Leaving its block kills it."""

    pid: int
    stdin: TextIOWrapper | None
    stdout: TextIOWrapper | None
    stderr: TextIOWrapper | None
    returncode: int | None = None
    """exit code once it was waited for; a negative number is the signal that ended it"""
    _status: socket.socket = field(kw_only=True)
    _lock: Lock = field(default_factory=Lock, kw_only=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.wait()
        self._status.close()
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    @property
    def out(self) -> TextIOWrapper:
        """`stdout`, of a process with pipes."""
        assert self.stdout is not None
        return self.stdout

    @property
    def err(self) -> TextIOWrapper:
        """`stderr`, of a process with pipes."""
        assert self.stderr is not None
        return self.stderr

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process has ended. Return its exit code.

        Raises:
            TimeoutError: the process still runs.
        """
        with self._lock:
            if self.returncode is None:
                self._status.settimeout(timeout)
                self.returncode = _number(self._status)
            return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal. The process id is not reused before the block ends."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, data: bytes = b"", timeout: float | None = None) -> tuple[str, str]:
        """Write `data`, read both streams to their end and wait for the process."""
        said = {1: "", 2: ""}

        def read(number: int, stream: TextIOWrapper) -> None:
            said[number] = stream.read()

        pairs = [(number, stream) for number, stream in ((1, self.stdout), (2, self.stderr)) if stream is not None]
        readers = [Thread(target=read, args=pair) for pair in pairs]
        for reader in readers:
            reader.start()
        if self.stdin is not None:
            with suppress(BrokenPipeError):
                self.stdin.buffer.write(data)
                self.stdin.close()
        self.wait(timeout)
        for reader in readers:
            reader.join()
        return said[1], said[2]


COMMAND_LINE = "lanebus.handlers.cli"
"""the module of the command line"""


class Starter:
    """Starts the command line and other programs: modules with a `main` that reads `sys.argv`."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._lock = Lock()

    @contextmanager
    def running(self, program: str, *arguments: str) -> Generator[Started]:
        """Start a program with the tests' environment. The end of the block kills it and prints its stderr."""
        with self.start(arguments, os.environ, program) as process:
            try:
                yield process
            finally:
                process.kill()
                process.wait()
                assert process.stderr is not None
                sys.stderr.write(process.stderr.read())

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], program: str = COMMAND_LINE) -> Started:
        """Start a program with pipes for its streams."""
        (reads, stdin), (stdout, writes), (stderr, tells) = os.pipe(), os.pipe(), os.pipe()
        pid, status = self._start(program, arguments, environment, (reads, writes, tells), is_session=False)
        for descriptor in (reads, writes, tells):
            os.close(descriptor)
        return Started(
            pid,
            open(stdin, "w", encoding="utf-8"),  # closed by the block of the process
            open(stdout, encoding="utf-8"),
            open(stderr, encoding="utf-8"),
            _status=status,
        )

    def start_at(self, terminal: int, arguments: Sequence[str], environment: Mapping[str, str]) -> Started:
        """Start a command in its own process session, with a terminal for its streams. The caller closes `terminal`."""
        pid, status = self._start(COMMAND_LINE, arguments, environment, (terminal, terminal, terminal), is_session=True)
        return Started(pid, None, None, None, _status=status)

    def _start(
        self,
        program: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        streams: tuple[int, int, int],
        *,
        is_session: bool,
    ) -> tuple[int, socket.socket]:
        request: Request = {
            "program": program,
            "arguments": [*arguments],
            "environment": {**environment},
            "is_session": is_session,
        }
        text = json.dumps(request).encode()
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            socket.send_fds(self._control, [NUMBER.pack(len(text))], [*streams, theirs.fileno()])
            self._control.sendall(text)
        return _number(ours), ours


@contextmanager
def starting(environment: Mapping[str, str]) -> Generator[Starter]:
    """Run a starter during the block. Processes that it started are killed with it."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-W", "error", "-m", "tests.support.cli.starter_process", str(theirs.fileno())]
    with ours:
        with theirs:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd=ROOT,
                env=environment,
                pass_fds=[theirs.fileno()],
            )
        try:
            yield Starter(ours)
        finally:
            ours.close()
            process.wait()


def _number(status: socket.socket) -> int:
    """Return the next number from the starter.

    Raises:
        EOFError: the starter has ended.
    """
    data = b""
    while len(data) < NUMBER.size:
        if not (more := status.recv(NUMBER.size - len(data))):
            raise EOFError("the process that starts commands has ended")
        data += more
    return int(NUMBER.unpack(data)[0])
