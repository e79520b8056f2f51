"""Worker processes that tests kill and pause, and counts of these strikes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest

from lanebus import Bus
from tests.support.agent.agents import until
from tests.support.laws.forked_worker import Order
from tests.support.laws.tiny import is_tiny
from tests.support.paths import ROOT
from tests.support.servers.real import RealServer


@dataclass
class WorkerProcess:
    """One worker process."""

    name: str
    pid: int
    gate: Path
    is_paused: bool = False
    is_alive: bool = True

    def pause(self) -> None:
        """Send SIGSTOP: the process exists but does nothing."""
        os.kill(self.pid, signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        if self.is_alive:
            os.kill(self.pid, signal.SIGCONT)
        self.is_paused = False

    def open_gate(self) -> None:
        """Let its outside calls end."""
        self.gate.touch()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.is_alive = False


class Forks:
    """A process that has imported all that workers need, and forks them. An import costs more CPU than a short test."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, order: Order) -> int:
        """Send an order and return the answer."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(asdict(order)) + "\n")
        stdin.flush()
        return int(stdout.readline())


@pytest.fixture(scope="session")
def forks() -> Generator[Forks, None, None]:
    """The process that all tests of this process share. It and its forks are one process group and end together."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.laws.forked_worker"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield Forks(process)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


class Workers:
    """The workers of a server."""

    def __init__(self, forks: Forks, server: RealServer, history: Path) -> None:
        self._forks, self._server, self._history = forks, server, str(history)
        self._pids: set[int] = set()
        """process ids not yet waited for"""
        self.started: list[WorkerProcess] = []

    def start(self, name: str, *, mutant: str = "", gated: str = "", agent: str = "") -> WorkerProcess:
        """Start a worker. If the server is tiny, every second worker has tiny bounds.

        `mutant` is a fault of `forked_worker.MUTANTS`. Outside calls of the kind `gated` last until `open_gate`.
        """
        gate = Path(f"{self._history}.gate.{len(self.started)}")
        order = Order(
            "work",
            self._server.url,
            self._history,
            name=name,
            mutant=mutant,
            gate=str(gate),
            gated=gated,
            agent=agent,
            is_tiny=self._server.bounds is not None and is_tiny(len(self.started)),
        )
        self.started.append(WorkerProcess(name, self._fork(order), gate))
        return self.started[-1]

    def start_turns(self, scenario: str, session: str, at: int) -> int:
        """Start a process that works on a scenario's session and dies at its await number `at`. Return its id."""
        order = Order("turns", self._server.url, self._history, scenario=scenario, session=session, at=at)
        return self._fork(replace(order, is_tiny=self._server.bounds is not None))

    def wait(self, pid: int) -> int:
        """Wait until a process has ended. Return its wait status."""
        self._pids.remove(pid)
        return self._forks.ask(Order("wait", pid=pid))

    def complaints(self) -> str:
        """Return what the processes wrote to stderr."""
        path = Path(self._history).with_suffix(".log")
        return path.read_text() if path.exists() else ""

    def end(self) -> None:
        """Kill the remaining processes and wait until they have ended."""
        for pid in list(self._pids):
            os.kill(pid, signal.SIGKILL)  # an ended process keeps its id until it is waited for
            self.wait(pid)

    def _fork(self, order: Order) -> int:
        pid = self._forks.ask(order)
        self._pids.add(pid)
        return pid

    @property
    def alive(self) -> list[WorkerProcess]:
        """The workers that were not killed."""
        return [worker for worker in self.started if worker.is_alive]


@contextmanager
def workers_on(forks: Forks, server: RealServer, history: Path) -> Generator[Workers, None, None]:
    """Yield the workers of a server, none at first. All end with the block. Their stderr goes next to the history."""
    workers = Workers(forks, server, history)
    try:
        yield workers
    finally:
        workers.end()


async def settled(bus: Bus, group: str = "agents") -> None:
    """Wait until a group has no waiting, pending or delayed work."""

    async def is_settled() -> bool:
        status = await bus.group_status(group)
        return (status.lag, status.pending, status.retries) == (0, 0, 0)

    await until(is_settled)
