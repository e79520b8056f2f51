"""Workers that are killed and paused again and again: nothing is missed, nothing is done twice, no deposed one writes.

LANEBUS_SEED gives the order of the strikes.
"""

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from random import Random

import anyio
import pytest

from bus import Bus, Envelope, Session, UserMessage
from tests.support.agent.agents import wait_for
from tests.support.laws.aftermath import Fault, Leases, extra_calls, find_faults, repeated
from tests.support.laws.clerk import Book
from tests.support.laws.crew import Crew, Hand, crew_at
from tests.support.laws.worker_process import HEARTBEAT
from tests.support.servers.real import RealServer

__all__ = ()

SEED = int(os.environ.get("LANEBUS_SEED", "1"))

WORKERS, SESSIONS, BURSTS, BURST = 3, 300, 5, 4
"""a session is told a few words at a time, a few times"""

MESSAGES = SESSIONS * BURSTS * BURST

KILLS, PAUSES = 55, 50

AHEAD = 60
"""bursts that may be said and not handled yet"""

SLOW = 0.6
"""how long an outside call takes where the test does something meanwhile"""

SECONDS = 600.0
"""after which the workers count as stuck"""


class Struck:
    """Strikes workers in the order that a seed gives, paced by what they get done."""

    def __init__(self, crew: Crew, book: Book, random: Random) -> None:
        self._crew, self._book, self._random = crew, book, random
        self.kills = self.pauses = 0

    async def strike_all(self) -> None:
        """Every strike that there has to be; the last pauses are over when this returns."""
        plan = ["kill"] * KILLS + ["pause"] * PAUSES
        self._random.shuffle(plan)
        async with anyio.create_task_group() as tasks:
            for what in plan:
                await self._wait_for_calls(self._random.randrange(2, 50))
                if what == "kill":
                    self._kill(self._random.choice(self._crew.alive))
                else:
                    await self._all_but_paused()
                    running = [hand for hand in self._crew.alive if not hand.is_paused]
                    tasks.start_soon(self._pause, self._random.choice(running))

    async def _wait_for_calls(self, count: int) -> None:
        """Until so many outside calls more were made, and at a moment that has nothing to do with them."""
        size = self._book.size
        while self._book.size < size + 40 * count:  # noqa: ASYNC110  # other processes do not set our events
            await anyio.sleep(0.002)
        await anyio.sleep(self._random.random() * 0.02)

    async def _all_but_paused(self) -> None:
        while all(hand.is_paused for hand in self._crew.alive):  # noqa: ASYNC110
            await anyio.sleep(0.01)

    def _kill(self, hand: Hand) -> None:
        hand.kill()
        self.kills += 1
        self._crew.start(hand.name if self._random.random() < 0.5 else f"w{len(self._crew.hands)}")

    async def _pause(self, hand: Hand) -> None:
        hand.pause()
        self.pauses += 1
        # Longer than the time after which others take its sessions and its pointers over.
        await anyio.sleep(HEARTBEAT * self._random.uniform(2.2, 3))
        hand.resume()


async def _feed(sessions: Sequence[Session], book: Book, random: Random) -> None:
    """Say all words, not too far ahead of those who handle them."""
    bursts = [number for number in range(SESSIONS) for _ in range(BURSTS)]
    random.shuffle(bursts)
    said = [0] * SESSIONS
    for count, number in enumerate(bursts):
        while (count - AHEAD) * BURST > len(_read_by_models(book)):  # noqa: ASYNC110  # other processes write it
            await anyio.sleep(0.05)
        async with anyio.create_task_group() as tasks:
            for _ in range(BURST):
                message = UserMessage.text(f"s{number}.{said[number]}")
                said[number] += 1
                tasks.start_soon(sessions[number].publish, message)


def _read_by_models(book: Book) -> set[str]:
    """The words that a model was asked to have handled. Several bursts may be handled by one call."""
    return {word for line in book.lines() if line.kind == "model" for word in line.key.split()}


async def _settled(bus: Bus, group: str = "agents") -> None:
    """Wait until nothing waits, nothing is in hand and nothing is put off."""
    with anyio.fail_after(SECONDS):
        while True:
            status = await bus.group_status(group)
            if (status.lag, status.pending, status.retries) == (0, 0, 0):
                return
            await anyio.sleep(0.05)


async def _read_all(sessions: Sequence[Session]) -> list[list[Envelope]]:
    return [[entry async for entry in session.read()] for session in sessions]


def _faults(book: Book, logs: Sequence[Sequence[Envelope]]) -> list[Fault]:
    leases = Leases(book.lines())
    for entries in logs:
        leases.learn(entries)
    return [fault for entries in logs for fault in find_faults(entries, leases)]


@pytest.fixture
def book(valkey: RealServer) -> Book:
    return Book(valkey.directory / "book")


