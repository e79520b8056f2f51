"""Sessions whose agent raises, asks for a delay, or is unknown to the worker."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest

from lanebus.agent import Agent, AgentLoop, Run, TryAgain, Worker, WorkerBounds
from lanebus.bounds import ConnectionBounds, WorkBounds
from lanebus.bus import Bounds, Bus, Consumer, Lease, Leases, RetryPolicy, Session, Work
from lanebus.bus.wire import Keys
from lanebus.errors import Refused
from lanebus.handlers.agent import ServerHealth
from lanebus.handlers.agent.worker.services import AckBatcher
from lanebus.messages import Abort, AgentEnded, AgentStarted, AssistantMessage, ControlAnswered, UserMessage
from lanebus.messages import Pause as PauseCommand
from tests.support.agent.agents import Pause, ScriptedModel, answer
from tests.support.agent.logs import answers, events, events_of, messages, said, until, wait_for
from tests.support.log.groups import pending, take_one
from tests.support.log.late import Late
from tests.support.servers.real import AnyServer, RealServer, eventually, shortly

BOUNDS = WorkerBounds()
AT_ONCE = RetryPolicy(attempts=3, base=0.0)


@asynccontextmanager
async def working(
    bus: Bus,
    agent: Agent,
    *,
    agents: Mapping[str, Agent] | None = None,
    retry: RetryPolicy = AT_ONCE,
    concurrency: int = 32,
    heartbeat: float = 60,
    bounds: WorkerBounds = BOUNDS,
) -> AsyncGenerator[Worker]:
    worker = Worker(bus, agent, agents=agents, retry=retry, concurrency=concurrency, heartbeat=heartbeat, bounds=bounds)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        yield worker
        worker.stop()


class Faulty:
    """An agent that raises a number of times in each session before it answers, and notes its calls."""

    def __init__(self, *errors: Exception) -> None:
        self._errors, self.calls = list(errors), 0
        self._echo = AgentLoop(ScriptedModel(*[answer("Yes.")] * 20))

    async def __call__(self, run: Run) -> None:
        self.calls += 1
        if self._errors:
            raise self._errors.pop(0)
        await self._echo(run)


async def test_an_error_is_retried_in_silence_until_the_last_attempt_and_all_go_on(bus: Bus, session: Session) -> None:
    agent, other = Faulty(OSError("one"), OSError("two")), bus.session("s2")
    async with working(bus, agent) as worker:
        await session.publish(UserMessage.text("hello?"))
        await wait_for(session, "agent.ended")
        assert (agent.calls, worker.counts.rescheduled, worker.counts.given_up) == (3, 2, 0)
        assert not [text for text in await said(session) if text.startswith("assistant error")]
        assert await bus.dead_letters("agents").count() == 0
    agent = Faulty(OSError("one"), OSError("two"), OSError("three"), KeyError("no"))
    async with working(bus, agent, retry=RetryPolicy(retried=(OSError,), attempts=3, base=0)) as worker:
        await other.publish(UserMessage.text("hello?"))
        await wait_for(other, "assistant error")
        await other.publish(UserMessage.text("and now?"))
        await wait_for(other, "assistant error", 2)
        assert (agent.calls, worker.counts.given_up) == (4, 2), "the last one is not retried"
        await other.publish(UserMessage.text("and now?"))
        await wait_for(other, "agent.ended")
    failed = next(m for m in await answers(other))
    assert failed.error_message == "OSError: three"
    letter, _ = [letter async for letter in bus.dead_letters("agents").read()]
    assert (letter.session, letter.reason, letter.attempts) == ("s2", "OSError: three", 3)
    assert b"hello?" in letter.raw


async def test_a_rescheduled_session_frees_its_slot_and_counts_no_attempt(bus: Bus, session: Session) -> None:
    other = bus.session("s2")
    asked = Pause()
    echo = AgentLoop(ScriptedModel(*[answer("Yes.")] * 20))
    tries = 0

    async def agent(run: Run) -> None:
        nonlocal tries
        if run.session.id == "s1" and not asked.over.is_set():
            tries += 1
            raise TryAgain(0.01, "not yet")
        await echo(run)

    async with working(bus, agent, concurrency=1) as worker:
        await session.publish(UserMessage.text("hello?"))
        await eventually(lambda: tries >= 5)  # more attempts than after an error
        await other.publish(UserMessage.text("hello?"))
        await wait_for(other, "agent.ended")
        asked.over.set()
        await wait_for(session, "agent.ended")
        assert worker.counts.given_up == 0


async def test_a_lease_that_a_retry_releases_does_not_count_as_lost(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    beat, release = Consumer.heartbeat, Leases.release
    beats = 0

    async def counted(consumer: Consumer, *works: Work) -> list[Work]:
        nonlocal beats
        lost = await beat(consumer, *works)
        beats += 1
        return lost

    async def slow(leases: Leases, held: Sequence[Lease], *, wake: bool = False, rest: float = 0.0) -> None:
        await release(leases, held, wake=wake, rest=rest)
        until_beat = beats + 2  # the leases are renewed before each of them
        await eventually(lambda: beats >= until_beat)

    monkeypatch.setattr(Consumer, "heartbeat", counted)
    monkeypatch.setattr(Leases, "release", slow)
    agent = Faulty(TryAgain(0, "not yet"))
    bounds = WorkerBounds(renewals=600)
    async with working(bus, agent, bounds=bounds) as worker:
        await bus.session("s1").publish(UserMessage.text("hello?"))
        await wait_for(bus.session("s1"), "agent.ended")
        assert (worker.counts.rescheduled, worker.counts.leases_lost) == (1, 0)


async def test_during_the_backoff_of_a_session_messages_wait_and_commands_do_not(bus: Bus, session: Session) -> None:
    agent = Faulty(TryAgain(600, "later"))
    async with working(bus, agent) as worker:
        await session.publish(UserMessage.text("hello?"))
        await eventually(lambda: worker.counts.rescheduled == 1)
        await session.publish(UserMessage.text("well?"))

        async def is_put_off() -> bool:
            return (await bus.group_status("agents")).retries == 1

        await until(is_put_off)
        assert agent.calls == 1
        await session.publish(PauseCommand().as_extension())
        await eventually(lambda: agent.calls == 2)
        await wait_for(session, "agent.control.answered")


async def test_while_an_agent_only_waits_another_session_uses_its_slot(bus: Bus, session: Session) -> None:
    other = bus.session("s2")
    waits = Pause()
    echo = AgentLoop(ScriptedModel(*[answer("Yes.")] * 20))

    async def agent(run: Run) -> None:
        if run.session.id == "s1":
            async with run.idle():
                await waits.wait()
        await echo(run)

    async with working(bus, agent, concurrency=1):
        await session.publish(UserMessage.text("hello?"))
        await waits.reached.wait()
        await other.publish(UserMessage.text("hello?"))
        await wait_for(other, "agent.ended")
        waits.over.set()
        await wait_for(session, "agent.ended")


async def _nothing(run: Run) -> None:
    del run


async def _talks(run: Run) -> None:
    await run.publish(AssistantMessage.text("Yes."))


@pytest.mark.parametrize("agent", [_nothing, _talks])
async def test_a_command_to_an_agent_that_knows_none_is_refused(bus: Bus, session: Session, agent: Agent) -> None:
    await session.publish(PauseCommand().as_extension())
    async with working(bus, agent):
        await wait_for(session, "agent.control.answered")
    (event,) = await events_of(session, ControlAnswered)
    assert event.outcome == "refused"
    assert len(await said(session)) <= 5


async def test_an_agent_that_fails_leaves_no_loop_open_and_no_command_unanswered(bus: Bus, session: Session) -> None:
    async def begins(run: Run) -> None:
        await run.publish(AgentStarted(loop_id="s1.main.1", agent="a").as_extension(), key="started")
        raise OSError("one")

    async with working(bus, begins):
        await session.publish(UserMessage.text("hello?"), PauseCommand().as_extension())
        await wait_for(session, "agent.control.answered")
    told = await events(session)
    assert [event.stop_reason for event in told if isinstance(event, AgentEnded)] == ["error"]
    assert [event.outcome for event in told if isinstance(event, ControlAnswered)] == ["refused"]


async def test_a_lost_lease_is_logged_and_counted(server: AnyServer, caplog: pytest.LogCaptureFixture) -> None:
    began = anyio.Event()

    async def waits(run: Run) -> None:
        del run
        began.set()
        await anyio.sleep_forever()

    async with server.bus() as bus, Worker(bus, waits, name="w1", heartbeat=0.9) as worker:
        await bus.session("s").publish(UserMessage.text("hello"))
        await began.wait()
        server.do("HINCRBY", Keys().head("s"), "epoch", "1")
        await eventually(lambda: worker.counts.leases_lost > 0)
    lost = [vars(each) for each in caplog.records if vars(each).get("event") == "lease.lost"]
    assert {(each["session"], each["worker"]) for each in lost} == {("s", "w1")}


async def test_a_fault_is_not_over_while_a_retry_is_under_way(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a user lacks a right. The worker retries on its own before the beat at which it would try a session."""
    pause, beats = Pause(), 0

    class RefusedOnce:
        calls = 0

        async def __call__(self, run: Run) -> None:
            self.calls += 1
            if self.calls == 1:
                raise Refused("NOPERM", "xrange")
            await pause.over.wait()
            await AgentLoop(ScriptedModel(answer("Yes.")))(run)

    agent = RefusedOnce()
    async with working(bus, agent, heartbeat=5) as worker:
        note = worker.health.note

        def counted(what: str, error: Exception | None) -> None:
            nonlocal beats
            beats += what == "fetch"
            note(what, error)

        monkeypatch.setattr(worker.health, "note", counted)
        await bus.session("s").publish(UserMessage.text("Well?"), wake=True)
        await eventually(lambda: agent.calls == 2)
        before = beats
        await eventually(lambda: beats >= before + 2)
        assert worker.health.faults == {"work": "NOPERM"}
        pause.over.set()
        await eventually(lambda: worker.health.faults == {})


