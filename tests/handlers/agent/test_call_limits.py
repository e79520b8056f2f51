"""Calls of models and tools that hang end at the loop's time limit or after a silence, and are recorded."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from lanebus.agent import (
    AgentLoop,
    CompactionPolicy,
    Compactor,
    FunctionTool,
    ModelEvent,
    SubAgent,
    TryAgain,
    WorkerBounds,
    request_compaction,
    tool,
)
from lanebus.bus import Bus, RetryPolicy, Session
from lanebus.bus.messages import AgentEnded, AssistantMessage, Compaction, ToolCallBlock, TurnEnded, Usage, UsageSettled
from lanebus.handlers.agent import LoopLimits, ModelRequest, Run, Worker, approve, failure_of
from lanebus.handlers.agent.turn.loop_state import AGAIN, CUT
from lanebus.handlers.providers import Begun, Piece
from tests.support.agent.agents import Pause, ScriptedModel, Step, answer, calls, take_run
from tests.support.agent.clock import ManualClock
from tests.support.agent.logs import answers, events, events_of, log, messages, results, said, wait_for
from tests.support.agent.runs import ask, at_work, work
from tests.support.servers.real import background, eventually


@asynccontextmanager
async def hanging(session: Session, agent: AgentLoop, pause: Pause, clock: ManualClock) -> AsyncGenerator[None, None]:
    """Run the agent until it hangs there and its time is watched. The end of the block waits until it has ended."""
    async with at_work(session, agent, pause):
        await eventually(lambda: clock.sleepers == 1)
        yield


CALL, OTHER = ToolCallBlock(id="c1", name="slow"), ToolCallBlock(id="c2", name="other")


async def test_a_model_call_is_cut_at_the_loops_time_limit_and_the_loop_ends(session: Session) -> None:
    clock, first, hangs = ManualClock(), Pause(), Pause()
    await ask(session)
    said_so_far: list[Step] = [Begun(), Piece("text", "As I was "), first, Piece("text", "saying")]
    model = ScriptedModel([*said_so_far, hangs], answer("Yes."))
    agent = AgentLoop(model, limits=LoopLimits(seconds=60), silence_seconds=None, drain_seconds=0.01, clock=clock)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work, agent, await take_run(session))
        await first.reached.wait()
        await eventually(lambda: clock.sleepers == 1)
        clock.move(59.0)
        await anyio.wait_all_tasks_blocked()
        first.over.set()
        await hangs.reached.wait()
        clock.move(1.0)
    cut = (await messages(session))[-2]
    assert isinstance(cut, AssistantMessage)
    assert (cut.stop_reason, cut.error_message) == ("aborted", "time limit of 60 s reached")
    assert cut.text_content() == "As I was saying", "nothing has cut it before its time"
    assert (cut.metadata or {})[CUT]
    assert cut.usage is not None, "what it cost is estimated, as for an abort"
    assert cut.usage.estimated
    assert (await said(session))[-2:] == ["user: [Agent stopped: time limit of 60 s reached]", "agent.ended"]
    ended = await events_of(session, AgentEnded)
    assert [(event.stop_reason, event.turns) for event in ended] == [("guardRail", 1)]
    assert await session.open_messages() == []
    # A message from now on is answered in a new loop with its own limit.
    await ask(session, "and?")
    await work(agent, await take_run(session))
    assert (await said(session))[-1] == "agent.ended"


async def test_a_second_model_call_has_the_time_left_by_the_first(session: Session) -> None:
    clock, hangs = ManualClock(), Pause()

    @tool
    async def slow() -> str:
        clock.move(40.0)
        return "done"

    await ask(session)
    model = ScriptedModel(calls(CALL), [hangs])
    agent = AgentLoop(model, (slow,), limits=LoopLimits(seconds=60), drain_seconds=0.01, clock=clock)
    async with hanging(session, agent, hangs, clock):
        clock.move(21.0)
    assert (await said(session))[-1] == "agent.ended"
    assert len(model.requests) == 2


async def test_a_call_cut_by_the_time_limit_is_reconciled(session: Session) -> None:
    class Settled(ScriptedModel):
        async def settle(self, message: AssistantMessage) -> Usage | None:
            assert message.error_message == "time limit of 60 s reached"
            return Usage(input=7, output=3, total_tokens=10)

    clock, hangs = ManualClock(), Pause()
    await ask(session)
    agent = AgentLoop(Settled([Begun(), hangs]), limits=LoopLimits(seconds=60), drain_seconds=0.01, clock=clock)
    async with hanging(session, agent, hangs, clock):
        clock.move(60.0)
    settled = await events_of(session, UsageSettled)
    assert [event.usage.total_tokens for event in settled] == [10]


async def test_a_silent_model_has_failed_transiently_and_is_called_again(session: Session) -> None:
    clock, first, hangs = ManualClock(), Pause(), Pause()
    second = Pause()
    await ask(session)
    spoken: list[Step] = [Piece("text", "Well"), first, Piece("text", ", "), second, Piece("text", "then")]
    model = ScriptedModel([*spoken, hangs], answer("Yes."))
    agent = AgentLoop(model, retry=RetryPolicy(attempts=2, base=0), drain_seconds=0.01, clock=clock)

    async def run_twice() -> None:
        run = await take_run(session)
        with pytest.raises(TryAgain, match="the model said nothing for 300 s"):
            await agent(run)
        await agent(run)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_twice)
        await first.reached.wait()
        await eventually(lambda: clock.sleepers == 1)
        clock.move(299.0)
        await anyio.wait_all_tasks_blocked()
        first.over.set()
        await second.reached.wait()  # a piece arrived: the time begins again
        clock.move(299.0)
        await anyio.wait_all_tasks_blocked()
        second.over.set()
        await hangs.reached.wait()
        clock.move(300.0)
    cut, whole = await answers(session)
    assert (cut.stop_reason, cut.text_content()) == ("error", "Well, then")
    assert (cut.metadata or {})[AGAIN]
    failure = failure_of(cut)
    assert failure is not None
    assert (failure.code, failure.is_transient) == ("silence", True)
    assert whole.text_content() == "Yes."


async def test_without_limits_a_silent_model_is_waited_for(session: Session) -> None:
    clock, hangs = ManualClock(), Pause()
    await ask(session)
    agent = AgentLoop(ScriptedModel([hangs, *answer("At last.")]), silence_seconds=None, clock=clock)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work, agent, await take_run(session))
        await hangs.reached.wait()
        clock.move(1e9)
        assert clock.sleepers == 0, "no time is watched"
        hangs.over.set()
    assert "assistant stop: At last." in await said(session)


async def test_tools_are_stopped_at_the_loops_time_limit(session: Session) -> None:
    clock, hangs = ManualClock(), Pause()

    @tool
    async def slow() -> str:
        await hangs.wait()
        return "never"

    @tool(sequential=True)
    async def other() -> str:
        raise AssertionError

    await ask(session)
    agent = AgentLoop(ScriptedModel(calls(CALL, OTHER)), (slow, other), limits=LoopLimits(seconds=60), clock=clock)
    async with hanging(session, agent, hangs, clock):
        clock.move(60.0)
    found = await results(session)
    assert [result.is_error for result in found] == [True, True]
    started, other_one = (result.text_content() for result in found)
    assert started.startswith(
        "Unknown outcome: slow was started, but it was stopped before a result came: time limit of 60 s reached."
    )
    assert other_one == "Skipped: time limit of 60 s reached"
    assert (await said(session))[-1] == "agent.ended"
    assert [event.turns for event in await events_of(session, AgentEnded)] == [1]
    assert len(await events_of(session, TurnEnded)) == 1


@pytest.mark.parametrize("exempt", ["no time-out", "sub-agent", "person"])
async def test_exempt_tools_are_not_stopped_by_the_loops_time_limit(bus: Bus, session: Session, exempt: str) -> None:
    clock, pause = ManualClock(), Pause()

    async def work_slowly() -> str:
        await pause.wait()
        return "done"

    async def child(run: Run) -> None:
        await pause.wait()
        await AgentLoop(ScriptedModel(answer("done")))(run)

    tools: dict[str, FunctionTool | SubAgent] = {
        "no time-out": tool(name="slow", timeout=None)(work_slowly),
        "sub-agent": SubAgent("slow", child, "Slow."),
        "person": tool(name="slow", approval=True)(work_slowly),
    }
    slow = tools[exempt]
    call = CALL.model_copy(update={"arguments": {"task": "Do it."} if exempt == "sub-agent" else {}})
    agent = AgentLoop(ScriptedModel(calls(call)), (slow,), limits=LoopLimits(seconds=60), clock=clock)
    await ask(session)
    async with anyio.create_task_group() as tasks:
        worker = Worker(bus, agent, bounds=WorkerBounds(first_pause_seconds=0.01))
        tasks.start_soon(worker.run)
        if exempt == "person":
            await wait_for(session, "agent.tool.waiting")
            clock.move(30.0)
            waiting = (await events(session))[-1]
            await approve(session, getattr(waiting, "turn_id"), "c1")  # noqa: B009  # which event it is, is known
        await pause.reached.wait()
        clock.move(1_000.0)
        assert clock.sleepers == 0
        pause.over.set()
        await wait_for(session, "agent.ended")
        worker.stop()
    found = await results(session)
    assert [result.text_content() for result in found] == ["done"]
    assert (await said(session))[-2:] == ["user: [Agent stopped: time limit of 60 s reached]", "agent.ended"]


async def test_a_compaction_with_a_silent_model_is_retried(session: Session) -> None:
    clock, hangs = ManualClock(), Pause()
    await ask(session, "a" * 2_000)
    model = ScriptedModel(answer("b" * 2_000), [hangs], answer("A summary."))
    policy = CompactionPolicy(window=400, reserve=50, keep_recent=10, pause=0, drain_seconds=0.01, clock=clock)
    agent = AgentLoop(model, compaction=Compactor(model, policy), clock=clock)
    await work(agent, await take_run(session))
    await request_compaction(session)

    async def run_twice() -> None:
        run = await take_run(session)
        with pytest.raises(TryAgain, match="no summary: the model said nothing for 300 s"):
            await agent(run)
        await agent(run)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_twice)
        await hangs.reached.wait()
        await eventually(lambda: clock.sleepers == 1)
        clock.move(300.0)
    written = [entry.message for entry in await log(session)]
    assert [entry.summary for entry in written if isinstance(entry, Compaction)] == ["A summary."]


# --- models that ignore their cancellation ------------------------------------------------------------------------


class Deaf(ScriptedModel):
    """Ignores its cancellation, and streams more pieces when it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go, self.over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(request)
        yield Piece("text", "La la la")
        self.reached.set()
        while not self.go.is_set():
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                continue
        self.over.set()
        yield Piece("text", "late words")


