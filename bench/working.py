"""Measure workers: the delay until a turn starts, turns a second, the delay after a killed worker, and idle CPU use."""

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
"""number of questions in each round"""

PAUSE_SECONDS = 0.01
"""Seconds between two questions: long enough for the consumer to finish a question and wait for the next."""

HEARTBEAT = 2.0
IDLE_SECONDS = 20.0

_ROOT = Path(__file__).resolve().parent.parent
_QUESTION = UserMessage.text("hello?")


async def turn_start(bus: Bus, plain: Plain, messages: Sequence[LlmMessage]) -> Compared:
    """Measure the time from a publish until the model is called, after `TurnStarted` is acknowledged.

    Baseline: the time from an XADD until XREADGROUP returns the entry to a member of a group.
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
    """Measure the turns a second of one worker process when a thousand sessions get a question at once.

    Each turn takes two publishes.
    """
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
    """Measure the time from the kill of a session's worker until another worker calls the model."""
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
                await asyncio.sleep(HEARTBEAT)  # until both workers run
                victim.kill()
                began = time.perf_counter()
                await model.called.wait()
                waits.append(time.perf_counter() - began)
    what = f"a killed worker's session goes on after, s, heartbeat {HEARTBEAT:g}, goal ≤ {HEARTBEAT + 1:g}"
    return [(what, spread(waits))]


async def idle_worker(bus: Bus, data_dir: Path) -> list[Figure]:
    """Measure the CPU use of a worker without work."""
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
