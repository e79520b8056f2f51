"""Compaction: what a worker appends and how it is undone, when a loop does it, and where a context is cut."""

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import partial

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanebus import AssistantMessage, Bus, Fenced, Receipt, Session, TextBlock, ToolResultMessage, Usage, UserMessage
from lanebus.agent import AgentLoop, CompactionPolicy, Compactor, ModelEvent, ModelRequest, Run, TryAgain, tool
from lanebus.bus.messages import Abort, AgentEnded, CompactionStarted, Cost, LeafMove, Prune, Steer, TurnId, TurnStarted
from lanebus.context import Context, UnknownTarget, build_context, undo_compaction
from lanebus.handlers.agent import FOLLOW_UP
from lanebus.handlers.agent.compaction import find_cut, wants_compaction
from lanebus.handlers.agent.turn.decision import CompactContext, next_decision
from lanebus.handlers.agent.turn.loop_state import CUT, LoopState, SessionSnapshot, derive_loop_state
from lanebus.handlers.context import DEFERRED, READ_UP_TO
from lanebus.handlers.projections import Status
from lanebus.messages import (
    AgentStarted,
    Compact,
    Compaction,
    CompactionEnded,
    CompactionFailed,
    ControlAnswered,
    Publishable,
    ToolCallBlock,
)
from lanebus.projections import SESSIONS, USAGE, project
from lanebus.providers import to_anthropic
from tests.support.agent.agents import Pause, ScriptedModel, Step, answer, calls, take_run
from tests.support.agent.logs import events, events_of, listed, log, said
from tests.support.agent.runs import work
from tests.support.laws.cancelling import Moment, cut
from tests.support.log.entries import asks, context_of, results, says
from tests.support.log.entries import calls as logged_calls

POLICY = CompactionPolicy(window=1_000, reserve=100, keep_recent=60, drain_seconds=0.05)
LOOP = "s1.main.1"
SPENT = Usage(input=100, output=20, total_tokens=120, cost=Cost(total=Decimal("0.5")))


def summary(text: str = "They said words.") -> list[Step]:
    """A model's summary."""
    return [AssistantMessage(content=(TextBlock(text=text),), provider="acme", model="cheap", usage=SPENT)]


async def talked(session: Session) -> None:
    """A session whose loop has a tool result, and whose context is too large for another request."""
    call = ToolCallBlock(id="c1", name="look", arguments={"at": "the wall"})
    turn = TurnId(loop_id=f"{session.id}.main.1", turn_index=0)
    await session.publish(UserMessage.text("An old question. " * 20))
    await session.publish(AssistantMessage.text("An old answer. " * 20))
    question = (await session.publish(UserMessage.text("What is there?"))).position
    await session.publish(
        AgentStarted(loop_id=turn.loop_id, agent="agent").as_extension(),
        TurnStarted(turn_id=turn, prompts=(question,)).as_extension(),
        AssistantMessage(content=(call,), stop_reason="toolUse", turn_id=turn, usage=Usage(input=990)),
        ToolResultMessage.of(call, "Paint.").with_turn_id(turn),
    )


async def step(run: Run, view: SessionSnapshot, model: ScriptedModel) -> None:
    """The compaction that the loop would decide on, with the oldest command if there is one."""
    compactor = Compactor(model, POLICY)
    found = next_decision(view, AgentLoop(model, compaction=compactor).settings, 0.0)
    assert isinstance(found, CompactContext), found
    await compactor.compact(run, view, found)


async def compacted(session: Session, model: ScriptedModel | None = None, owner: str = "test") -> Run:
    run = await take_run(session, owner)
    view = await run.refresh()
    assert wants_compaction(view, POLICY)
    await step(run, view, model or ScriptedModel(summary()))
    return run


async def entry(session: Session) -> Compaction:
    (found,) = [e.message for e in await log(session) if isinstance(e.message, Compaction)]
    return found


async def wire(session: Session) -> str:
    """The request to a model, as bytes to compare."""
    return json.dumps(to_anthropic(await build_context(session), model="claude-sonnet-5-5").body)


