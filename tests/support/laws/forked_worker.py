"""Processes that are there at once, to be killed and paused: forked from one that has imported all.

python -m tests.support.laws.forked_worker     does what each line of stdin says, answers with a number

    {"do": "work", "url": …, "history": …, "name": …, "mutant": …, "gate": …, "gated": …} forks a worker; its pid
    {"do": "turns", "url": …, "history": …, "scenario": …, "session": …, "at": …}    forks one that works a session off,
                                                             under the lease of OWNER, and kills itself at its await
                                                             number `at`; its pid
    {"do": "wait", "pid": …}                                 how a process ended, as `waitpid` says it

What a fork complains of goes to a file beside its history.
It ends with its stdin, and all others with it: they are one process group.
"""

import asyncio
import gc
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import anyio

from lanebus import Bus
from lanebus.agent import FunctionTool, RunBounds, WorkerBounds
from lanebus.bus import Consumer, Work
from lanebus.bus.messages import Publishable
from lanebus.bus.publishing.outbox import PUBLISH
from lanebus.bus.wire import Receipt
from lanebus.handlers.agent import Agent, Run, Worker
from lanebus.handlers.agent.worker.services import Heartbeat
from tests.support.laws.await_scenarios import SCENARIOS, work_off
from tests.support.laws.cancelling import counted
from tests.support.laws.history import Gate, History, recording_agent
from tests.support.laws.tiny import LAW_TINY, RUN_TINY, WORKER_TINY

_CHECK = "if plan.epoch and plan.epoch ~= tonumber(epoch) then return 'f' .. epoch end"


def _nothing() -> None:
    """Plant no fault."""


def _no_heed() -> None:
    """Let a worker not check its lease, also not by its own clock."""

    async def run(self: Heartbeat) -> None:
        await anyio.sleep_forever()

    Heartbeat.run = run  # type: ignore[method-assign]  # a fault


def _no_fence() -> None:
    """Let the server not check the epoch."""
    _no_heed()
    assert _CHECK in PUBLISH.text
    PUBLISH.text = PUBLISH.text.replace(_CHECK, "")


def _no_epoch_no_key() -> None:
    """Append without the lease's epoch and without the step's key."""
    _no_heed()

    async def publish(self: Run, *messages: Publishable, key: str | None = None) -> Receipt:
        return await self.session.publish(*messages, wake=False)

    async def publish_at(self: Run, build: Callable[[int], Sequence[Publishable]], *, key: str) -> Receipt:
        return await self.session.publish(*build((await self.session.head()).position + 1), wake=False)

    Run.publish, Run.publish_at = publish, publish_at  # type: ignore[method-assign]  # a fault


def _acks_first() -> None:
    """Acknowledge work when it is fetched."""
    take = Consumer.fetch

    async def acked(self: Consumer, free: int) -> list[Work]:
        works = await take(self, free)
        await self.ack(*works)
        return works

    Consumer.fetch = acked  # type: ignore[method-assign]  # a fault


def _charges_again() -> None:
    """Let a tool that must not run twice claim that it may."""
    make = FunctionTool.__init__

    def made(self: FunctionTool, function: Callable[..., object], **options: object) -> None:
        make(self, function, **{**options, "idempotent": True})  # type: ignore[arg-type]  # a fault

    FunctionTool.__init__ = made  # type: ignore[method-assign]  # a fault


MUTANTS: dict[str, Callable[[], None]] = {
    "": _nothing,
    "no heed": _no_heed,
    "no fence": _no_fence,
    "no epoch, no key": _no_epoch_no_key,
    "acks first": _acks_first,
    "charges again": _charges_again,
}
"""name → function that plants the fault"""


HEARTBEAT = 0.4
"""seconds after which a silent worker's sessions are taken over"""


@dataclass(frozen=True, slots=True)
class Order:
    """A line of stdin."""

    do: Literal["work", "turns", "wait"]
    url: str = ""
    history: str = ""
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
        agent = recording_agent(History(Path(order.history)), gate=gate)
        if order.agent:
            agent = _Named(order.agent, agent)
        bounds = WORKER_TINY if order.is_tiny else WorkerBounds()
        await Worker(bus, agent, name=order.name, concurrency=1, heartbeat=HEARTBEAT, bounds=bounds).run()


async def _turns(order: Order) -> None:
    scenario = SCENARIOS[order.scenario]

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    bounds = RUN_TINY if order.is_tiny else RunBounds()
    async with _open(order) as bus:
        session = bus.session(order.session)
        await session.head()  # connects
        await counted(work_off(session, scenario, History(Path(order.history)), bounds=bounds), at=order.at, strike=die)
        os._exit(0)


def _fork(body: Callable[[Order], Coroutine[object, None, None]], order: Order) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(os.open(Path(order.history).with_suffix(".log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), 2)
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
