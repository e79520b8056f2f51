"""Open calls step by step: what is recorded before a tool runs and after it, and what a person decides."""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Literal, cast

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus import Bus, Receipt, Session, ToolResultMessage, UserMessage
from lanebus.agent import FunctionTool, Run, ToolContext, ToolReply, ToolSpec, tool
from lanebus.bus.messages import Abort, Deny, ExtensionMessage, Handoff, ToolCallBlock, ToolStarted, parse_control
from lanebus.bus.wire import ReservedKey
from lanebus.handlers.agent.tools.tool_executor import fail_calls, invoke_tool, run_tools
from lanebus.handlers.agent.turn.decision import ABORTED, SKIPPED
from lanebus.messages import AgentEnded, AgentEvent, Approve, Progress, Steer, ToolEnded, ToolWaiting, TurnEnded, TurnId
from tests.support.agent.agents import SECONDS, Pause, take_run
from tests.support.agent.logs import events, events_of, listed, log, said, wait_for
from tests.support.agent.tool_runs import called, command, go_on, open_answer, results, step
from tests.support.laws.held import held_loop
from tests.support.servers.real import RealServer, background
from tests.support.suite.scale import count, examples

TURN = TurnId(loop_id="s1.main.1", turn_index=0)
A, B, C = (ToolCallBlock(id=f"c{place}", name=name) for place, name in enumerate("abc"))


def makes(name: str, text: str | None = None, *, ran: list[str] | None = None) -> Callable[[], str]:
    """A function for a tool that notes its run and returns its text."""

    def function() -> str:
        if ran is not None:
            ran.append(name)
        return text or name.upper()

    return function


async def begun(session: Session, *wanted: ToolCallBlock) -> Run:
    """Return the run of a turn whose model has called tools."""
    run = await take_run(session)
    await called(run, *wanted)
    return run


async def tail(session: Session, after: str = "agent.message.ended") -> list[str]:
    """The entries after the answer."""
    entries = await said(session)
    return entries[entries.index(after) + 1 :]


async def of_tools(session: Session) -> list[AgentEvent]:
    return [event for event in await events(session) if isinstance(event, ToolStarted | ToolWaiting | ToolEnded)]


async def test_the_starts_of_calls_are_recorded_in_one_append_before_any_runs(session: Session) -> None:
    seen: list[list[str]] = []

    @tool(name="a")
    async def looks() -> str:
        seen.append(await tail(session))
        return "A"

    run = await begun(session, A, B)
    await go_on(run, looks, tool(name="b")(makes("b")))
    assert seen[0][:2] == ["agent.tool.started"] * 2
    assert await tail(session) == [
        *["agent.tool.started"] * 2,
        *("result: A", "agent.tool.ended", "result: B", "agent.tool.ended", "agent.turn.ended"),
    ]


async def test_a_call_is_not_run_if_another_run_has_recorded_its_start(session: Session) -> None:
    ran: list[str] = []
    subject = tool(name="a")(makes("a", ran=ran))
    run = await begun(session, A)
    answer, stale = await open_answer(run), await run.refresh()
    assert answer is not None
    await run.publish(ExtensionMessage.of("said"), key=ReservedKey(f"{TURN}.run.1.0"))
    await run_tools(run, {"a": subject}, answer, stale)
    assert ran == []


async def test_the_key_of_a_call_is_unique_and_the_same_at_each_attempt(session: Session) -> None:
    seen: list[tuple[str, str, int]] = []
    pause = Pause()

    async def notes(context: ToolContext) -> str:
        seen.append((context.call_id, context.key, context.attempt))
        await pause.wait()
        return "done"

    tools = [tool(name=name, idempotent=True)(notes) for name in "ab"]
    run = await begun(session, A, B)
    async with background() as tasks:
        tasks.start_soon(step, run, *tools)
        await wait_for(session, "agent.tool.started", 2)
        await pause.reached.wait()
    pause.over.set()
    await go_on(await take_run(session), *tools)
    assert sorted(seen) == [(f"c{place}", f"s1.main.1#0.{place}", attempt) for place in (0, 1) for attempt in (1, 2)]
    started = await events_of(session, ToolStarted)
    assert [event.attempt for event in started] == [None, None, 2, 2]