async def test_one_append_holds_the_summary_and_ends_the_loop(session: Session) -> None:
    await talked(session)
    run = await compacted(session)
    assert (await said(session))[-4:] == listed(
        "agent.compaction.started | Compaction | agent.compaction.ended | agent.ended"
    )
    position = (await session.head()).position - 2
    found = await entry(session)
    assert (found.summary, found.first_kept) == ("They said words.", 3)
    assert (found.provider, found.model, found.usage) == ("acme", "cheap", SPENT)
    told = {type(event): event for event in await events(session)}
    started, ended, loop = told[CompactionStarted], told[CompactionEnded], told[AgentEnded]
    assert isinstance(started, CompactionStarted)
    assert isinstance(ended, CompactionEnded)
    assert isinstance(loop, AgentEnded)
    assert (started.loop_id, started.message_count, started.estimated_tokens) == (LOOP, 5, 990 + 11)
    assert (ended.position, ended.messages_before, ended.messages_after) == (position, 5, 4)
    assert ended.estimated_tokens_after < ended.estimated_tokens_before == 1_001
    assert (loop.loop_id, loop.stop_reason, loop.turns) == (LOOP, "contextCompacted", 1)

    view = await run.refresh()
    assert not wants_compaction(view, POLICY)
    state = view.loop_state
    assert state.answer is not None
    assert [result.text_content() for _, result in state.answer.results] == ["Paint."]


async def test_the_conversation_is_sent_as_text_with_the_instruction_not_to_continue_it(session: Session) -> None:
    await talked(session)
    model = ScriptedModel(summary())
    await compacted(session, model)
    (request,) = model.requests
    (asked,) = request.context.messages
    assert request.tools == ()
    assert isinstance(asked, UserMessage)
    text = asked.text_content()
    assert "[user] An old question." in text
    assert "[agent] An old answer." in text
    assert "Paint." not in text, "what is kept is not told twice"


async def test_a_second_summary_includes_the_first_one_and_not_its_entries(session: Session) -> None:
    await talked(session)
    run = await compacted(session)
    await session.publish(*more())
    model = ScriptedModel(summary("Second."))
    await step(run, await run.refresh(), model)
    text = model.requests[0].context.messages[0].text_content()
    assert "<notes>\nThey said words.\n</notes>" in text
    assert "An old question" not in text
    assert "[result of look] Paint." in text
    context = await build_context(session)
    assert [message.text_content()[:30] for message in context.messages][1:] == ["And now?"]


async def test_the_usage_of_a_summary_counts_once_for_its_session_and_for_no_turn(session: Session) -> None:
    await talked(session)
    before = (await project(session, USAGE)).state.total
    await compacted(session)
    state = (await project(session, USAGE)).state
    assert state.total.calls == before.calls + 1
    assert state.total.usage == before.usage.combine(SPENT)
    assert [(row.provider, row.model, row.totals.usage) for row in state.models][-1] == ("acme", "cheap", SPENT)
    assert state.mismatch_count == 0
    line = (await project(session, SESSIONS)).state
    assert (line.usage, line.turns) == (state.total.usage, 2)


async def test_a_step_that_is_run_twice_adds_nothing(session: Session) -> None:
    await talked(session)
    run = await take_run(session)
    view = await run.refresh()
    await step(run, view, ScriptedModel(summary()))
    whole = await said(session)
    await step(await take_run(session), view, ScriptedModel(summary("Another.")))
    assert [text for text in await said(session) if text != "agent.compaction.failed"] == whole
    assert (await entry(session)).summary == "They said words."


async def test_a_message_during_the_summary_stays_and_is_not_answered(session: Session) -> None:
    await talked(session)
    pause = Pause()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(compacted, session, ScriptedModel([pause, *summary()]))
        await pause.reached.wait()
        await session.publish(UserMessage.text("Wait!"))
        pause.over.set()
    context = await build_context(session)
    assert context.messages[-1].text_content() == "Wait!"
    assert derive_loop_state(context, Status()).prompts == (9,)


