"""A few workers, each a process, that are killed and paused, and how often they were."""

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

from tests.support.laws.tiny import is_tiny
from tests.support.laws.worker_process import Order
from tests.support.paths import ROOT
from tests.support.servers.real import RealServer

__all__ = ("Crew", "Forks", "Hand", "crew_at", "forks")


@dataclass
class Hand:
    """One worker process."""

    name: str
    pid: int
    gate: Path
    is_paused: bool = False
    is_alive: bool = True

    def pause(self) -> None:
        """SIGSTOP: it is there and does nothing."""
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
    """A process that has imported all that workers need, and forks them: an import costs more CPU than a short test."""

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
    """One for all tests of this process. It and all it has forked are one process group, and end together."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.laws.worker_process"],
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


class Crew:
    """The workers of a server."""

    def __init__(self, forks: Forks, server: RealServer, book: Path) -> None:
        self._forks, self._server, self._book = forks, server, str(book)
        self._pids: set[int] = set()
        """of those that were not waited for"""
        self.hands: list[Hand] = []

    def start(self, name: str, *, mutant: str = "", gated: str = "") -> Hand:
        """A worker more, every second one with tiny bounds if the server is tiny. Its name may be of a killed one.

        Args:
            mutant: a fault to plant in it, one of `worker_mutants`.
            gated: the kind of its outside calls that last until `Hand.open_gate`.
        """
        gate = Path(f"{self._book}.gate.{len(self.hands)}")
        order = Order(
            "work",
            self._server.url,
            self._book,
            name=name,
            mutant=mutant,
            gate=str(gate),
            gated=gated,
            is_tiny=self._server.bounds is not None and is_tiny(len(self.hands)),
        )
        self.hands.append(Hand(name, self._fork(order), gate))
        return self.hands[-1]

    def start_turns(self, scenario: str, session: str, at: int) -> int:
        """A process that works a session of a scenario off and dies at its await number `at`; gives its pid."""
        order = Order("turns", self._server.url, self._book, scenario=scenario, session=session, at=at)
        return self._fork(replace(order, is_tiny=self._server.bounds is not None))

    def wait(self, pid: int) -> int:
        """Wait until a process is gone, and give its wait status."""
        self._pids.remove(pid)
        return self._forks.ask(Order("wait", pid=pid))

    def complaints(self) -> str:
        """Return what the processes wrote to stderr."""
        path = Path(self._book).with_suffix(".log")
        return path.read_text() if path.exists() else ""

    def end(self) -> None:
        """Kill those that are left, and wait until they are gone."""
        for pid in list(self._pids):
            os.kill(pid, signal.SIGKILL)  # a process that has ended keeps its pid until it is waited for
            self.wait(pid)

    def _fork(self, order: Order) -> int:
        pid = self._forks.ask(order)
        self._pids.add(pid)
        return pid

    @property
    def alive(self) -> list[Hand]:
        """Those that were not killed."""
        return [hand for hand in self.hands if hand.is_alive]


@contextmanager
def crew_at(forks: Forks, server: RealServer, book: Path) -> Generator[Crew, None, None]:
    """Nobody yet; none is left when the block is over. What they complain of goes to a file beside the book."""
    crew = Crew(forks, server, book)
    try:
        yield crew
    finally:
        crew.end()