async def test_sequential_calls_run_after_the_others_one_by_one(session: Session) -> None:
    order: list[str] = []

    def alone(name: str) -> FunctionTool:
        async def function() -> str:
            order.append(f"{name} begins")
            await anyio.lowlevel.checkpoint()
            order.append(f"{name} ends")
            return name

        return tool(name=name, sequential=True)(function)

    run = await begun(session, A, B, C)
    await go_on(run, alone("a"), tool(name="b")(makes("b", ran=order)), alone("c"))
    assert order == ["b", "a begins", "a ends", "c begins", "c ends"]
    assert [call for call, _ in await results(session)] == ["c1", "c0", "c2"]
    (turn,) = await events_of(session, TurnEnded)
    by_call = {event.tool_call_id: event.position for event in await of_tools(session) if isinstance(event, ToolEnded)}
    assert turn.tool_results == (by_call["c0"], by_call["c1"], by_call["c2"])


# --- a person is asked --------------------------------------------------------------------------------------------


async def test_a_call_that_needs_an_approval_waits_and_blocks_no_other(session: Session) -> None:
    ran: list[str] = []
    tools = (tool(name="a", approval=True)(makes("a", ran=ran)), tool(name="b")(makes("b", ran=ran)))
    run = await begun(session, A, B)
    await go_on(run, *tools)
    assert ran == ["b"]
    assert await tail(session) == ["agent.tool.waiting", "agent.tool.started", "result: B", "agent.tool.ended"]
    before = await said(session)
    await go_on(run, *tools)
    assert await said(session) == before, "asked once"
    await command(run, Approve(turn_id=TURN, tool_call_id="c0"))
    await go_on(run, *tools)
    assert ran == ["b", "a"]
    assert await results(session) == [("c1", "B"), ("c0", "A")]
    assert (await said(session))[-1] == "agent.turn.ended"


@pytest.mark.parametrize("reason", [None, "too dear"])
async def test_a_denied_call_is_not_run_and_no_model_reads_the_reason(session: Session, reason: str | None) -> None:
    ran: list[str] = []
    subject = tool(name="a", approval=True)(makes("a", ran=ran))
    run = await begun(session, A)
    await go_on(run, subject)
    await command(run, Deny(turn_id=TURN, tool_call_id="c0", reason=reason))
    await go_on(run, subject)
    assert ran == []
    assert await tail(session) == listed(
        "agent.tool.waiting | control.deny | agent.control.answered | result error: Denied by the user | "
        "agent.tool.ended | agent.turn.ended"
    )


async def test_a_person_is_asked_for_arguments_that_need_approval_or_if_the_function_fails(session: Session) -> None:
    def is_any(amount: int) -> bool:
        if amount == 3:
            raise RuntimeError("no rule")
        return amount != 0

    @tool(name="a", approval=is_any)
    async def pays(amount: int) -> str:
        return f"paid {amount}"

    run = await take_run(session)
    amounts: tuple[JsonValue, ...] = (0, 1, "much", 3)
    await called(run, *(ToolCallBlock(id=f"c{n}", name="a", arguments={"amount": a}) for n, a in enumerate(amounts)))
    await go_on(run, pays)
    waiting = [event.tool_call_id for event in await events_of(session, ToolWaiting)]
    assert waiting == ["c1", "c3"]
    assert [call for call, _ in await results(session)] == ["c0", "c2"], "wrong arguments are nobody's to approve"


# --- what was started and left no result --------------------------------------------------------------------------


async def lost_in(session: Session, subject: FunctionTool, reached: anyio.Event) -> None:
    """Run a worker that is stopped while the tool runs."""
    run = await begun(session, A)
    async with background() as tasks:
        tasks.start_soon(step, run, subject)
        await reached.wait()


