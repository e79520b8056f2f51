"""What workers do: how soon a turn starts, how many a second, what a dead one costs, and what an idle one does."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from os import sysconf
from pathlib import Path
from statistics import median
from typing import IO, cast

import anyio

from bench.following import Figure
from bench.instant import CONCURRENCY, SESSIONS, InstantModel
from bench.plain import Plain
from bench.rounds import ROUNDS, Compared, compare, spread
from lanebus import Bus, LlmMessage, UserMessage
from lanebus.agent import AgentLoop, Worker

__all__ = ("dead_worker", "idle_worker", "turn_start", "turns_a_second")

HAND_OVERS = 200
"""in each round"""

PAUSE_SECONDS = 0.01
"""between two of them: whoever was given the last one waits for the next by then, and has finished its turn"""

HEARTBEAT = 2.0
IDLE_SECONDS = 20.0

_ROOT = Path(__file__).resolve().parent.parent
_QUESTION = UserMessage.text("hello?")


async def turn_start(bus: Bus, plain: Plain, messages: Sequence[LlmMessage]) -> Compared:
    """From a publish, or an XADD, to the model being called, or the entry being given to a member of a group.

    The model is called once the append that says that the turn starts is acknowledged.
    """
    del messages
    model = InstantModel()
    await plain.join_group("bench-bare", "g")
    sessions = [bus.session(f"bench-{number}") for number in range(HAND_OVERS)]

    async def bare() -> float:
        taken: list[float] = []
        for _ in range(HAND_OVERS):
            reading = asyncio.create_task(plain.xreadgroup("bench-bare", "g"))
            await asyncio.sleep(PAUSE_SECONDS)
            began = time.perf_counter()
            await asyncio.gather(plain.xadd("bench-bare", _QUESTION), _noted(reading, taken, began))
        return median(taken) * 1e3

    async def ours() -> float:
        taken: list[float] = []
        for session in sessions:
            model.called = anyio.Event()
            await asyncio.sleep(PAUSE_SECONDS)
            began = time.perf_counter()
            publishing = asyncio.create_task(session.publish(_QUESTION))
            await model.called.wait()
            taken.append(time.perf_counter() - began)
            await publishing
        return median(taken) * 1e3

    async with _working(bus, AgentLoop(model)):
        return await compare("publish to turn started, warm worker; XADD to XREADGROUP", "ms", "≤ 3", bare, ours)


async def _noted(reading: "asyncio.Task[object]", taken: list[float], began: float) -> None:
    await reading
    taken.append(time.perf_counter() - began)


async def turns_a_second(bus: Bus, data_dir: Path) -> list[Figure]:
    """How many turns of two publishes each one worker process does in a thousand sessions, asked all at once."""
    sessions = [bus.session(f"bench-{number}") for number in range(SESSIONS)]
    rates: list[float] = []
    with _worker_process(data_dir, "w") as worker:
        for _ in range(ROUNDS + 1):
            began = time.monotonic()
            async with anyio.create_task_group() as tasks:
                for session in sessions:
                    tasks.start_soon(session.publish, _QUESTION)
            rates.append(SESSIONS / (float(await _line(worker)) - began))
    what = f"turns/s of one worker, {SESSIONS:,} sessions, {CONCURRENCY} at a time, goal ≥ 1,500"
    return [(what, spread(rates[1:]))]


async def dead_worker(bus: Bus, data_dir: Path) -> list[Figure]:
    """How long after its worker was killed a session's model is asked again."""
    waits: list[float] = []
    model = InstantModel()
    for number in range(ROUNDS):
        session = bus.session(f"bench-{number}")
        with _worker_process(data_dir, f"victim-{number}", "hang") as victim:
            await session.publish(_QUESTION)
            async with aclosing(session.follow(kinds={"agent.message.started"})) as started:
                await anext(started)
            model.called = anyio.Event()
            async with _working(bus, AgentLoop(model), heartbeat=HEARTBEAT):
                await asyncio.sleep(HEARTBEAT)  # both are at work
                victim.kill()
                began = time.perf_counter()
                await model.called.wait()
                waits.append(time.perf_counter() - began)
    what = f"a killed worker's session goes on after, s, heartbeat {HEARTBEAT:g}, goal ≤ {HEARTBEAT + 1:g}"
    return [(what, spread(waits))]


async def idle_worker(bus: Bus, data_dir: Path) -> list[Figure]:
    """What a worker that has nothing to do costs."""
    del bus
    with _worker_process(data_dir, "w", heartbeat=5.0) as worker:
        await asyncio.sleep(2)
        before = _cpu_seconds(worker.pid)
        await asyncio.sleep(IDLE_SECONDS)
        used = (_cpu_seconds(worker.pid) - before) / IDLE_SECONDS * 100
    return [("a worker that is idle, % of a core, goal < 1", spread([used]))]


@asynccontextmanager
async def _working(bus: Bus, agent: AgentLoop, *, heartbeat: float = 5.0) -> AsyncGenerator[Worker]:
    worker = Worker(bus, agent, name=f"bench-{time.monotonic_ns()}", heartbeat=heartbeat)
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await running


@contextmanager
def _worker_process(
    data_dir: Path, name: str, *more: str, heartbeat: float = HEARTBEAT
) -> Generator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "bench.instant", str(data_dir), name, str(heartbeat), *more]
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as worker:
        try:
            cast("IO[str]", worker.stdout).readline()
            yield worker
        finally:
            worker.kill()


async def _line(worker: "subprocess.Popen[str]") -> str:
    return await anyio.to_thread.run_sync(cast("IO[str]", worker.stdout).readline)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / sysconf("SC_CLK_TCK")