@asynccontextmanager
async def _at_work(
    server: RealServer, book: Book, mutant: str, *, session: str = "s1", call: str = "model"
) -> AsyncGenerator[tuple[Bus, Crew, Hand], None]:
    """A worker with a fault that is in the middle of its first outside call of a kind, which takes long."""
    async with server.bus() as bus:
        with crew_at(server, book.path) as crew, anyio.fail_after(SECONDS):
            await bus.session(session).publish(UserMessage.text(f"{session}.0"))
            hand = crew.start("w0", mutant=mutant, moment=SLOW)
            await _called(book, hand, call)
            yield bus, crew, hand


async def _called(book: Book, hand: Hand, call: str) -> None:
    """Wait until a worker has made an outside call."""
    while not any(line.pid == hand.pid and line.kind == call for line in book.lines()):  # noqa: ASYNC110
        await anyio.sleep(0.005)


async def _kinds(book: Book, session: Session) -> set[str]:
    return {fault.kind for fault in _faults(book, await _read_all([session]))}


@pytest.mark.parametrize(
    ("mutant", "kinds"),
    [
        ("", set[str]()),
        ("no heed", set[str]()),  # the epoch alone is enough
        ("no fence", {"deposed"}),
        ("no epoch, no key", {"deposed", "twice"}),
    ],
)
async def test_a_worker_that_wakes_up_and_is_not_fenced_is_found(
    valkey: RealServer, book: Book, mutant: str, kinds: set[str]
) -> None:
    async with _at_work(valkey, book, mutant) as (bus, crew, hand):
        hand.pause()
        heir = crew.start("w1", mutant=mutant, moment=SLOW)
        await _called(book, heir, "model")
        hand.resume()
        await _settled(bus)
        found = await _kinds(book, bus.session("s1"))
        assert (found >= kinds) if kinds else (found == set())


@pytest.mark.parametrize(("mutant", "kinds"), [("", set[str]()), ("acks first", {"unanswered", "open"})])
async def test_a_worker_that_acknowledges_what_it_has_not_done_is_found(
    valkey: RealServer, book: Book, mutant: str, kinds: set[str]
) -> None:
    async with _at_work(valkey, book, mutant) as (bus, crew, hand):
        hand.kill()
        crew.start("w1", mutant=mutant)
        await bus.session("s2").publish(UserMessage.text("s2.0"))
        await wait_for(bus.session("s2"), "agent.ended")
        await _settled(bus)
        assert await _kinds(book, bus.session("s2")) == set()
        assert await _kinds(book, bus.session("s1")) == kinds


@pytest.mark.parametrize(("mutant", "is_repeated"), [("", False), ("charges again", True)])
async def test_a_worker_that_runs_again_what_may_not_be_run_twice_is_found(
    valkey: RealServer, book: Book, mutant: str, is_repeated: bool
) -> None:
    async with _at_work(valkey, book, mutant, session="s3", call="charge") as (bus, crew, hand):
        hand.kill()
        crew.start("w1", mutant=mutant)
        await _settled(bus)
        assert await _kinds(book, bus.session("s3")) == set()
        assert bool(repeated(book.lines(), "charge")) == is_repeated


async def test_workers_that_are_killed_and_paused_miss_nothing_and_do_nothing_twice(
    valkey: RealServer, book: Book, capsys: pytest.CaptureFixture[str]
) -> None:
    random = Random(SEED)  # noqa: S311  not for secrets
    began = anyio.current_time()
    async with valkey.bus() as bus:
        sessions = [bus.session(f"s{number}") for number in range(SESSIONS)]
        with crew_at(valkey, book.path) as crew, anyio.fail_after(SECONDS):
            for number in range(WORKERS):
                crew.start(f"w{number}")
            struck = Struck(crew, book, random)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(struck.strike_all)
                await _feed(sessions, book, Random(SEED))  # noqa: S311
            await _settled(bus)
        logs = await _read_all(sessions)
        lines = book.lines()
        extra = extra_calls(lines, logs)
        leases = sum(line.kind == "lease" for line in lines)
        told = (
            f"{MESSAGES} messages in {SESSIONS} sessions, {struck.kills} kills, {struck.pauses} pauses, {leases} leases"
        )
        cost = f"{extra} outside calls too many of {len(lines) - leases}, {anyio.current_time() - began:.0f} s"
        with capsys.disabled():
            print(f"\nseed {SEED}: {told}, {cost}")
        assert struck.kills >= KILLS
        assert struck.pauses >= PAUSES
        assert _faults(book, logs) == []
        assert 0 <= extra <= struck.kills + struck.pauses
        assert repeated(lines, "charge") == set()
        status = await bus.group_status("agents")
        assert (status.lag, status.pending, status.retries, status.dead, status.dropped) == (0, 0, 0, 0, 0)
        for session in sessions:
            assert await session.open_messages() == []