async def test_a_person_can_repeat_a_call_of_unknown_outcome_and_is_asked_each_time(session: Session) -> None:
    pause = Pause()
    ran: list[str] = []
    hangs = tool(name="a", on_unknown="ask")(pause.wait)
    await lost_in(session, hangs, pause.reached)
    for again in (hangs, tool(name="a", on_unknown="ask")(makes("a", ran=ran))):
        pause.reached = anyio.Event()
        run = await take_run(session)
        await go_on(run, again)
        asked = await events_of(session, ToolWaiting)
        assert asked[-1].why == "unknown"
        await command(run, Approve(turn_id=TURN, tool_call_id="c0"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(step, run, again)
            if again is hangs:
                await pause.reached.wait()
                tasks.cancel_scope.cancel()
    assert ran == ["a"]
    assert await results(session) == [("c0", "A")]
    kinds = [type(event) for event in await of_tools(session)]
    assert kinds == [ToolStarted, ToolWaiting, ToolStarted, ToolWaiting, ToolStarted, ToolEnded]


async def test_a_stopped_worker_records_the_results_so_far(session: Session) -> None:
    pause, second = Pause(), anyio.Event()

    async def is_done() -> str:
        await pause.reached.wait()
        second.set()
        return "B"

    run = await take_run(session)
    tools = (tool(name="a", idempotent=True)(pause.wait), tool(name="b")(is_done))
    await called(run, A, B)
    async with background() as tasks:
        tasks.start_soon(step, run, *tools)
        await second.wait()
        await anyio.wait_all_tasks_blocked()
    assert await results(session) == [("c1", "B")]
    await go_on(await take_run(session), tool(name="a", idempotent=True)(makes("a")), tools[1])
    assert await results(session) == [("c1", "B"), ("c0", "A")]
    (turn,) = await events_of(session, TurnEnded)
    by_call = {event.tool_call_id: event.position for event in await events_of(session, ToolEnded)}
    assert turn.tool_results == (by_call["c0"], by_call["c1"])


# --- interrupts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_abort", [True, False])
async def test_an_interrupt_keeps_the_results_and_says_of_each_other_call_whether_it_had_started(
    session: Session, is_abort: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause, second = Pause(), anyio.Event()

    async def is_done() -> str:
        await pause.reached.wait()
        second.set()
        return "B"

    tools = (
        tool(name="a")(pause.wait),
        tool(name="b")(is_done),
        tool(name="c", approval=True)(makes("c")),
        tool(name="d", sequential=True)(makes("d")),
    )
    run = await begun(session, A, B, C, ToolCallBlock(id="c3", name="d"))
    receipts: list[Receipt] = []
    publish_at = run.publish_at

    async def noted(*args: object, **kwargs: object) -> Receipt:
        receipts.append(await publish_at(*args, **kwargs))  # type: ignore[arg-type]  # passed on as they come
        return receipts[-1]

    monkeypatch.setattr(run, "publish_at", noted)
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(step, run, *tools)
            await second.wait()
            if is_abort:
                await session.publish(Abort().as_extension())
            else:
                spoken = (await session.head()).position + 1
                await session.publish(UserMessage.text("wait"), Steer(position=spoken, when="now").as_extension())
    rest = ABORTED if is_abort else SKIPPED
    cause = "it was aborted" if is_abort else "a new user message stopped it"
    (first, text), *others = await results(session)
    assert (first, text.startswith(f"Unknown outcome: a was started, but {cause} before a result came.")) == (
        "c0",
        True,
    )
    assert others == [("c1", "B"), ("c2", rest), ("c3", rest)]
    assert (await said(session))[-1] == "agent.turn.ended"
    assert len(receipts) == 1


async def test_a_stopped_tool_can_clean_up_and_its_result_counts(session: Session) -> None:
    reached, cleaned = anyio.Event(), anyio.Event()

    @tool(name="a")
    async def cleans() -> str:
        reached.set()
        try:
            await anyio.sleep_forever()
        finally:
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            cleaned.set()
        return "never"

    @tool(name="b")
    async def tells() -> str:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            return "half of it"
        return "never"

    run = await begun(session, A, B)
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(step, run, cleans, tells)
            await reached.wait()
            await session.publish(Abort().as_extension())
    assert cleaned.is_set()
    (_, stopped), other = await results(session)
    assert (stopped.startswith("Unknown outcome: a was started"), other) == (True, ("c1", "half of it"))


async def test_an_abandoned_thread_publishes_nothing_after_an_abort(session: Session) -> None:
    reached, go, over = anyio.Event(), threading.Event(), threading.Event()
    outcome: list[str] = []

    @tool(name="a")
    def hangs(context: ToolContext) -> str:
        anyio.from_thread.run(context.progress, "begun")
        anyio.from_thread.run_sync(reached.set)
        go.wait()
        try:
            anyio.from_thread.run(context.progress, "late")
            outcome.append("said")
        except BaseException as error:
            outcome.append(type(error).__name__)
            raise
        finally:
            over.set()
        return "late"

    run = await begun(session, A)
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(step, run, hangs)
            await reached.wait()
            await session.publish(Abort().as_extension())
    before = await log(session)
    go.set()
    await anyio.to_thread.run_sync(over.wait)
    await anyio.wait_all_tasks_blocked()
    assert outcome != []
    assert await log(session) == before
    assert [event.text for event in await events_of(session, Progress)] == ["begun"]


async def test_open_calls_are_closed_in_one_append(session: Session) -> None:
    subject = tool(name="a", approval=True)(makes("a"))
    run = await begun(session, A, B)
    await step(run, subject, tool(name="b", approval=True)(makes("b")))
    answer = await open_answer(run)
    assert answer is not None
    before = len(await log(session))
    await fail_calls(run, answer, await run.refresh(), SKIPPED)
    assert (await said(session))[before:] == [*(f"result error: {SKIPPED}", "agent.tool.ended") * 2, "agent.turn.ended"]
    await fail_calls(run, answer, await run.refresh(), SKIPPED)
    assert (await said(session)).count("agent.turn.ended") == 1, "a second time adds nothing"
    assert await open_answer(run) is None


# --- results ------------------------------------------------------------------------------------------------------


async def test_a_tool_can_hand_the_session_to_a_person_with_its_result(session: Session) -> None:
    @tool(name="a")
    async def gives_up() -> ToolReply:
        return ToolReply("a person is called", handoff="out of ideas", child_loop_id="s2.main.1")

    run = await begun(session, A)
    await go_on(run, gives_up)
    assert await tail(session) == listed(
        "agent.tool.started | result: a person is called | agent.tool.ended | control.handoff | agent.turn.ended"
    )
    commands = [
        e.message for e in await log(session) if isinstance(e.message, ExtensionMessage) and e.message.is_control
    ]
    assert [parse_control(each) for each in commands] == [Handoff(by="a", reason="out of ideas")]
    assert [event.child_loop_id for event in await events_of(session, ToolEnded)] == ["s2.main.1"]


async def test_one_result_that_is_too_large_becomes_an_error_and_the_others_stay(session: Session) -> None:
    pause, second = Pause(), anyio.Event()

    async def talks() -> str:
        await pause.reached.wait()
        second.set()
        return "x" * 2_000_000

    run = await begun(session, A, B)
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(step, run, tool(name="a")(pause.wait), tool(name="b")(talks))
            await second.wait()
            await session.publish(Abort().as_extension())
    (first, text), (_, large) = await results(session)
    assert (first, text.startswith("Unknown outcome: a was started")) == ("c0", True)
    assert large.startswith("The result of 2000")
    assert (await said(session))[-1] == "agent.turn.ended"


async def test_two_calls_of_one_id_get_one_result_and_an_interrupt_after_it_adds_nothing(session: Session) -> None:
    ran: list[str] = []

    @tool(name="a")
    async def aborts() -> str:
        ran.append("a")
        await session.publish(Abort().as_extension())
        return "A"

    run = await begun(session, A, A)
    await go_on(run, aborts)
    assert (ran, await results(session)) == (["a"], [("c0", "A")])
    assert (await said(session)).count("agent.turn.ended") == 1


# --- one run of a tool ends in a result or is stopped --------------------------------------------------------------

CALL = ToolCallBlock(id="c1", name="a")


async def silent(text: str) -> None:
    del text


CONTEXT = ToolContext("s1", TurnId(loop_id="s1.main.1", turn_index=0), "c1", silent)


async def invoked(subject: FunctionTool) -> ToolResultMessage:
    return await invoke_tool(subject, CALL, CONTEXT)


async def test_a_sync_tool_that_takes_too_long_is_abandoned() -> None:
    go = anyio.Event()

    @tool(name="a", timeout=0.01)
    def hangs() -> None:
        anyio.from_thread.run(go.wait)

    assert (await invoked(hangs)).is_error
    go.set()


class Foreign(FunctionTool):
    """A foreign tool whose `run` breaks the protocol."""

    def __init__(self, outcome: Exception | ToolResultMessage) -> None:
        super().__init__(lambda: None, name="a")
        self.spec = ToolSpec("a", "", {"type": "object"})
        self._outcome = outcome

    async def run(self, call: ToolCallBlock, context: ToolContext) -> ToolResultMessage:
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (KeyError("x"), "KeyError: 'x'"),
        (ToolResultMessage.of("other", "fine"), "a gave the result of another call"),
        (cast("ToolResultMessage", "fine"), "a gave no result, but str"),
    ],
)
async def test_errors_of_a_foreign_tool_become_its_result(outcome: Exception | ToolResultMessage, text: str) -> None:
    result = await invoked(Foreign(outcome))
    assert (result.tool_call_id, result.is_error, result.text_content()) == ("c1", True, text)


async def test_a_tool_that_does_not_end_is_abandoned(caplog: pytest.LogCaptureFixture) -> None:
    reached, go, over = anyio.Event(), anyio.Event(), anyio.Event()

    @tool(name="a")
    async def stays() -> str:
        reached.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        over.set()
        return "late"

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(invoke_tool, stays, CALL, CONTEXT, clean_up_seconds=0.01))
            await reached.wait()
            scope.cancel()
    assert scope.cancelled_caught
    assert "is abandoned" in caplog.text
    go.set()
    await over.wait()


