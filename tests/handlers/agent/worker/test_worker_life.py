"""Workers in their own processes that are killed, paused or stopped: other workers continue their sessions."""

import logging
import signal
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, asynccontextmanager

import anyio
import pytest

from lanebus import AssistantMessage, Bus, Delta, Envelope, Session, UserMessage
from lanebus.handlers.agent import Worker, demo_agent
from tests.support.agent.agents import SECONDS
from tests.support.agent.logs import log, said, wait_for
from tests.support.cli.starter import Started, Starter
from tests.support.servers.real import AnyServer

pytestmark = pytest.mark.full


HEARTBEAT = 1.0
"""heartbeat in seconds, for tests that wait for a takeover"""

PATIENT = 60.0
"""heartbeat in seconds, for tests in which a takeover would be an error"""


def process(
    starter: Starter, server: AnyServer, name: str, *, delay: float = 0.2, drain: float = 60, heartbeat: float = PATIENT
) -> AbstractContextManager[Started]:
    """A worker process. The end of the block kills it if it still runs."""
    numbers = map(str, (heartbeat, delay, drain))
    return starter.running("tests.support.agent.worker_process", server.url, name, *numbers)


@asynccontextmanager
async def heir(bus: Bus, *, heartbeat: float = PATIENT) -> AsyncGenerator[Worker]:
    """A worker in this process whose model answers at once."""
    worker = Worker(bus, demo_agent(delay=0), name="heir", heartbeat=heartbeat)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        yield worker
        worker.stop()


async def ask(session: Session, text: str = "What is 17 × 23?") -> int:
    return (await session.publish(UserMessage.text(text))).position


async def speaking(session: Session) -> None:
    """Wait until a part of an answer is shown."""
    with anyio.fail_after(SECONDS):
        async for envelope in session.follow(live=True):
            if isinstance(envelope.message, Delta):
                return


async def assert_one_loop(session: Session) -> None:
    entries = await said(session)
    assert entries.count("agent.started") == entries.count("agent.ended") == 1
    assert [text for text in entries if text.startswith("assistant stop")] == ["assistant stop: 17 × 23 is 391."]


async def ended_by(worker: Started) -> int:
    """Wait for the end of the process, and return its exit code."""
    with anyio.fail_after(SECONDS):
        return await anyio.to_thread.run_sync(worker.wait, abandon_on_cancel=True)


@pytest.mark.cluster("the heir claims in every bucket")
@pytest.mark.sentinel("the lease is taken over by another process")
async def test_a_killed_workers_sessions_continue_after_its_heartbeat_period(
    server: AnyServer, starter: Starter, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with server.bus() as bus:
        session = bus.session("s1")
        with process(starter, server, "victim", heartbeat=HEARTBEAT) as victim:
            await ask(session)
            await speaking(session)
            async with heir(bus, heartbeat=HEARTBEAT):
                victim.kill()
                await wait_for(session, "agent.ended")
        await assert_one_loop(session)
    lines = [vars(record) for record in caplog.records]
    loops = [(line["event"], line["loop"], line["worker"]) for line in lines if "loop" in line]
    assert loops == [("loop.resumed", "s1.main.1", "heir"), ("loop.ended", "s1.main.1", "heir")]


@pytest.mark.cluster("the epoch is checked on the session's node")
@pytest.mark.sentinel("the epoch is checked behind a Sentinel")
async def test_a_worker_that_was_paused_for_longer_than_its_heartbeat_appends_nothing(
    bus: Bus, session: Session, server: AnyServer, starter: Starter
) -> None:
    with process(starter, server, "victim", heartbeat=HEARTBEAT) as victim:
        await ask(session)
        await speaking(session)
        victim.send_signal(signal.SIGSTOP)
        async with heir(bus, heartbeat=HEARTBEAT) as worker:
            await wait_for(session, "agent.ended")
            entries = await log(session)
            victim.send_signal(signal.SIGCONT)
            # It works again when it answers another session, which the other worker leaves to it.
            worker.stop()
        other = bus.session("s2")
        await ask(other)
        await wait_for(other, "agent.ended")
        victim.send_signal(signal.SIGTERM)
        assert await ended_by(victim) == 0
    assert await log(session) == entries
    await assert_one_loop(session)


async def test_a_stopping_worker_finishes_its_sessions(session: Session, server: AnyServer, starter: Starter) -> None:
    with process(starter, server, "w", delay=0.05) as worker:
        await ask(session)
        await speaking(session)
        worker.send_signal(signal.SIGTERM)
        assert await ended_by(worker) == 0
    await assert_one_loop(session)
    assert cuts(await log(session)) == 0


async def test_a_worker_that_is_stopped_twice_returns_its_turn_to_the_group(
    bus: Bus, session: Session, server: AnyServer, starter: Starter
) -> None:
    with process(starter, server, "w", delay=5) as worker:
        await ask(session, "What can you do?")
        await wait_for(session, "agent.message.started")
        async with heir(bus):
            worker.send_signal(signal.SIGTERM)
            assert worker.stdout is not None
            await anyio.to_thread.run_sync(worker.stdout.readline)  # two simultaneous signals would be one
            worker.send_signal(signal.SIGTERM)
            assert await ended_by(worker) == 0
            await wait_for(session, "agent.ended")
    entries = await said(session)
    assert entries.count("agent.started") == entries.count("agent.ended") == 1
    assert len((await bus.group_status("agents")).consumers) == 0, "neither has left anything, nor its name"


async def test_sessions_that_outlast_the_drain_are_returned_to_the_group(
    bus: Bus, session: Session, server: AnyServer, starter: Starter
) -> None:
    with process(starter, server, "w", delay=5, drain=0.1) as worker:
        await ask(session, "What can you do?")
        await wait_for(session, "agent.message.started")
        worker.send_signal(signal.SIGTERM)
        assert await ended_by(worker) == 0
    async with heir(bus):
        await wait_for(session, "agent.ended")
    assert (await said(session)).count("agent.ended") == 1


def cuts(entries: list[Envelope]) -> int:
    return sum(isinstance(e.message, AssistantMessage) and e.message.stop_reason == "aborted" for e in entries)