@pytest.mark.parametrize("moment", list(Moment))
async def test_a_step_cancelled_at_any_await_is_repeated_with_the_same_result(bus: Bus, moment: Moment) -> None:
    whole = bus.session("whole")
    await talked(whole)
    await compacted(whole)
    expected = await wire(whole)
    cuts = 0
    for at in range(1, 200):
        session = bus.session(f"s-{moment}-{at}")
        await talked(session)
        run = await take_run(session)
        view = await run.refresh()

        trial = await cut(partial(step, run, view, ScriptedModel(summary())), at=at, moment=moment)
        assert trial.is_honest
        again = await take_run(session)
        now = await again.refresh()
        if wants_compaction(now, POLICY):
            await step(again, now, ScriptedModel(summary()))
        entries = await said(session)
        once = ("Compaction", "agent.compaction.started", "agent.compaction.ended", "agent.ended")
        assert [entries.count(text) for text in once] == [1] * 4
        assert await wire(session) == expected
        cuts += trial.is_cut
        if not trial.is_cut:
            break
    assert cuts >= 6


async def test_a_fenced_worker_records_no_summary(session: Session) -> None:
    await talked(session)
    pause = Pause()
    with pytest.RaisesGroup(Fenced):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(compacted, session, ScriptedModel([pause, *summary()]))
            await pause.reached.wait()
            await take_run(session)
            pause.over.set()
    assert "Compaction" not in await said(session)


class Tells(ScriptedModel):
    """Reports the usage of a call and then hangs."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = anyio.Event()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(request)
        yield SPENT
        self.reached.set()
        await anyio.sleep_forever()


async def test_an_abort_ends_a_compaction_and_only_its_usage_is_recorded(session: Session) -> None:
    await talked(session)
    before = await wire(session)
    model = Tells()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(compacted, session, model)
        await model.reached.wait()
        await session.publish(Abort().as_extension())
    assert (await said(session))[-2:] == ["control.abort", "agent.compaction.failed"]
    assert await wire(session) == before
    (failed,) = await events_of(session, CompactionFailed)
    guessed = SPENT.model_copy(update={"estimated": True})
    assert (failed.is_interrupted, failed.usage, failed.model) == (True, guessed, "scripted-1")
    total = (await project(session, USAGE)).state.total
    assert total.usage.cost == SPENT.cost
    # It says nothing about the next attempt.
    run = await take_run(session)
    assert wants_compaction(await run.refresh(), POLICY)


class Beaten(Run):
    """A run in which another client appends first, once, right before the run's own append at an expected position."""

    is_beaten = False

    async def publish_at(self, build: Callable[[int], Sequence[Publishable]], *, key: str) -> Receipt:
        if not self.is_beaten:
            self.is_beaten = True
            await self.session.publish(Abort().as_extension())
        return await super().publish_at(build, key=key)


async def test_an_abort_right_before_the_append_ends_the_compaction(session: Session) -> None:
    await talked(session)
    run = Beaten(session, (await take_run(session)).lease)
    await step(run, await run.refresh(), ScriptedModel(summary()))
    assert (await said(session))[-2:] == ["control.abort", "agent.compaction.failed"]


async def test_a_steer_ends_an_incomplete_summary(session: Session) -> None:
    await talked(session)
    model = Tells()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(compacted, session, model)
        await model.reached.wait()
        at = (await session.head()).position + 1
        await session.publish(UserMessage.text("Now!"), Steer(position=at, when="now").as_extension())
    assert (await said(session))[-1] == "agent.compaction.failed"


async def test_a_compaction_of_a_session_that_was_branched_meanwhile_is_decided_again(session: Session) -> None:
    await talked(session)
    pause = Pause()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(compacted, session, ScriptedModel([pause, *summary()]))
        await pause.reached.wait()
        await session.publish(LeafMove(to=2))
        pause.over.set()
    assert "Compaction" not in await said(session)
    (failed,) = await events_of(session, CompactionFailed)
    assert (failed.is_interrupted, failed.usage) == (True, SPENT)


@pytest.mark.parametrize(
    "script",
    [
        [RuntimeError("no network")],
        [AssistantMessage(stop_reason="error", error_message="overloaded")],
        [AssistantMessage.text("  ")],
        [],
    ],
    ids=["raises", "fails", "empty", "silent"],
)
async def test_a_failing_compaction_is_retried_and_then_skipped(session: Session, script: list[Step]) -> None:
    await talked(session)
    delays: list[float] = []
    for _ in range(2):
        with pytest.raises(TryAgain) as caught:
            await compacted(session, ScriptedModel(script))
        delays.append(caught.value.delay)
    await compacted(session, ScriptedModel(script))
    assert delays == [2.0, 4.0]
    run = await take_run(session)
    assert not wants_compaction(await run.refresh(), POLICY)
    assert (await said(session)).count("agent.compaction.failed") == 3
    assert "agent.ended" not in await said(session)
    # A new loop attempts it again.
    await session.publish(AgentStarted(loop_id="s1.main.2", agent="agent").as_extension())
    assert (await run.refresh()).status.compactions_failed == 0


