"""Workers: in the background of a block, at their bounds, while they read, and with the loop of another worker."""

import logging
from collections.abc import Sequence
from functools import partial

import anyio
import pytest

from lanebus import AssistantMessage, Bus, Closed, ExtensionMessage, Session, ToolCallBlock, UserMessage
from lanebus.agent import AgentLoop, Worker, WorkerBounds, approve, ask, tool
from lanebus.bus import Lease, Leases
from lanebus.handlers.agent import in_background
from lanebus.handlers.agent.turn.loop_state import CachedSession
from lanebus.messages import ToolWaiting, TurnId
from tests.support.agent.agents import SECONDS, Pause, ScriptedModel, Step, answer, calls, fresh_bus
from tests.support.agent.logs import events_of, messages, said, until, wait_for
from tests.support.laws.cancelling import Moment, Trial, cut
from tests.support.servers.real import RealServer, blocked, eventually, shortly

PATIENT = 60.0
"""heartbeat in seconds, for tests in which a takeover would be an error"""


async def test_a_worker_works_during_the_block_and_leaves_its_group_at_the_end(bus: Bus) -> None:
    async with Worker(bus, AgentLoop(ScriptedModel(answer("Yes."))), heartbeat=PATIENT) as worker:
        assert (await ask(bus.session("s1"), "hello")).text_content() == "Yes."
        assert worker.counts.runs == 1
        assert [each.name for each in (await bus.group_status("agents")).consumers] == [worker.name]
    assert (await bus.group_status("agents")).consumers == ()


async def test_the_end_of_the_block_records_the_partial_answer_and_the_session(bus: Bus, session: Session) -> None:
    stop = Pause()
    async with Worker(bus, AgentLoop(ScriptedModel([*answer("As I was saying")[:2], stop])), heartbeat=PATIENT):
        await session.publish(UserMessage.text("hello"))
        await stop.reached.wait()
    assert "assistant aborted: As I was saying" in await said(session)
    with anyio.fail_after(SECONDS):  # another worker need not wait for the heartbeat
        async with Worker(bus, AgentLoop(ScriptedModel(answer("Yes."))), heartbeat=PATIENT):
            assert (await ask(session, "and?")).text_content() == "Yes."


