"""Compaction by a worker: what it appends, what remains if it is stopped, and how it is undone."""

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import partial

import anyio
import pytest

from lanebus import Bus, Fenced, Session, TextBlock, ToolCallBlock, Usage, UserMessage
from lanebus.agent import AgentLoop, CompactionPolicy, Compactor, TryAgain
from lanebus.bus.messages import (
    Abort,
    AgentEnded,
    AgentStarted,
    AssistantMessage,
    Compact,
    Compaction,
    CompactionEnded,
    CompactionFailed,
    CompactionStarted,
    ControlAnswered,
    LeafMove,
    Publishable,
    Steer,
    ToolResultMessage,
    TurnId,
    TurnStarted,
)
from lanebus.bus.wire import Receipt
from lanebus.context import UnknownTarget, build_context, undo_compaction
from lanebus.handlers.agent import ModelRequest, Run
from lanebus.handlers.agent.compaction import wants_compaction
from lanebus.handlers.agent.turn.decision import CompactContext, next_decision
from lanebus.handlers.agent.turn.loop_state import SessionSnapshot, derive_loop_state
from lanebus.handlers.projections import SESSIONS, USAGE, Status
from lanebus.handlers.providers import ModelEvent
from lanebus.messages import Cost
from lanebus.projections import project
from lanebus.providers import to_anthropic
from tests.support.agent.agents import Pause, ScriptedModel, Step, answer, take_run
from tests.support.agent.logs import events, events_of, log, said
from tests.support.laws.cancelling import Moment, cut

__all__ = ()

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
    assert (await said(session))[-4:] == [
        "agent.compaction.started",
        "Compaction",
        "agent.compaction.ended",
        "agent.ended",
    ]
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