# --- an agent that always raises stops its session, and no other ---------------------------------------------------

ONCE = RetryPolicy(attempts=1, base=0.0)


def has_given_up(worker: Worker, times: int) -> bool:
    return worker.counts.given_up == times


async def poison(run: Run) -> None:
    """Always raises."""
    raise OSError(run.session.id)


async def test_an_agent_that_fails_at_commands_too_is_not_called_forever(bus: Bus, session: Session) -> None:
    await session.publish(UserMessage.text("hello?"), Abort().as_extension())
    async with working(bus, poison, retry=ONCE) as worker:
        await eventually(lambda: worker.counts.given_up > 0)
        # Another session is answered later: by then a busy loop would have called the agent many times.
        await bus.session("s2").publish(UserMessage.text("hello?"))
        await eventually(lambda: worker.counts.given_up > 1)
    assert worker.counts.given_up == worker.counts.runs == 2
    assert sum(isinstance(message, AssistantMessage) for message in await messages(session)) == 1
    assert await bus.dead_letters("agents").count() == 2


@pytest.mark.full
async def test_messages_of_a_dead_letter_are_answered_after_its_redrive(bus: Bus, session: Session) -> None:
    agent = Faulty(OSError("one"), OSError("two"))
    letters = bus.dead_letters("agents")

    async def is_redriven() -> bool:
        return await letters.redrive_all() > 0

    async with working(bus, agent, retry=ONCE) as worker:
        await session.publish(UserMessage.text("hello?"))
        for failures in (1, 2):  # it can fail again for another reason
            await eventually(partial(has_given_up, worker, failures))
            await until(is_redriven)
        await wait_for(session, "agent.ended")
    assert [text for text in await said(session) if text.startswith("assistant stop")] == ["assistant stop: Yes."]
    assert await letters.count() == 0