@pytest.mark.parametrize("error", [ValueError("mine"), SystemExit(3), ExceptionGroup("g", [ValueError("mine")])])
async def test_an_error_of_the_block_is_raised_unchanged_after_its_end(bus: Bus, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:  # noqa: PT012  # the block is what raises
        async with Worker(bus, AgentLoop(ScriptedModel(answer("Yes."))), heartbeat=PATIENT):
            await ask(bus.session("s1"), "hello")
            raise error
    assert caught.value is error
    assert (await bus.group_status("agents")).consumers == ()


async def test_an_error_of_the_worker_ends_the_block_and_is_raised_alone() -> None:
    async with fresh_bus() as bus:
        worker = Worker(bus, AgentLoop(ScriptedModel()))
    ended: list[str] = []
    with anyio.fail_after(SECONDS), pytest.raises(Closed):  # noqa: PT012  # the block is what raises
        async with worker:
            try:
                await anyio.sleep_forever()
            finally:
                ended.append("cancelled")
    assert ended == ["cancelled"]


async def test_cancellation_passes_through_the_block(bus: Bus) -> None:
    reached: list[str] = []
    with anyio.CancelScope() as scope:
        async with Worker(bus, AgentLoop(ScriptedModel(answer("Yes."))), heartbeat=PATIENT):
            await ask(bus.session("s1"), "hello")
            scope.cancel()
            await anyio.sleep_forever()
        reached.append("behind")
    assert scope.cancelled_caught
    assert reached == []
    assert (await bus.group_status("agents")).consumers == ()


async def test_a_worker_that_is_stopped_lets_the_block_go_on(bus: Bus) -> None:
    async with Worker(bus, AgentLoop(ScriptedModel())) as worker:
        worker.stop()

        async def has_left() -> bool:
            return not (await bus.group_status("agents")).consumers

        await until(has_left)


@pytest.mark.full
@pytest.mark.parametrize("moment", Moment)
async def test_a_block_can_be_cancelled_at_any_await_and_the_worker_has_then_ended(bus: Bus, moment: Moment) -> None:
    async def in_block(session: Session) -> str:
        async with Worker(bus, AgentLoop(ScriptedModel(answer("Yes."))), heartbeat=PATIENT):
            return (await ask(session, "hello", key="k")).text_content()

    cuts = 0
    while True:
        session = bus.session(f"s{cuts}")
        trial: Trial[str] = await cut(partial(in_block, session), at=cuts + 1, moment=moment)
        assert trial.is_honest
        assert (await bus.group_status("agents")).consumers == ()
        assert await in_block(session) == "Yes."
        if not trial.is_cut:
            break
        cuts += 1
    assert cuts > 5


@pytest.mark.parametrize("moment", Moment)
async def test_a_stopped_run_that_is_cancelled_at_any_await_is_left_at_once(bus: Bus, moment: Moment) -> None:
    async def run() -> str:
        worker = Worker(bus, AgentLoop(ScriptedModel()), heartbeat=PATIENT)
        worker.stop()
        await worker.run()
        return "done"

    cuts = 0
    while True:
        trial: Trial[str] = await cut(run, at=cuts + 1, moment=moment)
        assert trial.is_honest, (cuts, trial)
        assert (await bus.group_status("agents")).consumers == ()
        if not trial.is_cut:
            break
        cuts += 1
    assert cuts > 3


# --- a function in the background of a block -----------------------------------------------------------------------


async def nested() -> None:
    """Wait in two task groups, as a worker does: anyio counts the cancellations of both."""
    async with anyio.create_task_group(), anyio.create_task_group() as inner:
        inner.start_soon(anyio.sleep_forever)
        await anyio.sleep_forever()


@pytest.mark.parametrize("moment", Moment)
async def test_a_block_that_is_cancelled_at_any_await_is_left_by_the_cancellation(moment: Moment) -> None:
    began = anyio.Event()

    async def run() -> None:
        began.set()
        await nested()

    async def block() -> str:
        async with in_background(run):
            await began.wait()
            return "done"

    cuts = 0
    while True:
        trial: Trial[str] = await cut(block, at=cuts + 1, moment=moment)
        assert trial.is_honest, (cuts, trial)
        if not trial.is_cut:
            break
        cuts += 1
        began = anyio.Event()
    assert cuts >= 2
    assert trial.results == ["done"]


# --- a worker at its bounds ----------------------------------------------------------------------------------------

SESSIONS, QUESTIONS = 20, 3


@pytest.mark.full
@pytest.mark.parametrize("concurrency", [1, 4, 32])
@pytest.mark.parametrize("bounds", [WorkerBounds(warm_sessions=3), WorkerBounds(warm_bytes=3)], ids=str)
async def test_a_busy_worker_with_a_small_cache_answers_all(bus: Bus, bounds: WorkerBounds, concurrency: int) -> None:
    model = ScriptedModel(*[answer("Yes.")] * (SESSIONS * QUESTIONS))
    worker = Worker(bus, AgentLoop(model), concurrency=concurrency, bounds=bounds)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        for question in range(1, QUESTIONS + 1):
            for number in range(SESSIONS):
                await bus.session(f"s{number}").publish(UserMessage.text(f"question {question}"))
            await _answered(bus, question)
        worker.stop()
    for number in range(SESSIONS):
        found = await messages(bus.session(f"s{number}"))
        assert [isinstance(message, AssistantMessage) for message in found] == [False, True] * QUESTIONS


async def _answered(bus: Bus, loops: int) -> None:
    for number in range(SESSIONS):
        await wait_for(bus.session(f"s{number}"), "agent.ended", loops)


async def test_a_worker_warns_once_of_a_session_with_many_keys(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    bounds = WorkerBounds(warm_sweep_seconds=0.01, most_keys=3)
    async with Worker(bus, AgentLoop(ScriptedModel(answer("Yes."))), bounds=bounds) as worker:
        session = bus.session("s")
        for number in range(3):
            await session.publish(ExtensionMessage.of("x"), key=f"k{number}", wake=False)
        await session.publish(UserMessage.text("go"))
        await wait_for(session, "agent.ended")
        await eventually(lambda: worker.counts.most_keys >= 3)
        await eventually(lambda: "session.keys_many" in caplog.text)
    told = [record for record in caplog.records if "session.keys_many" in record.getMessage()]
    assert [vars(record)["session"] for record in told] == ["s"]


async def test_a_worker_forgets_what_it_read_of_an_erased_session(bus: Bus) -> None:
    bounds = WorkerBounds(warm_sweep_seconds=0.01)
    async with Worker(bus, AgentLoop(ScriptedModel(answer("Yes."))), bounds=bounds) as worker:
        session = bus.session("s")
        await session.publish(UserMessage.text("go"))
        await wait_for(session, "agent.ended")
        cache = worker._services.cache  # pyright: ignore[reportPrivateUsage]
        await eventually(lambda: len(cache) == 1)
        await session.erase()
        await eventually(lambda: len(cache) == 0)


# --- a worker keeps its lease while it reads a long session for longer than the lease lasts ------------------------


@pytest.mark.parametrize("found_by", ["wake-up", "sweep"])
async def test_a_lease_is_renewed_while_its_session_is_read_for_the_first_time(
    found_by: str, shared_valkey: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed, read, renew = anyio.Event(), CachedSession.refresh, Leases.renew

    async def noted(leases: Leases, held: Sequence[Lease], seconds: float) -> Sequence[Lease]:
        lost = await renew(leases, held, seconds)
        renewed.set()
        return lost

    async def slow(warm: CachedSession, *arguments: object) -> object:
        if arguments:  # it has the lease; work that a sweep finds is also read before, without one
            async with shortly():
                await renewed.wait()
        return await read(warm)

    monkeypatch.setattr(Leases, "renew", noted)
    monkeypatch.setattr(CachedSession, "refresh", slow)
    async with shared_valkey.bus() as bus, anyio.create_task_group() as tasks:
        worker = Worker(bus, AgentLoop(ScriptedModel(answer("Yes."))), heartbeat=3)
        session = bus.session("s1")
        if found_by == "sweep":
            await session.publish(UserMessage.text("hello?"))
        tasks.start_soon(worker.run)
        if found_by == "wake-up":
            await eventually(lambda: blocked(shared_valkey) > 0)  # work from a wake-up is delivered with a lease
            await session.publish(UserMessage.text("hello?"))
        await wait_for(session, "agent.ended")
        worker.stop()


# --- a worker that continues a loop of another worker logs so, once ------------------------------------------------

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


async def look_and_wait(session: Session, count: int) -> None:
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
        await look_and_wait(session, 1)
        await allow(session, 1)
        await look_and_wait(session, 2)
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


async def test_a_restarted_worker_resumes_its_own(bus: Bus, session: Session, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with worker(bus, "a", calls(CALL)):
        await look_and_wait(session, 1)
    async with worker(bus, "a", answer("One.")):
        await allow(session, 1)
        await eventually(lambda: len(loop_lines(caplog)) == 3)  # as above
    assert [line[0] for line in loop_lines(caplog)] == ["loop.begun", "loop.resumed", "loop.ended"]
