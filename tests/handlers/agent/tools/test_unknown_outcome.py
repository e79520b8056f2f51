"""A call whose start is recorded and whose end is not has an unknown outcome, whatever ends the wait for it.

A call that was not started is told as skipped, aborted or denied.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal, NamedTuple

import anyio
import pytest
from anyio.to_thread import run_sync

from lanebus.agent import AgentLoop, FunctionTool, Recorder, Run, Worker, abort, deny, pause, resume, steer, tool
from lanebus.bus import Bus, RetryPolicy, Session
from lanebus.bus.messages import AssistantMessage, UserMessage
from lanebus.messages import AgentEvent, Approve, ToolCallBlock, ToolEnded, ToolStarted, ToolWaiting, TurnId
from lanebus.projections import TURNS, project
from tests.support.agent.agents import SECONDS, ScriptedModel, answer, calls, fresh_bus, short_folder, take_run
from tests.support.agent.logs import events_of, results, wait_for
from tests.support.agent.runs import called, work
from tests.support.agent.tool_process import CASES, tool_of
from tests.support.agent.tool_runs import command, go_on
from tests.support.agent.tool_runs import results as texts_of
from tests.support.cli.starter import Starter

TURN = TurnId(loop_id="s1.main.1", turn_index=0)
ONE, TWO = ToolCallBlock(id="c1", name="pay"), ToolCallBlock(id="c2", name="later")
SKIPPED, ABORTED = "Skipped due to queued user message.", "Aborted by the user"


class Told(NamedTuple):
    """What the model, the events and the projection say of a call."""

    text: str
    outcome: str | None
    fault: str


async def told(session: Session) -> dict[str, Told]:
    """Return what is said of each call of the session, by its id; each call has one result and one end."""
    texts = await results(session)
    ends = await events_of(session, ToolEnded)
    runs = {run.id: run for turn in (await project(session, TURNS)).state.turns for run in turn.tools}
    assert len({each.tool_call_id for each in texts}) == len(texts) == len(ends)
    assert all(each.is_error and runs[each.tool_call_id].outcome == each.outcome for each in ends)
    outcomes = {each.tool_call_id: each.outcome for each in ends}
    return {
        each.tool_call_id: Told(each.text_content(), outcomes[each.tool_call_id], runs[each.tool_call_id].fault)
        for each in texts
    }


def is_unknown(found: Told, cause: str) -> bool:
    """Whether the outcome of the call `pay` is told as unknown, with this cause."""
    assert found.text.startswith(f"Unknown outcome: pay was started, but {cause}. It may have done all, part"), found
    assert found[1:] == ("unknown", "with unknown outcome")
    return True


BY_ABORT = "it was aborted before a result came"
BY_MESSAGE = "a new user message stopped it before a result came"
LOST = "its worker was lost before a result came"


async def aborts(session: Session) -> None:
    await abort(session)


async def steers(session: Session) -> None:
    await steer(session, "something else", when="now")


async def speaks(session: Session) -> None:
    await session.publish(UserMessage.text("something else"))


Command = Callable[[Session], Awaitable[None]]


# --- a tool that runs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize(
    ("command", "cause", "other"),
    [(aborts, BY_ABORT, (ABORTED, "aborted")), (steers, BY_MESSAGE, (SKIPPED, "skipped"))],
)
async def test_a_command_that_stops_a_tool_leaves_its_outcome_unknown_and_skips_the_others(
    bus: Bus, session: Session, command: Command, cause: str, other: tuple[str, str], *, idempotent: bool
) -> None:
    paid = anyio.Event()

    @tool(name="pay", idempotent=idempotent)
    async def pay() -> str:
        paid.set()
        await anyio.sleep_forever()
        return ""

    @tool(name="later", sequential=True)
    async def later() -> str:
        raise AssertionError("never started")

    await session.publish(UserMessage.text("pay"))
    model = ScriptedModel(calls(ONE, TWO), answer("Ok."))
    with anyio.fail_after(SECONDS):
        async with Worker(bus, AgentLoop(model, (pay, later))):
            await paid.wait()
            await command(session)
            await wait_for(session, "agent.ended")
    found = await told(session)
    assert is_unknown(found["c1"], cause)
    assert found["c2"][:2] == other


@pytest.mark.parametrize(
    ("raises", "seconds", "cause"),
    [
        (False, 0.01, "it was stopped after 0.01 s, before a result came"),
        (True, None, "it was cancelled before a result came"),
    ],
    ids=["time limit", "cancels itself"],
)
async def test_a_tool_that_does_not_come_to_its_end_has_an_unknown_outcome(
    bus: Bus, session: Session, seconds: float | None, cause: str, *, raises: bool
) -> None:
    @tool(name="pay", timeout=seconds)
    async def pay() -> str:
        if raises:
            raise asyncio.CancelledError
        await anyio.sleep_forever()
        return ""

    await session.publish(UserMessage.text("pay"))
    async with Worker(bus, AgentLoop(ScriptedModel(calls(ONE), answer("Ok.")), (pay,))):
        await wait_for(session, "agent.ended")
    assert is_unknown((await told(session))["c1"], cause)


# --- a tool whose worker was lost ---------------------------------------------------------------------------------


async def crashed(run: Run, *events: AgentEvent) -> None:
    """Return a log whose worker was lost after the start of the call `c1`; the call `c2` was not started."""
    await run.session.publish(UserMessage.text("pay"))
    started = ToolStarted(turn_id=TURN, tool_call_id="c1", tool_name="pay")
    await run.publish(*called(ONE, TWO, then=[started, *events]))


def waits(call: ToolCallBlock, why: str) -> ToolWaiting:
    return ToolWaiting.model_validate({"turn_id": TURN, "tool_call_id": call.id, "tool_name": call.name, "why": why})


def paying(*, idempotent: bool = False, on_unknown: Literal["tell", "ask"] = "tell") -> FunctionTool:
    @tool(name="pay", idempotent=idempotent, on_unknown=on_unknown)
    async def pay() -> str:
        raise AssertionError("paid twice")

    return pay


@tool(name="later", approval=True)
async def later() -> str:
    raise AssertionError("nobody approves it")


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize(("command", "other"), [(aborts, (ABORTED, "aborted")), (steers, (SKIPPED, "skipped"))])
async def test_a_command_after_a_crash_does_not_count_as_what_stopped_the_lost_call(
    session: Session, command: Command, other: tuple[str, str], *, idempotent: bool
) -> None:
    run = await take_run(session)
    await crashed(run)
    await command(session)
    await work(AgentLoop(ScriptedModel(answer("Ok.")), (paying(idempotent=idempotent), later)), run)
    found = await told(session)
    assert is_unknown(found["c1"], LOST)
    assert found["c2"][:2] == other


async def denies(session: Session) -> None:
    await deny(session, TURN, "c1")
    await deny(session, TURN, "c2")


@pytest.mark.parametrize(
    ("command", "other"),
    [
        *((aborts, (ABORTED, "aborted")), (steers, (SKIPPED, "skipped")), (speaks, (SKIPPED, "skipped"))),
        (denies, ("Denied by the user", "denied")),
    ],
)
async def test_a_command_while_a_person_is_asked_about_the_lost_call_leaves_its_outcome_unknown(
    session: Session, command: Command, other: tuple[str, str]
) -> None:
    run = await take_run(session)
    await crashed(run, waits(ONE, "unknown"), waits(TWO, "approval"))
    await command(session)
    await work(AgentLoop(ScriptedModel(answer("Ok.")), (paying(on_unknown="ask"), later)), run)
    found = await told(session)
    assert is_unknown(found["c1"], LOST)
    assert found["c2"][:2] == other


async def test_a_started_call_whose_tool_has_vanished_has_an_unknown_outcome(session: Session) -> None:
    run = await take_run(session)
    await crashed(run)
    await work(AgentLoop(ScriptedModel(answer("Ok.")), ()), run)
    found = await told(session)
    assert is_unknown(found["c1"], f"{LOST}, and the agent has no tool of this name any more")
    assert found["c2"][:2] == ("Tool later not found", "failed")


async def test_an_abort_of_a_paused_loop_closes_its_open_calls(session: Session) -> None:
    run = await take_run(session)
    await crashed(run, waits(ONE, "unknown"), waits(TWO, "approval"))
    agent = AgentLoop(ScriptedModel(answer("Ok.")), (paying(on_unknown="ask"), later))
    await pause(session)
    await work(agent, run)
    assert await told(session) == {}
    await aborts(session)
    await work(agent, run)
    await resume(session)
    await speaks(session)
    await work(agent, run)
    found = await told(session)
    assert is_unknown(found["c1"], LOST)
    assert found["c2"][:2] == (ABORTED, "aborted")


@pytest.mark.parametrize("command", [aborts, steers])
async def test_a_command_stops_the_running_call_and_not_the_lost_one(session: Session, command: Command) -> None:
    cause, begun = (BY_ABORT if command is aborts else BY_MESSAGE), anyio.Event()

    @tool(name="later")
    async def runs() -> str:
        begun.set()
        await anyio.sleep_forever()
        return ""

    run = await take_run(session)
    await crashed(run, waits(ONE, "unknown"))
    agent = AgentLoop(ScriptedModel(answer("Ok.")), (paying(on_unknown="ask"), runs))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work, agent, run)
        await begun.wait()
        await command(session)
    found = await told(session)
    assert is_unknown(found["c1"], LOST)
    assert found["c2"].text.startswith(f"Unknown outcome: later was started, but {cause}.")


async def test_a_worker_that_gives_a_session_up_closes_its_open_calls(bus: Bus, session: Session) -> None:
    async def breaks(run: Run) -> None:
        del run
        raise KeyError("no")

    run = await take_run(session)
    await crashed(run)
    await session.release_lease(run.lease)
    async with Worker(bus, breaks, retry=RetryPolicy(retried=(), base=0)):
        await wait_for(session, "agent.ended")
    found = await told(session)
    assert is_unknown(found["c1"], LOST)
    assert found["c2"][:2] == ("Not finished: KeyError: 'no'", "failed")


# --- a loop of one's own ------------------------------------------------------------------------------------------


async def test_a_recorded_turn_that_fails_or_ends_says_which_call_had_started() -> None:
    for ends, cause, other in (
        (True, LOST, (SKIPPED, "skipped")),
        (False, "the loop ended before a result came: KeyError: 'no'", ("Not finished: KeyError: 'no'", "failed")),
    ):
        async with fresh_bus() as bus:
            session = bus.session("s1")
            if ends:
                run = await take_run(session)
                await crashed(run)
                await session.release_lease(run.lease)
                async with Recorder(session) as recorder:
                    await recorder.end()
            else:
                await session.publish(UserMessage.text("pay"))
                with pytest.raises(KeyError):  # noqa: PT012  # the whole block raises
                    async with Recorder(session) as recorder, recorder.turn(model="m-1") as turn:
                        await turn.answer(AssistantMessage(content=(ONE, TWO), stop_reason="toolUse"))
                        with anyio.CancelScope() as scope:
                            async with turn.tool(ONE):
                                scope.cancel()
                                await anyio.sleep_forever()
                        raise KeyError("no")
            found = await told(session)
            assert is_unknown(found["c1"], cause)
            assert found["c2"][:2] == other


async def test_a_tool_that_asks_for_its_approval_from_within_counts_as_not_started(session: Session) -> None:
    run = await take_run(session)
    await crashed(run, waits(ONE, "approval"), waits(TWO, "approval"))
    await speaks(session)
    await work(AgentLoop(ScriptedModel(answer("Ok.")), (paying(), later)), run)
    assert [each[:2] for each in (await told(session)).values()] == [(SKIPPED, "skipped")] * 2


# --- a worker that is killed during a call ---------------------------------------------------------------------


KEY = f"{TURN}.0"


async def kill_worker(starter: Starter, folder: Path, case: str) -> None:
    """Run the process up to the point of its case, and kill it there."""
    with starter.running("tests.support.agent.tool_process", str(folder), case) as process:
        assert process.stdout is not None
        assert await run_sync(process.stdout.readline) == "ready\n"


@pytest.mark.full
@pytest.mark.parametrize(
    ("case", "outside", "result", "attempts"),
    [
        ("asked for", [f"{KEY} 1"], "done", [None]),
        ("started", [f"{KEY} 1"], "Unknown outcome: a was started", [None]),
        ("idempotent", [f"{KEY} 1", f"{KEY} 2"], "done", [None, 2]),
        ("in a thread", [f"{KEY} 1", f"{KEY} 2"], "done", [None, 2]),
        ("waiting", [f"{KEY} 1"], "done", [None]),
    ],
)
async def test_a_call_of_a_killed_worker_is_continued_as_its_tool_allows(
    starter: Starter, case: str, outside: list[str], result: str, attempts: list[int | None]
) -> None:
    assert case in CASES
    async with short_folder() as folder, Bus.open(data_dir=folder / "d") as bus:
        await kill_worker(starter, folder, case)
        run = await take_run(bus.session("s1"))
        subject = tool_of(case, folder / "outside", hangs=False)
        await go_on(run, subject)
        if case == "waiting":
            assert not (folder / "outside").exists()
            await command(run, Approve(turn_id=TURN, tool_call_id="c0"))
            await go_on(run, subject)
        assert (folder / "outside").read_text().splitlines() == outside
        ((_, text),) = await texts_of(run.session)
        assert text.startswith(result)
        assert [e.attempt for e in await events_of(run.session, ToolStarted)] == attempts
