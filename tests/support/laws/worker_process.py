"""Processes that are there at once, to be killed and paused: forked from one that has imported all.

python -m tests.support.laws.worker_process     does what each line of stdin says, answers with a number

    {"do": "work", "url": …, "book": …, "name": …, "mutant": …, "gate": …, "gated": …} forks a worker; its pid
    {"do": "turns", "url": …, "book": …, "scenario": …, "session": …, "at": …}    forks one that works a session off,
                                                             under the lease of OWNER, and kills itself at its await
                                                             number `at`; its pid
    {"do": "wait", "pid": …}                                 how a process ended, as `waitpid` says it

What a fork complains of goes to a file beside its book.
It ends with its stdin, and all others with it: they are one process group.
"""

import asyncio
import gc
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lanebus import Bus
from lanebus.handlers.agent import Agent, Run, Worker
from lanebus.handlers.agent.bounds import DEFAULT_RUN_BOUNDS, DEFAULT_WORKER_BOUNDS
from tests.support.laws.await_scenarios import SCENARIOS
from tests.support.laws.cancelling import counted
from tests.support.laws.clerk import Book, Gate, clerk
from tests.support.laws.tiny import LAW_TINY, RUN_TINY, WORKER_TINY
from tests.support.laws.worker_mutants import MUTANTS
from tests.support.laws.working_off import work_off

__all__ = ("HEARTBEAT", "Order")

HEARTBEAT = 0.4
"""seconds after which a silent worker's sessions are taken over"""


@dataclass(frozen=True, slots=True)
class Order:
    """A line of stdin."""

    do: Literal["work", "turns", "wait"]
    url: str = ""
    book: str = ""
    name: str = ""
    mutant: str = ""
    gate: str = ""
    gated: str = ""
    scenario: str = ""
    session: str = ""
    at: int = 0
    pid: int = 0
    agent: str = ""
    """name of the agent that the worker serves; "" for the default agent"""
    is_tiny: bool = False
    """True gives its bus and its runs tiny bounds"""


class _Named:
    """An agent with a name."""

    def __init__(self, name: str, agent: Agent) -> None:
        self.name, self._agent = name, agent

    async def __call__(self, run: Run) -> None:
        await self._agent(run)


def _open(order: Order) -> AbstractAsyncContextManager[Bus]:
    return Bus.open(order.url, bounds=LAW_TINY if order.is_tiny else None)


async def _work(order: Order) -> None:
    async with _open(order) as bus:
        gate = Gate(order.gated, Path(order.gate)) if order.gated else None
        agent = clerk(Book(Path(order.book)), gate=gate)
        if order.agent:
            agent = _Named(order.agent, agent)
        bounds = WORKER_TINY if order.is_tiny else DEFAULT_WORKER_BOUNDS
        await Worker(bus, agent, name=order.name, concurrency=1, heartbeat=HEARTBEAT, bounds=bounds).run()


async def _turns(order: Order) -> None:
    scenario = SCENARIOS[order.scenario]

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    bounds = RUN_TINY if order.is_tiny else DEFAULT_RUN_BOUNDS
    async with _open(order) as bus:
        session = bus.session(order.session)
        await session.head()  # connects
        await counted(work_off(session, scenario, Book(Path(order.book)), bounds=bounds), at=order.at, strike=die)
        os._exit(0)


def _fork(body: Callable[[Order], Coroutine[object, None, None]], order: Order) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(os.open(Path(order.book).with_suffix(".log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), 2)
            MUTANTS[order.mutant]()
            asyncio.run(body(order))
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(1)
    return pid


def _do(order: Order) -> int:
    match order.do:
        case "work":
            return _fork(_work, order)
        case "turns":
            return _fork(_turns, order)
        case _:
            return os.waitpid(order.pid, 0)[1]


async def _open_once(url: str) -> None:
    """Import before the forks what a bus imports only when it is opened."""
    async with Bus.open(url) as bus:
        await bus.session("none").head()


def main() -> None:
    is_ready = False
    for line in sys.stdin:
        order = Order(**json.loads(line))
        if not is_ready:
            asyncio.run(_open_once(order.url))
            gc.freeze()  # otherwise each fork would copy the pages that its garbage collector visits
            is_ready = True
        print(_do(order), flush=True)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
