"""Workers that are killed and paused repeatedly: no word is missed, none is handled twice, no fenced worker writes.

LANEBUS_SEED decides the order of the strikes, LANEBUS_SCALE their number.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from random import Random

import anyio
import pytest

from lanebus import Bounds, Bus, Envelope, Session, UserMessage
from tests.support.agent.agents import wait_for
from tests.support.laws.checks import extra_calls, faults_of, repeated
from tests.support.laws.forked_worker import HEARTBEAT
from tests.support.laws.history import History
from tests.support.laws.tiny import is_tiny, shrink
from tests.support.laws.worker_processes import Forks, WorkerProcess, Workers, settled, workers_on
from tests.support.servers.real import RealServer, eventually
from tests.support.suite.scale import SEED, count, randomness

WORKERS, SESSIONS, BURSTS, BURST = 3, count(300), 5, 4
"""each session gets a few words at a time, a few times"""

MESSAGES = SESSIONS * BURSTS * BURST

KILLS, PAUSES = count(55), count(50)

AHEAD = 60
"""largest number of bursts that are said and not handled yet"""

SECONDS = count(850)
"""seconds after which the workers count as stuck; a slow machine needs far less"""


class Struck:
    """Strikes workers in an order drawn from the seed, paced by their progress."""

    def __init__(self, workers: Workers, history: History, random: Random) -> None:
        self._workers, self._history, self._random = workers, history, random
        self.kills = self.pauses = 0
        self.is_all_said = False
        """True if no more calls may come, so that the remaining strikes need not wait for them"""

    async def strike_all(self) -> None:
        """Make every required strike. On return the last pauses are over."""
        plan = ["kill"] * KILLS + ["pause"] * PAUSES
        self._random.shuffle(plan)
        async with anyio.create_task_group() as tasks:
            for what in plan:
                await self._wait_for_calls(self._random.randrange(2, 36))
                if what == "kill":
                    self._kill(self._random.choice(self._workers.alive))
                else:
                    await self._all_but_paused()
                    running = [worker for worker in self._workers.alive if not worker.is_paused]
                    tasks.start_soon(self._pause, self._random.choice(running))

    async def _wait_for_calls(self, count: int) -> None:
        """Wait for `count` more outside calls, and then for a random moment."""
        end = self._history.size + 40 * count
        await eventually(lambda: self._history.size >= end or self.is_all_said)
        await anyio.sleep(self._random.random() * 0.02)

    async def _all_but_paused(self) -> None:
        await eventually(lambda: not all(worker.is_paused for worker in self._workers.alive))

    def _kill(self, worker: WorkerProcess) -> None:
        worker.kill()
        self.kills += 1
        self._workers.start(worker.name if self._random.random() < 0.5 else f"w{len(self._workers.started)}")

    async def _pause(self, worker: WorkerProcess) -> None:
        worker.pause()
        self.pauses += 1
        # longer than the time after which other workers take over its sessions and work
        await anyio.sleep(HEARTBEAT * self._random.uniform(2.2, 3))
        worker.resume()


async def _feed(sessions: Sequence[Session], history: History, random: Random) -> None:
    """Say all words, but at most `AHEAD` bursts ahead of the workers."""
    bursts = [number for number in range(SESSIONS) for _ in range(BURSTS)]
    random.shuffle(bursts)
    said, words, lines = [0] * SESSIONS, set[str](), 0

    def has_handled(goal: int) -> bool:
        """Return whether models were asked to handle `goal` words. One call may handle several bursts."""
        nonlocal lines
        new = history.lines(after=lines)
        lines += len(new)
        words.update(word for line in new if line.kind == "model" for word in line.key.split())
        return len(words) >= goal

    for place, number in enumerate(bursts):
        await eventually(partial(has_handled, (place - AHEAD) * BURST))
        async with anyio.create_task_group() as tasks:
            for _ in range(BURST):
                message = UserMessage.text(f"s{number}.{said[number]}")
                said[number] += 1
                tasks.start_soon(sessions[number].publish, message)


async def _read_all(sessions: Sequence[Session]) -> list[list[Envelope]]:
    return [[entry async for entry in session.read()] for session in sessions]


@asynccontextmanager
async def _at_work(
    server: RealServer, forks: Forks, history: History, mutant: str, *, session: str = "s1", call: str = "model"
) -> AsyncGenerator[tuple[Bus, Workers, WorkerProcess], None]:
    """Run a faulty worker that is in its first outside call of a kind. The call lasts until the test ends it."""
    async with server.bus() as bus:
        with workers_on(forks, server, history.path) as workers, anyio.fail_after(SECONDS):
            await bus.session(session).publish(UserMessage.text(f"{session}.0"))
            worker = workers.start("w0", mutant=mutant, gated=call)
            await _called(history, worker, call)
            yield bus, workers, worker


async def _called(history: History, worker: WorkerProcess, *calls: str) -> None:
    """Wait until the history has a line of one of these kinds by a worker."""
    await eventually(lambda: any(line.pid == worker.pid and line.kind in calls for line in history.lines()))


async def _kinds(history: History, session: Session) -> set[str]:
    return {fault.kind for fault in faults_of(history.lines(), await _read_all([session]))}


@pytest.mark.full
@pytest.mark.parametrize(
    ("mutant", "kinds"),
    [
        ("", set[str]()),
        ("no heed", set[str]()),  # the epoch alone prevents the write
        ("no fence", {"fenced"}),
        ("no epoch, no key", {"fenced", "twice"}),
    ],
)
async def test_a_worker_that_wakes_up_and_is_not_fenced_is_found(
    valkey: RealServer, forks: Forks, history: History, mutant: str, kinds: set[str]
) -> None:
    async with _at_work(valkey, forks, history, mutant) as (bus, workers, worker):
        worker.pause()
        successor = workers.start("w1", mutant=mutant, gated="model")
        await _called(history, successor, "model")
        worker.resume()
        worker.open_gate()
        await _called(history, worker, "record", "cut", "end")  # its answer was appended or refused
        successor.open_gate()
        await settled(bus)
        found = await _kinds(history, bus.session("s1"))
        assert (found >= kinds) if kinds else (found == set())


@pytest.mark.full
@pytest.mark.parametrize(("mutant", "kinds"), [("", set[str]()), ("acks first", {"unanswered", "open"})])
async def test_a_worker_that_acknowledges_what_it_has_not_done_is_found(
    valkey: RealServer, forks: Forks, history: History, mutant: str, kinds: set[str]
) -> None:
    async with _at_work(valkey, forks, history, mutant) as (bus, workers, worker):
        worker.kill()
        workers.start("w1", mutant=mutant)
        await bus.session("s2").publish(UserMessage.text("s2.0"))
        await wait_for(bus.session("s2"), "agent.ended")
        await settled(bus)
        assert await _kinds(history, bus.session("s2")) == set()
        assert await _kinds(history, bus.session("s1")) == kinds


@pytest.mark.full
@pytest.mark.parametrize(("mutant", "is_repeated"), [("", False), ("charges again", True)])
async def test_a_worker_that_runs_again_what_may_not_be_run_twice_is_found(
    valkey: RealServer, forks: Forks, history: History, mutant: str, is_repeated: bool
) -> None:
    async with _at_work(valkey, forks, history, mutant, session="s3", call="charge") as (bus, workers, worker):
        worker.kill()
        workers.start("w1", mutant=mutant)
        await settled(bus)
        assert await _kinds(history, bus.session("s3")) == set()
        assert bool(repeated(history.lines(), "charge")) == is_repeated


async def test_workers_that_are_killed_and_paused_miss_nothing_and_do_nothing_twice(
    valkey: RealServer, forks: Forks, history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    random = randomness("strikes")
    began = anyio.current_time()
    shrink(valkey)
    async with valkey.bus(bounds=Bounds()) as bus, valkey.bus() as tiny:
        sessions = [(tiny if is_tiny(number) else bus).session(f"s{number}") for number in range(SESSIONS)]
        with workers_on(forks, valkey, history.path) as workers, anyio.fail_after(SECONDS):
            for number in range(WORKERS):
                workers.start(f"w{number}")
            struck = Struck(workers, history, random)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(struck.strike_all)
                await _feed(sessions, history, randomness("words"))
                struck.is_all_said = True
            await settled(bus)
        logs = await _read_all(sessions)
        lines = history.lines()
        extra = extra_calls(lines, logs)
        kinds = Counter(line.kind for line in lines)
        leases, cut, calls = kinds["lease"], kinds["cut"], len(lines) - kinds["lease"] - kinds["cut"] - kinds["end"]
        told = (
            f"{MESSAGES} messages in {SESSIONS} sessions, {struck.kills} kills, {struck.pauses} pauses, {leases} leases"
        )
        cost = f"{extra} outside calls too many of {calls}, {anyio.current_time() - began:.0f} s"
        with capsys.disabled():
            print(f"\nseed {SEED}: {told}, {cost}")
        assert struck.kills >= KILLS
        assert struck.pauses >= PAUSES
        assert faults_of(history.lines(), logs) == []
        # A slow machine loses leases without a pause, too.
        assert 0 <= extra <= struck.kills + struck.pauses + cut
        assert repeated(lines, "charge") == set()
        status = await bus.group_status("agents")
        assert (status.lag, status.pending, status.retries, status.dead, status.dropped) == (0, 0, 0, 0, 0)
        for session in sessions:
            assert await session.open_messages() == []
