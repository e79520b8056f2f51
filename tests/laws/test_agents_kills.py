"""Workers of two agents are killed and sessions handed over: each is answered by its own agent, once, and none is lost.

LANEBUS_SEED decides the order, LANEBUS_SCALE the counts.
"""

from random import Random

import anyio
import pytest

from lanebus import Bounds, Bus, Session, UserMessage
from tests.support.agent.agents import until
from tests.support.laws.aftermath import Leases, find_faults
from tests.support.laws.clerk import Book
from tests.support.laws.crew import Crew, Forks, crew_at
from tests.support.servers.real import RealServer, eventually
from tests.support.suite.scale import count, randomness

__all__ = ()

AGENTS = ("red", "blue")

SESSIONS, BURSTS, KILLS, HANDOVERS = count(120), 3, count(30), count(60)

SECONDS = count(600)
"""seconds after which the workers count as stuck"""


class Handed:
    """The agents of the sessions: the first one, and the other one for leases after a handover."""

    def __init__(self) -> None:
        self.epochs: dict[str, tuple[int, int]] = {}
        """by session: the last epoch that was seen before the handover, and one after it"""

    def agents_of(self, session: str, epoch: int) -> set[str]:
        """Return the agents that may have worked under an epoch."""
        first = AGENTS[int(session[1:]) % 2]
        last = AGENTS[(int(session[1:]) + 1) % 2]
        if session not in self.epochs:
            return {first}
        before, after = self.epochs[session]
        return {first} if epoch <= before else {last} if epoch > after else {first, last}


@pytest.fixture
def book(valkey: RealServer) -> Book:
    return Book(valkey.directory / "book")


async def _say(sessions: list[Session], random: Random) -> None:
    turns = [session for session in sessions for _ in range(BURSTS)]
    random.shuffle(turns)
    said = dict.fromkeys((session.id for session in sessions), 0)
    for session in turns:
        await session.publish(UserMessage.text(f"{session.id}.{said[session.id]}"))
        said[session.id] += 1


async def _kill(crew: Crew, book: Book, random: Random, agent_of: dict[int, str]) -> None:
    for number in range(KILLS):
        goal = book.size + 200
        with anyio.move_on_after(5):
            await eventually(lambda goal=goal: book.size >= goal)  # type: ignore[misc]  # bound by the default
        hand = random.choice(crew.alive)
        hand.kill()
        agent = agent_of[hand.pid]
        agent_of[crew.start(f"k{number}", agent=agent).pid] = agent


async def _hand_over(sessions: list[Session], random: Random, handed: Handed) -> None:
    for session in random.sample(sessions, min(HANDOVERS, len(sessions))):
        before = (await session.head()).epoch
        await until(lambda session=session: _exists(session))  # type: ignore[misc]  # bound by the default
        await session.hand_over(AGENTS[(int(session.id[1:]) + 1) % 2])
        handed.epochs[session.id] = before, (await session.head()).epoch


async def _exists(session: Session) -> bool:
    return (await session.head()).position > 0


async def _settled(bus: Bus) -> None:
    async def is_settled() -> bool:
        status = await bus.group_status("agents")
        return (status.lag, status.pending, status.retries) == (0, 0, 0)

    await until(is_settled)


async def test_each_session_is_answered_by_its_own_agent_whoever_is_killed(
    valkey: RealServer, forks: Forks, book: Book
) -> None:
    handed = Handed()
    async with valkey.bus(bounds=Bounds()) as bus:
        sessions = [bus.session(f"s{number}", agent=AGENTS[number % 2]) for number in range(SESSIONS)]
        with crew_at(forks, valkey, book.path) as crew, anyio.fail_after(SECONDS):
            agent_of: dict[int, str] = {}
            for number in range(4):
                agent = AGENTS[number % 2]
                agent_of[crew.start(f"w{number}", agent=agent).pid] = agent
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_say, sessions, randomness("words"))
                tasks.start_soon(_kill, crew, book, randomness("strikes"), agent_of)
                tasks.start_soon(_hand_over, sessions, randomness("handovers"), handed)
            await _settled(bus)
            complaints = crew.complaints()
        logs = [[entry async for entry in session.read()] for session in sessions]
        leases = Leases(book.lines())
        for entries in logs:
            leases.learn(entries)
        assert [fault for entries in logs for fault in find_faults(entries, leases)] == [], complaints
        worked = [line for line in book.lines() if line.kind == "lease"]
        wrong = [line for line in worked if agent_of[line.pid] not in handed.agents_of(line.session, int(line.key))]
        assert wrong == []
        assert {agent_of[line.pid] for line in worked} == set(AGENTS)
        counts = {each.name: each.sessions for each in await bus.agents() if each.sessions}
        assert sum(counts.values()) == SESSIONS