def more() -> tuple[AssistantMessage, UserMessage]:
    """An answer that fills the context again, and a question."""
    much = AssistantMessage.text("Much. " * 100).model_copy(update={"usage": Usage(input=990)})
    return much, UserMessage.text("And now?")


async def command(session: Session, run: Run, model: ScriptedModel) -> int:
    position = (await session.publish(Compact().as_extension())).position
    view = await run.refresh()
    await step(run, view, model)
    return position


async def test_a_compact_command_is_answered_in_the_same_append(session: Session) -> None:
    await session.publish(UserMessage.text("An old question. " * 20), AssistantMessage.text("No."))
    run, model = await take_run(session), ScriptedModel(summary())
    position = await command(session, run, model)
    assert (await said(session))[-3:] == ["Compaction", "agent.compaction.ended", "agent.control.answered"]
    (answered,) = await events_of(session, ControlAnswered)
    assert (answered.control, answered.outcome) == (position, "applied")
    assert (await run.refresh()).status.commands == ()
    await command(session, run, model)
    assert (await said(session))[-1] == "agent.control.answered"
    answers = [event.outcome for event in await events_of(session, ControlAnswered)]
    assert answers == ["applied", "repeated"]
    # An abort of another loop does not stop one.
    await session.publish(*more())
    await session.publish(Compact().as_extension(), Abort(loop_id="s1.main.9").as_extension())
    await finish(session, agent(ScriptedModel(answer("Paint.")), writer("They talked.")))
    answers = [event.outcome for event in await events_of(session, ControlAnswered)]
    assert answers == ["applied", "repeated", "applied", "late"]


async def test_a_compact_command_is_refused_after_the_last_failed_attempt(session: Session) -> None:
    await session.publish(UserMessage.text("An old question. " * 20), AssistantMessage.text("No."))
    run = await take_run(session)
    with pytest.raises(TryAgain):
        await command(session, run, ScriptedModel([RuntimeError("no")]))
    assert len((await run.refresh()).status.commands) == 1, "it waits for the next try"
    for _ in range(2):
        with suppress(TryAgain):
            view = await run.refresh()
            await step(run, view, ScriptedModel([RuntimeError("no")]))
    (answered,) = await events_of(session, ControlAnswered)
    assert (answered.outcome, answered.reason) == ("refused", "no summary: the model raised RuntimeError")
    assert (await said(session))[-2:] == ["agent.compaction.failed", "agent.control.answered"]


# --- undone -----------------------------------------------------------------------------------------------------------


async def test_one_entry_undoes_a_compaction_and_the_request_is_as_before_byte_for_byte(session: Session) -> None:
    await talked(session)
    before = await wire(session)
    await compacted(session)
    assert await wire(session) != before
    end = (await session.head()).position
    await undo_compaction(session)
    assert (await session.head()).position == end + 1
    assert await wire(session) == before


async def test_later_messages_stay_when_a_compaction_is_undone(bus: Bus, session: Session) -> None:
    twin = bus.session("twin")
    for each in (session, twin):
        await talked(each)
    await compacted(session)
    for each in (session, twin):
        await each.publish(*_later())
    await undo_compaction(session)
    assert await wire(session) == await wire(twin)


def _later() -> tuple[AssistantMessage, UserMessage]:
    later = answer("There is paint.")[-1]
    assert isinstance(later, AssistantMessage)
    return later, UserMessage.text("Thanks.")


async def test_undoing_twice_undoes_the_previous_compaction_too(session: Session) -> None:
    await talked(session)
    before = await wire(session)
    run = await compacted(session)
    first = await wire(session)
    await session.publish(*more())
    second = await wire(session)
    await step(run, await run.refresh(), ScriptedModel(summary("Second.")))
    assert "Second." in await wire(session)
    await undo_compaction(session)
    assert await wire(session) == second
    await undo_compaction(session)
    assert "They said words." not in await wire(session)
    with pytest.raises(UnknownTarget):
        await undo_compaction(session)
    assert before != first