async def test_a_tool_that_fails_in_its_clean_up_counts_as_stopped(caplog: pytest.LogCaptureFixture) -> None:
    reached = anyio.Event()

    class Fails(Foreign):
        async def run(self, call: ToolCallBlock, context: ToolContext) -> ToolResultMessage:
            reached.set()
            try:
                await anyio.sleep_forever()
            finally:
                raise RuntimeError("no way out")

    with caplog.at_level(logging.WARNING), anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(invoked, Fails(KeyError()))
            await reached.wait()
            scope.cancel()
    assert scope.cancelled_caught
    assert "failed while it was stopped" in caplog.text


# --- calls of an answer have one result each, in the order of the calls, in whichever order they end ---------------

Kind = Literal["plain", "alone", "approved", "denied", "missing", "ends"]
KINDS: Sequence[Kind] = ("plain", "plain", "alone", "approved", "denied", "missing", "ends")


def tools_of(kinds: Sequence[Kind], random: Random) -> list[FunctionTool]:
    """A tool for each call; the calls end in random order."""
    waits = [random.randrange(4) for _ in kinds]

    def made(place: int) -> FunctionTool:
        async def function() -> ToolReply:
            for _ in range(waits[place]):
                await anyio.lowlevel.checkpoint()
            return ToolReply(f"r{place}", terminate=kinds[place] == "ends")

        asks, alone = kinds[place] in {"approved", "denied"}, kinds[place] == "alone"
        return tool(name=f"t{place}", sequential=alone, approval=asks)(function)

    return [made(place) for place, kind in enumerate(kinds) if kind != "missing"]