async def test_a_model_that_ignores_its_cancellation_frees_its_slot_and_late_events_are_ignored(bus: Bus) -> None:
    clock, deaf = ManualClock(), Deaf()
    deaf_loop = AgentLoop(deaf, limits=LoopLimits(seconds=60), drain_seconds=0.01, clock=clock)
    other_loop = AgentLoop(ScriptedModel(answer("Yes.")))

    async def agent(run: Run) -> None:
        await (deaf_loop if run.session.id == "deaf" else other_loop)(run)

    worker = Worker(bus, agent, concurrency=1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await ask(bus.session("deaf"))
        await deaf.reached.wait()
        await ask(bus.session("other"))
        await eventually(lambda: clock.sleepers == 1)
        clock.move(60.0)
        await wait_for(bus.session("deaf"), "agent.ended")
        await wait_for(bus.session("other"), "agent.ended")
        worker.stop()
    deaf.go.set()
    await deaf.over.wait()
    await anyio.wait_all_tasks_blocked()
    (cut,) = await answers(bus.session("deaf"))
    assert cut.text_content() == "La la la", "nothing that it says later"


async def test_cancellation_passes_through_while_a_time_limit_is_watched(session: Session) -> None:
    clock, hangs = ManualClock(), Pause()
    await ask(session)
    agent = AgentLoop(ScriptedModel([Piece("text", "As I"), hangs]), limits=LoopLimits(seconds=60), clock=clock)
    run = await take_run(session)
    async with background() as tasks:
        tasks.start_soon(work, agent, run)
        await hangs.reached.wait()
        await eventually(lambda: clock.sleepers == 1)
    assert clock.sleepers == 0
    (cut,) = await answers(session)
    assert cut.error_message == "the worker was stopped"