# --- a loop whose context grows too large is compacted, and the next loop continues it -----------------------------

LOOK = ToolCallBlock(id="c1", name="look")
REFUSED = AssistantMessage(stop_reason="error", error_message="prompt is too long: 2000 tokens > 1000 maximum")


@tool
async def look() -> str:
    """Look at the wall."""
    return "Paint."


def large(step: list[Step]) -> list[Step]:
    """The same answer with the usage of a request that nearly fills the window."""
    whole = step[-1]
    assert isinstance(whole, AssistantMessage)
    return [*step[:-1], whole.model_copy(update={"usage": Usage(input=990)})]


def agent(model: ScriptedModel, writer: ScriptedModel, window: int | None = 1_000) -> AgentLoop:
    policy = CompactionPolicy(window=window, reserve=100, keep_recent=60, model=writer)
    return AgentLoop(model, (look,), compaction=Compactor(model, policy))


def writer(*texts: str) -> ScriptedModel:
    return ScriptedModel(*([AssistantMessage(content=(TextBlock(text=text),), usage=Usage(input=7))] for text in texts))


async def finish(session: Session, loop: AgentLoop) -> None:
    await work(loop, await take_run(session))


async def old_talk(session: Session) -> None:
    await session.publish(UserMessage.text("An old question. " * 20), AssistantMessage.text("An old answer. " * 20))
    await session.publish(UserMessage.text("What is there?"))


async def test_a_loop_is_compacted_between_turns_and_the_next_loop_has_it_as_parent(session: Session) -> None:
    await old_talk(session)
    model = ScriptedModel(large(calls(LOOK)), answer("There is paint."))
    await finish(session, agent(model, writer("They talked.")))
    entries = await said(session)
    assert entries[entries.index("result: Paint.") :] == listed(
        "result: Paint. | agent.tool.ended | agent.turn.ended | agent.compaction.started | Compaction | "
        "agent.compaction.ended | agent.ended | agent.started | agent.turn.started | agent.message.started | "
        "assistant stop: There is paint. | agent.message.ended | agent.turn.ended | agent.ended"
    )
    found = await events(session)
    ended = [event for event in found if isinstance(event, AgentEnded)]
    assert [(each.loop_id, each.stop_reason, each.turns) for each in ended] == [
        ("s1.main.1", "contextCompacted", 1),
        ("s1.main.2", "stop", 1),
    ]
    begun = [event for event in found if isinstance(event, AgentStarted)]
    assert (begun[1].continuation, begun[1].parent_loop_id) == ("compaction", "s1.main.1")
    shown = [message.text_content() for message in model.requests[1].context.messages]
    assert "They talked." in shown[0]
    assert shown[1:] == ["What is there?", "", "Paint."]


@pytest.mark.parametrize(("again", "end"), [(answer("Paint."), "stop"), ([REFUSED], "error")], ids=["fits", "does not"])
async def test_a_request_that_was_too_long_is_compacted_once(session: Session, again: list[Step], end: str) -> None:
    await old_talk(session)
    await finish(session, agent(ScriptedModel([REFUSED], again), writer("They talked."), window=None))
    assert (await said(session)).count("Compaction") == 1
    assert [event.stop_reason for event in await events_of(session, AgentEnded)] == ["contextCompacted", end]


async def test_a_compact_command_waits_for_the_end_of_the_turn(session: Session) -> None:
    await old_talk(session)

    @tool(name="look")
    async def asks_for_it() -> str:
        await session.publish(Compact().as_extension())
        return "Paint."

    model = ScriptedModel(calls(LOOK), answer("There is paint."))
    policy = CompactionPolicy(window=1_000, keep_recent=60, model=writer("They talked."))
    await finish(session, AgentLoop(model, (asks_for_it,), compaction=Compactor(model, policy)))
    entries = await said(session)
    at = entries.index("control.compact")
    assert entries[at + 1 :][:7] == listed(
        "result: Paint. | agent.tool.ended | agent.turn.ended | agent.compaction.started | Compaction | "
        "agent.compaction.ended | agent.ended"
    )
    assert entries[-4] == "assistant stop: There is paint."


