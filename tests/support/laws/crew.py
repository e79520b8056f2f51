"""A few workers, each a process, that are killed and paused, and how often they were."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support.laws.clerk import MOMENT
from tests.support.laws.worker_process import Order
from tests.support.paths import ROOT
from tests.support.servers.real import RealServer

__all__ = ("Crew", "Hand", "crew_at")


@dataclass
class Hand:
    """One worker process."""

    name: str
    pid: int
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

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.is_alive = False


class Crew:
    """The workers of a server."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.hands: list[Hand] = []

    def start(self, name: str, *, mutant: str = "", moment: float = MOMENT) -> Hand:
        """A worker more. Its name may be that of one that was killed.

        Args:
            mutant: a fault to plant in it, one of `worker_mutants`.
            moment: how long its outside calls take.
        """
        hand = Hand(name, self._ask(Order("work", name=name, mutant=mutant, moment=moment)))
        self.hands.append(hand)
        return hand

    def start_turns(self, scenario: str, session: str, at: int, *, mutant: str = "") -> int:
        """A process that works a session of a scenario off and dies at its await number `at`; gives its pid."""
        return self._ask(Order("turns", scenario=scenario, session=session, at=at, mutant=mutant))

    def wait(self, pid: int) -> int:
        """Wait until a process is gone, and give its wait status."""
        return self._ask(Order("wait", pid=pid))

    def _ask(self, order: Order) -> int:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(asdict(order)) + "\n")
        stdin.flush()
        return int(stdout.readline())

    @property
    def alive(self) -> list[Hand]:
        """Those that were not killed."""
        return [hand for hand in self.hands if hand.is_alive]


@contextmanager
def crew_at(server: RealServer, book: Path) -> Generator[Crew, None, None]:
    """Nobody yet; none is left when the block is over. What they complain of goes to a file beside the book."""
    command = [sys.executable, "-m", "tests.support.laws.worker_process", server.url, str(book)]
    with (
        open(book.with_suffix(".log"), "wb") as complaints,
        subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield Crew(process)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
