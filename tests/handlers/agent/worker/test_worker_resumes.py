"""A worker that continues a loop of another worker logs so, once."""

import logging

import anyio
import pytest

from lanebus import Bus, Session, ToolCallBlock, UserMessage
from lanebus.agent import AgentLoop, Worker, approve, tool
from lanebus.messages import ToolWaiting, TurnId
from tests.support.agent.agents import SECONDS, ScriptedModel, Step, answer, calls
from tests.support.agent.logs import events_of, until, wait_for
from tests.support.servers.real import eventually

__all__ = ()

PATIENT = 60.0
"""heartbeat in seconds, for tests in which a takeover would be an error"""

CALL = ToolCallBlock(id="c1", name="look")


@tool(approval=True)
async def look() -> str:
    """Look."""
    return "seen"


def worker(bus: Bus, name: str, *steps: list[Step]) -> Worker:
    return Worker(bus, AgentLoop(ScriptedModel(*steps), [look]), name=name, heartbeat=PATIENT)


def loop_lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, ...]]:
    """Event, loop, worker, session and agent of the lines about loops."""
    names = ("event", "loop", "worker", "session", "agent")
    lines = [vars(record) for record in caplog.records]
    return [tuple(str(line[name]) for name in names) for line in lines if str(line.get("event")).startswith("loop.")]


async def ask(session: Session, count: int) -> None:
    """Send a message, and wait until its tool call waits for a person."""
    await session.publish(UserMessage.text("Look!"))

    async def is_waiting() -> bool:
        return len(await events_of(session, ToolWaiting)) == count

    await until(is_waiting)


async def allow(session: Session, number: int) -> None:
    """Approve the call of a loop, and wait until the loop has ended."""
    await approve(session, TurnId(loop_id=f"s1.main.{number}", turn_index=0), "c1")
    with anyio.fail_after(SECONDS):
        await wait_for(session, "agent.ended", number)


async def test_a_worker_logs_that_it_resumes_the_loop_of_another_worker_and_not_its_own(
    bus: Bus, session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with worker(bus, "a", calls(CALL), answer("One."), calls(CALL)):
        await ask(session, 1)
        await allow(session, 1)
        await ask(session, 2)
    head = (await session.head()).position
    async with worker(bus, "b", answer("Two.")):
        await allow(session, 2)
        await eventually(lambda: len(loop_lines(caplog)) == 5)  # the log has the end before the worker tells it
    first, second = ("s1.main.1", "s1.main.2")
    assert loop_lines(caplog) == [
        ("loop.begun", first, "a", "s1", "agent"),
        ("loop.ended", first, "a", "s1", "agent"),
        ("loop.begun", second, "a", "s1", "agent"),
        ("loop.resumed", second, "b", "s1", "agent"),
        ("loop.ended", second, "b", "s1", "agent"),
    ]
    (resumed,) = [vars(each) for each in caplog.records if vars(each).get("event") == "loop.resumed"]
    assert resumed["position"] == head + 1  # the approval


async def test_a_worker_that_is_restarted_logs_that_it_resumes_its_own_loop(
    bus: Bus, session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with worker(bus, "a", calls(CALL)):
        await ask(session, 1)
    async with worker(bus, "a", answer("One.")):
        await allow(session, 1)
        await eventually(lambda: len(loop_lines(caplog)) == 3)  # as above
    assert [line[0] for line in loop_lines(caplog)] == ["loop.begun", "loop.resumed", "loop.ended"]
