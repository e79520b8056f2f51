"""Workers of two agents are killed and sessions handed over: each is answered by its own agent, once, and none is lost.

LANEBUS_SEED decides the order, LANEBUS_SCALE the counts.
"""

from random import Random

import anyio

from lanebus import Bounds, Session, UserMessage
from tests.support.agent.agents import until
from tests.support.laws.checks import faults_of
from tests.support.laws.history import History
from tests.support.laws.worker_processes import Forks, Workers, settled, workers_on
from tests.support.servers.real import RealServer, eventually
from tests.support.suite.scale import count, randomness

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


async def _say(sessions: list[Session], random: Random) -> None:
    turns = [session for session in sessions for _ in range(BURSTS)]
    random.shuffle(turns)
    said = dict.fromkeys((session.id for session in sessions), 0)
    for session in turns:
        await session.publish(UserMessage.text(f"{session.id}.{said[session.id]}"))
        said[session.id] += 1


async def _kill(workers: Workers, history: History, random: Random, agent_of: dict[int, str]) -> None:
    for number in range(KILLS):
        goal = history.size + 200
        with anyio.move_on_after(5):
            await eventually(lambda goal=goal: history.size >= goal)  # type: ignore[misc]  # bound by the default
        worker = random.choice(workers.alive)
        worker.kill()
        agent = agent_of[worker.pid]
        agent_of[workers.start(f"k{number}", agent=agent).pid] = agent


async def _hand_over(sessions: list[Session], random: Random, handed: Handed) -> None:
    for session in random.sample(sessions, min(HANDOVERS, len(sessions))):
        before = (await session.head()).epoch
        await until(lambda session=session: _exists(session))  # type: ignore[misc]  # bound by the default
        await session.hand_over(AGENTS[(int(session.id[1:]) + 1) % 2])
        handed.epochs[session.id] = before, (await session.head()).epoch


async def _exists(session: Session) -> bool:
    return (await session.head()).position > 0


async def test_each_session_is_answered_by_its_own_agent_whoever_is_killed(
    valkey: RealServer, forks: Forks, history: History
) -> None:
    handed = Handed()
    async with valkey.bus(bounds=Bounds()) as bus:
        sessions = [bus.session(f"s{number}", agent=AGENTS[number % 2]) for number in range(SESSIONS)]
        with workers_on(forks, valkey, history.path) as workers, anyio.fail_after(SECONDS):
            agent_of: dict[int, str] = {}
            for number in range(4):
                agent = AGENTS[number % 2]
                agent_of[workers.start(f"w{number}", agent=agent).pid] = agent
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_say, sessions, randomness("words"))
                tasks.start_soon(_kill, workers, history, randomness("strikes"), agent_of)
                tasks.start_soon(_hand_over, sessions, randomness("handovers"), handed)
            await settled(bus)
            complaints = workers.complaints()
        logs = [[entry async for entry in session.read()] for session in sessions]
        assert faults_of(history.lines(), logs) == [], complaints
        worked = [line for line in history.lines() if line.kind == "lease"]
        wrong = [line for line in worked if agent_of[line.pid] not in handed.agents_of(line.session, int(line.key))]
        assert wrong == []
        assert {agent_of[line.pid] for line in worked} == set(AGENTS)
        counts = {each.name: each.sessions for each in await bus.agents() if each.sessions}
        assert sum(counts.values()) == SESSIONS