async def test_an_abort_after_a_compact_command_ends_the_compaction_for_good(session: Session) -> None:
    await old_talk(session)
    model = ScriptedModel(answer("Paint."))
    await finish(session, agent(model, writer()))
    summing = Pause()
    summaries = ScriptedModel([summing, AssistantMessage(content=(TextBlock(text="They talked."),))])
    await session.publish(UserMessage.text("And now?"), Compact().as_extension())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(finish, session, agent(model, summaries))
        await summing.reached.wait()
        await session.publish(Abort().as_extension())
    assert len(summaries.requests) == 1
    answers = [event.outcome for event in await events_of(session, ControlAnswered)]
    assert answers == ["late", "applied"]


# --- when a context is compacted, and where it is cut_of. Pure -----------------------------------------------------

TURN = TurnId(loop_id="s.main.1", turn_index=0)
LARGE = CompactionPolicy(window=1_000, reserve=100, keep_recent=200)
LONG = "word " * 200
TOO_LONG = "prompt is too long: 2000 tokens > 1000 maximum"


def full(tokens: int = 950, **fields: object) -> AssistantMessage:
    """An answer for which the provider counted this many tokens."""
    return says("a").model_copy(update={"usage": Usage(input=tokens), **fields})


def view(*messages: Publishable, failed: int = 0) -> SessionSnapshot:
    return SessionSnapshot(context_of(*messages), Status(compactions_failed=failed))


def wants(*messages: Publishable, policy: CompactionPolicy = LARGE, failed: int = 0) -> bool:
    return wants_compaction(view(*messages, failed=failed), policy)


def state_of(context: Context) -> LoopState:
    return SessionSnapshot(context, Status()).loop_state


def cut_of(*messages: Publishable, policy: CompactionPolicy = LARGE) -> int | None:
    context = context_of(*messages)
    return find_cut(context, state_of(context), policy)


def test_a_context_that_grows_into_the_reserve_is_compacted() -> None:
    large = CompactionPolicy(window=1_100, reserve=100)
    assert not wants(asks(LONG), full(900), asks("x"), policy=large)
    assert wants(asks(LONG), full(950), asks("x"))
    assert wants(asks(LONG), full(880), asks(LONG))  # messages after the answer count too
    assert not wants(asks(LONG * 9)), "a single message"
    small = CompactionPolicy(window=1_000)  # at most half of it is reserved
    assert not wants(asks(LONG), full(400), asks("x"), policy=small)
    assert wants(asks(LONG), full(500), asks("x"), policy=small)
    unknown = CompactionPolicy(keep_recent=200)  # only a refused request is compacted
    assert not wants(asks(LONG), full(10**6), asks("x"), policy=unknown)
    refused = says(stop_reason="error").model_copy(update={"error_message": TOO_LONG, "metadata": {CUT: True}})
    assert wants(asks(LONG), full(950), asks("x"), refused, policy=unknown)


def test_a_policy_without_a_window_uses_that_of_the_model() -> None:
    model = ScriptedModel()
    assert CompactionPolicy().of(model).window is None
    model.context_window = 7
    assert CompactionPolicy().of(model) == CompactionPolicy(window=7, model=model)
    assert CompactionPolicy(window=5).of(model).window == 5


def test_a_compaction_waits_for_open_calls_and_an_answer_and_has_few_attempts() -> None:
    called = logged_calls("c").model_copy(update={"turn_id": TURN, "usage": Usage(input=2_000)})
    assert not wants(asks(LONG), says(LONG), asks("x"), called)
    assert wants(asks(LONG), says(LONG), asks("x"), called, results("c", "r"))
    before = (asks(LONG), says(LONG), asks(LONG * 9), Compaction(summary="S", first_kept=3))
    assert not wants(*before)
    assert wants(*before, full(), asks("x"))
    assert wants(asks(LONG), full(), asks("x"), failed=2)
    assert not wants(asks(LONG), full(), asks("x"), failed=3)


def test_an_undone_compaction_is_repeated_only_if_the_provider_refuses() -> None:
    undone = (asks(LONG), full(), asks("x"), Compaction(summary="S", first_kept=3), Prune(pruned=(4,)), full())
    assert not wants(*undone, asks("y"))
    refused = says(stop_reason="error").model_copy(update={"error_message": TOO_LONG})
    assert wants(*undone, asks("y"), refused)
    assert wants(*undone, Compaction(summary="T", first_kept=3), full(), asks("z"))