@pytest.mark.full
async def test_redriving_a_dead_letter_of_a_session_that_continued_repeats_nothing(bus: Bus, session: Session) -> None:
    agent = Faulty(OSError("one"))
    letters = bus.dead_letters("agents")

    async def is_idle() -> bool:
        status = await bus.group_status("agents")
        return not status.retries and not status.consumers[0].sessions

    async with working(bus, agent, retry=ONCE) as worker:
        await session.publish(UserMessage.text("hello?"))
        await eventually(lambda: worker.counts.given_up == 1)
        await session.publish(UserMessage.text("and now?"))
        await wait_for(session, "agent.ended")
        position = (await session.head()).position
        assert await letters.redrive_all() == 1
        await until(is_idle)
    assert (await session.head()).position == position


async def test_a_session_that_failed_once_and_then_kills_its_workers_is_given_up(bus: Bus, session: Session) -> None:
    agent = Faulty()
    await session.publish(UserMessage.text("hello?"))
    async with bus.consumer("agents", "dead") as consumer:
        work = await take_one(consumer)
        await consumer.nack(work, delay=0, error="OSError: one", attempts=13)
    async with working(bus, agent) as worker:
        await eventually(lambda: worker.counts.given_up == 1)
    assert agent.calls == 0


async def test_messages_before_a_close_are_answered_after_the_reopening(bus: Bus, session: Session) -> None:
    asked = Pause()
    echo = AgentLoop(ScriptedModel(answer("Yes.")))

    async def agent(run: Run) -> None:
        await asked.wait()
        await echo(run)

    async def is_done() -> bool:  # the worker has found it closed
        return not (await bus.group_status("agents")).pending

    async with working(bus, agent):
        await session.publish(UserMessage.text("hello?"))
        await asked.reached.wait()
        await session.close()
        asked.over.set()
        await until(is_done)
        await session.reopen()
        await wait_for(session, "agent.ended")