async def worked(session: Session, kinds: Sequence[Kind], random: Random) -> None:
    turn = TurnId(loop_id=f"{session.id}.main.1", turn_index=0)
    run, tools = await take_run(session), tools_of(kinds, random)
    await called(run, *(ToolCallBlock(id=f"c{place}", name=f"t{place}") for place in range(len(kinds))))
    await go_on(run, *tools)
    asked = [place for place, kind in enumerate(kinds) if kind in {"approved", "denied"}]
    random.shuffle(asked)
    for place in asked:
        word = Approve if kinds[place] == "approved" else Deny
        await command(run, word(turn_id=turn, tool_call_id=f"c{place}"))
        if random.random() < 0.5:
            await go_on(run, *tools)
    await go_on(run, *tools)


async def checked(bus: Bus, name: str, kinds: Sequence[Kind], random: Random) -> None:
    session = bus.session(name)
    await worked(session, kinds, random)
    found = await events(session)
    texts = dict(await results(session))
    told = {"denied": "Denied by the user", "missing": "Tool t{} not found"}
    assert texts == {f"c{place}": told.get(kind, "r{}").format(place) for place, kind in enumerate(kinds)}
    assert len(await results(session)) == len(kinds)
    begun = {event.tool_call_id: at for at, event in enumerate(found) if isinstance(event, ToolStarted)}
    ended = {event.tool_call_id: at for at, event in enumerate(found) if isinstance(event, ToolEnded)}
    started = [event.tool_call_id for event in found if isinstance(event, ToolStarted)]
    assert sorted(started) == [f"c{place}" for place, kind in enumerate(kinds) if kind not in {"denied", "missing"}]
    assert all(begun[call] < ended[call] for call in started)
    asked = [event for event in found if isinstance(event, ToolWaiting)]
    assert len(asked) == sum(kind in {"approved", "denied"} for kind in kinds)
    # Concurrent calls are in the order of the calls, and sequential ones after them, too.
    order = [int(call[1:]) for call, _ in await results(session)]
    beside = [place for place in order if kinds[place] in {"plain", "ends", "missing"}]
    alone = [place for place in order if kinds[place] == "alone"]
    assert (beside, alone) == (sorted(beside), sorted(alone))
    (turn,) = [event for event in found if isinstance(event, TurnEnded)]
    positions = {event.tool_call_id: event.position for event in found if isinstance(event, ToolEnded)}
    assert turn.tool_results == tuple(positions[f"c{place}"] for place in range(len(kinds)))
    is_over = all(kind == "ends" for kind in kinds)
    assert sum(isinstance(event, AgentEnded) for event in found) == is_over
    assert await open_answer(await take_run(session)) is None


@pytest.mark.full
def test_every_call_has_one_result_in_the_order_of_the_calls(valkey: RealServer) -> None:
    number = 0
    with held_loop() as held:
        bus = held.open(valkey.bus)

        @examples(60, least=20)
        @given(st.lists(st.sampled_from(KINDS), min_size=1, max_size=6), st.randoms(use_true_random=False))
        def check(kinds: list[Kind], random: Random) -> None:
            nonlocal number
            number += 1
            held.run(checked(bus, f"s{number}", kinds, random))

        check()
    assert number >= count(60, least=20)