OLD = (asks(LONG), says(LONG), asks("3"))
LATER = asks("later").model_copy(update={"metadata": {FOLLOW_UP: True}})
HELD = says(LONG * 3).model_copy(update={"metadata": {READ_UP_TO: 4, DEFERRED: [4]}, "turn_id": TURN})
READ = says(LONG * 3).model_copy(update={"metadata": {READ_UP_TO: 5}, "turn_id": TURN})
UNREAD = says(LONG * 3).model_copy(update={"metadata": {READ_UP_TO: 3}, "turn_id": TURN})
CONTINUED = logged_calls("c").model_copy(update={"turn_id": TURN, "metadata": {READ_UP_TO: 3}})
BETWEEN = (asks(LONG), logged_calls("c").with_turn_id(TURN), asks("meanwhile"), results("c", "r"), says("5"), asks("x"))
CUTS: dict[str, tuple[Sequence[Publishable], int, int | None]] = {
    "a single message": ([asks(LONG)], 200, None),
    "a failed answer alone": ([says("half", stop_reason="error"), asks("x")], 200, None),
    "at most half is kept": ([asks("1"), says("2"), asks("3"), says("4")], 200, 3),
    "at least the last message is kept": ([asks(LONG), says("2"), asks(LONG * 9)], 200, 3),
    "unanswered messages stay": ([asks("1"), says("2"), asks("3"), asks(LONG), asks(LONG * 3)], 200, 3),
    "a message during an answer stays": ([*OLD, asks("meanwhile"), UNREAD], 200, 4),
    "a waiting follow-up stays": ([*OLD, LATER, HELD], 200, 4),
    "an answered follow-up need not": ([*OLD, LATER, HELD, READ], 200, 6),
    "an answer that is continued stays with its results": ([*OLD, CONTINUED, results("c", LONG * 3)], 200, 4),
    # By its size alone the cut would come before the second user.
    "a user between a call and its result": (BETWEEN, 27, 5),
    "the same, if more is kept": (BETWEEN, 99, 2),
}


@pytest.mark.parametrize("case", CUTS)
def test_where_a_context_is_cut(case: str) -> None:
    entries, keep, place = CUTS[case]
    policy = CompactionPolicy(window=1_000, reserve=100, keep_recent=keep)
    assert cut_of(*entries, policy=policy) == place


_SAID = st.sampled_from(("ask", "say", "call", "result", "fail", "compact"))


@given(st.lists(_SAID, max_size=30), st.integers(0, 60))
def test_a_cut_separates_no_call_from_its_result_and_keeps_unanswered_messages(said: Sequence[str], keep: int) -> None:
    entries = [_entry(word, number) for number, word in enumerate(said, 1)]
    context = context_of(*entries)
    before = state_of(context)
    if before.answer is not None and before.answer.open_calls:
        return
    kept = find_cut(context, before, CompactionPolicy(window=1_000, reserve=100, keep_recent=keep))
    if kept is None:
        return
    after = context_of(*entries, Compaction(summary="S", first_kept=kept))
    assert len(after.messages) <= len(context.messages) + 1
    assert state_of(after).prompts == before.prompts
    assert [*after.messages][1:] == [*context.messages][len(context.messages) - len(after.messages) + 1 :]
    orphans = {f"c{at}" for at, word in enumerate(said, 1) if word == "call" and at < kept <= at + 1}
    assert not any(f"c{at}" in orphans and word == "result" for at, word in enumerate(said))
    to_anthropic(after, model="claude-sonnet-5-5")


def _entry(word: str, number: int) -> Publishable:
    turn = TurnId(loop_id="s.main.1", turn_index=number)
    match word:
        case "ask":
            return asks(f"ask {number}")
        case "say":
            return says(f"say {number}").with_turn_id(turn)
        case "fail":
            return says("half", stop_reason="error").with_turn_id(turn)
        case "call":
            return logged_calls(f"c{number}").with_turn_id(turn)
        case "result":
            return results(f"c{number - 1}", "r")
        case _:
            return Compaction(summary=f"S{number}", first_kept=max(1, number - 2))