# --- acks that the server refuses or does not answer ---------------------------------------------------------------


async def test_work_is_acked_even_if_its_lease_cannot_be_released(bus: Bus, valkey: RealServer) -> None:
    async with bus.consumer("agents", "w") as consumer:
        await bus.session("s1").publish(UserMessage.text("hello?"))
        work = await take_one(consumer)
        lease = (await bus.leases.take("s1", "w", 60)).lease
        assert lease is not None
        finishing = AckBatcher(bus.leases, consumer)
        finishing.release(lease)
        finishing.ack(work, 0)
        valkey.do("CONFIG", "SET", "maxmemory", "1")  # a lease needs memory, an ack does not
        await finishing.flush()
        assert not pending(valkey, "agents")


@pytest.mark.full
async def test_work_that_cannot_be_rescheduled_is_done_once_the_server_has_memory(valkey: RealServer) -> None:
    echo = AgentLoop(ScriptedModel(*[answer("Yes.")] * 3))
    is_full = False

    async def agent(run: Run) -> None:
        nonlocal is_full
        if not is_full:
            is_full = True
            valkey.do("CONFIG", "SET", "maxmemory", "1")
            raise TryAgain(0, "not yet")
        await echo(run)

    async with valkey.bus() as bus, working(bus, agent, heartbeat=2):
        await bus.session("s1").publish(UserMessage.text("hello?"))
        await eventually(lambda: valkey.do("CONFIG", "GET", "maxmemory") == ["maxmemory", "1"])
        assert pending(valkey, "agents")
        valkey.do("CONFIG", "SET", "maxmemory", "0")
        await eventually(lambda: not pending(valkey, "agents"))


async def test_a_refusal_is_over_once_no_ack_is_left_to_repeat(valkey: RealServer) -> None:
    """Otherwise the worker would never fetch again: work whose ack is lost is delivered to those that fetch."""
    bounds = Bounds(connection=ConnectionBounds(retrying_seconds=0.05))
    async with valkey.bus(bounds=bounds) as bus, bus.consumer("agents", "w") as consumer:
        await bus.session("s1").publish(UserMessage.text("hello?"))
        work = await take_one(consumer)
        health = ServerHealth()
        finishing = AckBatcher(bus.leases, consumer, health=health)
        finishing.ack(work, 0)
        valkey.do("ACL", "SETUSER", "default", "-hdel")
        assert await finishing.flush() == ()
        assert health.faults == {"ack": "NOPERM"}
        valkey.kill()
        assert await finishing.flush() == [work]  # lost, so it is delivered again
        assert health.faults == {}
        valkey.start()


# --- a session is delivered again before its worker knows that the job has ended. Every message is answer --------

ENDINGS: Mapping[str, tuple[str, Exception | None]] = {
    "acknowledged": ("ack", None),
    "put off": ("nack", TryAgain(0, "not yet")),
    "set aside": ("dead_letter", KeyError("no")),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_message_at_the_end_of_a_job_is_answered_even_if_the_worker_learns_of_the_end_later(
    ending: str, shared_valkey: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, error = ENDINGS[ending]
    errors = [error] if error is not None else []
    echo = AgentLoop(ScriptedModel(*[answer("Yes.")] * 5))

    async def agent(run: Run) -> None:
        if errors:
            raise errors.pop()
        await echo(run)

    rare = Bounds(work=WorkBounds(sweep_seconds=600))  # no sweep finds lost work
    async with shared_valkey.bus(bounds=rare) as bus, anyio.create_task_group() as tasks:
        worker = Worker(bus, agent, heartbeat=600, retry=RetryPolicy(retried=(OSError,), base=0))
        session = bus.session("s1")
        late = Late(monkeypatch, step)
        tasks.start_soon(worker.run)
        await session.publish(UserMessage.text("hello?"))
        async with shortly():
            await late.done.wait()
            await session.publish(UserMessage.text("and now?"))
            await late.given.wait()
        late.told.set()
        await wait_for(session, "agent.ended", count=2 if error is None else 1)

        async def is_done() -> bool:
            return (await bus.group_status("agents")).pending == 0

        await until(is_done)
        worker.stop()
