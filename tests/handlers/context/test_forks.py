"""Handlers on forks: a fork has its parent's context, counts its own usage, and continues an open loop."""

import json
from collections.abc import Sequence
from contextlib import aclosing
from itertools import count

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanebus import START, AssistantMessage, Bus, ExtensionMessage, Lane, LlmMessage, Session, ToolResultMessage, Usage
from lanebus.agent import AgentLoop, Worker, tool
from lanebus.bus.messages import TurnId, TurnStarted, UserMessage, parse_event
from lanebus.context import WarmContext, build_context
from lanebus.handlers.serve.bounds import DEFAULT_UI_BOUNDS
from lanebus.handlers.serve.budget import ByteBudget
from lanebus.handlers.serve.stream import session_frames
from lanebus.handlers.serve.transfer import History
from lanebus.messages import AgentEnded, AgentEvent, AgentStarted, Compaction, Publishable, RequestDefined, TurnEnded
from lanebus.projections import SESSIONS, TURNS, USAGE, look, project, rebuild, session_lines
from lanebus.providers import to_anthropic, to_gemini, to_openai_chat, to_openai_responses
from tests.support.agent.agents import Pause, ScriptedModel, answer, calls, take_run
from tests.support.agent.folding import fold, log_of
from tests.support.agent.histories import POSITIONS, histories
from tests.support.agent.logs import events, log, said, wait_for
from tests.support.agent.runs import FIRST, SECOND, first, second
from tests.support.log.entries import asks, results, says
from tests.support.log.entries import calls as called
from tests.support.suite.scale import examples

__all__ = ()

FORMS = (to_anthropic, to_openai_chat, to_openai_responses, to_gemini)

_names = count()


async def requests(session: Session, at: int | None = None) -> list[str]:
    """What each provider would be sent."""
    context = await build_context(session, at=at)
    return [json.dumps(form(context, model="m").body, sort_keys=True) for form in FORMS]


# --- context ------------------------------------------------------------------------------------------------------


async def test_a_fork_at_any_position_sends_the_request_that_its_parent_sent_there(bus: Bus) -> None:
    parent = bus.session("p")
    await parent.publish(asks("one"), ExtensionMessage.of("note", 1), called("a", "b"), results("a", "A"))
    await parent.publish(results("b", "B"), says("two"), asks("three"), says("four"), asks("five"))
    await parent.publish(Compaction(summary="so far", first_kept=7), says("six"), asks("seven"))
    for at in range((await parent.head()).position + 1):
        child = await parent.fork(at)
        grandchild = await child.fork()
        wanted = await requests(parent, at)
        assert await requests(child) == await requests(grandchild) == wanted
        await child.publish(asks("and now?"))
        warm = WarmContext(child)
        assert (await warm.refresh()).messages == (await build_context(child)).messages
        await child.publish(says("so"))
        assert (await warm.refresh()).messages == (await build_context(child)).messages
        assert await requests(child, at) == wanted
        assert await requests(grandchild) == wanted


# --- projections --------------------------------------------------------------------------------------------------


async def test_sums_over_all_sessions_count_what_is_shared_once(bus: Bus) -> None:
    parent = bus.session("p")
    one = says("one").model_copy(update={"usage": Usage(input=1, output=1)})
    await parent.publish(asks("?"), one, asks("?"), one)
    child = await parent.fork(2, id="c")
    assert (await project(child, USAGE)).state.total.calls == 0
    await child.publish(asks("a fork's own question"), one)
    grandchild = await child.fork(3, id="g")
    await grandchild.publish(one, one)
    heads = await bus.sessions()
    calls_of = {h.session: (await project(bus.session(h.session), USAGE)).state.total.calls for h in heads}
    assert calls_of == {"p": 2, "c": 1, "g": 2}
    lines = {h.session: (await project(bus.session(h.session), SESSIONS)).state for h in heads}
    assert {name: (line.turns, line.usage.input) for name, line in lines.items()} == {
        "p": (2, 2),
        "c": (1, 1),
        "g": (2, 2),
    }
    assert lines["c"].title == "a fork's own question"
    assert [turn.message for turn in (await project(child, TURNS)).state.turns] == [4]


@pytest.mark.parametrize("at", [0, 2, 5])
async def test_a_projection_says_whether_it_folds_a_fork_as_a_whole_or_its_own_entries(bus: Bus, at: int) -> None:
    await bus.session("p").publish(*[asks("x")] * 5)
    child = await bus.session("p").fork(at, id="c")
    assert (await project(child, USAGE)).position == at
    for _ in range(3):
        await child.publish(asks("y"), says("z"))
        whole = await project(child, POSITIONS)
        assert whole.state == tuple(range(1, whole.position + 1))
        own = await project(child, USAGE)
        assert own.state.total.calls * 2 == own.position - at
        assert await rebuild(child, USAGE) == own
        assert await rebuild(child, POSITIONS) == whole


async def test_a_trimmed_fork_still_folds_its_own_entries(bus: Bus) -> None:
    parent = bus.session("p")
    await parent.publish(*[says("x")] * 5)
    await parent.trim(3)
    child = await parent.fork(4)  # two of what it shares are gone already
    await child.publish(says("y"), says("z"))
    assert (await look(child, USAGE)).state.total.calls == 2
    assert (await look(child, POSITIONS)).state == (3, 4, 5, 6)
    await child.trim(6)
    assert (await look(child, USAGE)).state.total.calls == 1


@given(histories, st.integers(0, 25))
@examples(100)
def test_work_that_was_open_at_the_fork_breaks_no_fold(history: Sequence[Publishable], cut: int) -> None:
    entries = log_of(*history)
    for projection in (USAGE, TURNS, SESSIONS):
        assert projection.forked is not None
    usage = fold(USAGE, entries[cut:], USAGE.forked)
    whole, shared = fold(USAGE, entries), fold(USAGE, entries[:cut])
    assert usage.total.calls + shared.total.calls == whole.total.calls
    assert usage.total.usage.input + shared.total.usage.input == whole.total.usage.input
    turns = fold(TURNS, entries[cut:], TURNS.forked)
    assert {turn.message for turn in turns.turns if turn.message} <= set(range(cut + 1, len(entries) + 1))
    line = fold(SESSIONS, entries[cut:], SESSIONS.forked)
    assert line.llm + line.extension == len(entries[cut:])


def test_a_loop_that_was_open_at_the_fork_is_not_compared_with_a_part_of_its_sum() -> None:
    one = Usage(input=1)
    turns = [TurnId(loop_id="p.main.1", turn_index=index) for index in range(3)]
    history: list[Publishable] = [AgentStarted(loop_id="p.main.1", agent="a").as_extension()]
    for turn in turns:
        history += [
            TurnStarted(turn_id=turn).as_extension(),
            says("x").model_copy(update={"turn_id": turn, "usage": one}),
            TurnEnded(turn_id=turn, stop_reason="stop", usage=one).as_extension(),
        ]
    end = AgentEnded(loop_id="p.main.1", stop_reason="stop", turns=3, usage=Usage(input=3))
    entries = log_of(*history, end.as_extension())
    for cut in range(len(entries) + 1):
        assert fold(USAGE, entries[cut:], USAGE.forked).mismatch_count == 0
    wrong = log_of(*history, end.model_copy(update={"usage": Usage(input=4)}).as_extension())
    assert fold(USAGE, wrong, USAGE.forked).mismatch_count == 1  # it began in the fork


async def test_what_is_left_of_a_fork_whose_parent_was_erased_is_shown(bus: Bus) -> None:
    await bus.session("p").publish(says("x"), says("x"))
    child = await bus.session("p").fork(id="c")
    await child.publish(says("y"))
    await bus.session("p").erase(force=True)
    assert {name: line.state.turns for name, line in (await session_lines(bus)).items()} == {"c": 1}
    assert (await project(child, USAGE)).state.total.calls == 1
    frames: list[bytes] = []
    async with (
        ByteBudget().share(lambda: None) as share,
        aclosing(session_frames(child, START, share, History(DEFAULT_UI_BOUNDS))) as found,
    ):
        while len(frames) < 2:
            frames.append((await anext(found)).whole)
    assert b"event: gap" in frames[0]
    assert b'"firstKept": 3' in frames[0]
    assert b"event: entry" in frames[1]


# --- agents -------------------------------------------------------------------------------------------------------


def own_ids(entries: Sequence[object]) -> set[str]:
    """The sessions that the loops of these messages name."""
    found: set[str] = set()
    for message in entries:
        event = parse_event(message) if isinstance(message, ExtensionMessage) else None
        turn_id = getattr(event, "turn_id", None) or (message.turn_id if isinstance(message, LlmMessage) else None)
        if isinstance(turn_id, TurnId):
            found.add(turn_id.session)
        elif event is not None and not isinstance(event, RequestDefined):  # which is of no loop
            found.add(str(getattr(event, "loop_id", "")).partition(".")[0])
    return found


@pytest.mark.full
async def test_a_fork_anywhere_in_a_loop_goes_on_under_its_own_ids(bus: Bus) -> None:
    parent = bus.session("p")
    await parent.publish(asks("hello?"))
    await AgentLoop(ScriptedModel(calls(FIRST, SECOND), answer("Three.")), (first, second))(await take_run(parent))
    before = await log(parent)
    for at in range(1, len(before) + 1):
        child = await parent.fork(at, id=f"c{next(_names)}")
        model = ScriptedModel(answer("Four.")) if at >= 6 else ScriptedModel(calls(FIRST, SECOND), answer("Four."))
        loop = AgentLoop(model, (first, second))
        await loop(await take_run(child))
        own = [entry.message for entry in (await log(child))[at:]]
        is_over = at >= 17  # the answer that ends the loop is there
        assert own_ids(own) == (set() if is_over else {child.id})
        llm = [e.message async for e in child.read(lanes={Lane.LLM})]
        told = [message.tool_call_id for message in llm if isinstance(message, ToolResultMessage)]
        assert told == ["c1", "c2"]
        assert isinstance(llm[-1], AssistantMessage)
        assert llm[-1].text_content() == ("Three." if is_over else "Four.")
        usage = (await project(child, USAGE)).state
        assert (usage.mismatch_count, usage.total.calls) == (0, len(model.requests))
        turns = (await project(child, TURNS)).state
        assert turns.running == ()
        assert {turn.status for turn in turns.turns if turn.has_events} <= {"completed"}
        await loop(await take_run(child))  # nothing is left to do
        assert [entry.message for entry in (await log(child))[at:]] == own
    assert await log(parent) == before


async def test_a_fork_that_took_up_open_tools_and_died_goes_on_in_the_same_loop(bus: Bus) -> None:
    parents, forks = Pause(), Pause()

    @tool(name="first")
    async def hangs_in_the_parent() -> str:
        await parents.wait()
        return "never"

    @tool(name="second")
    async def hangs_too() -> str:
        await parents.wait()
        return "never"

    @tool(name="second")
    async def hangs_in_the_fork() -> str:
        await forks.wait()
        return "never"

    parent = bus.session("p")
    await parent.publish(asks("hello?"))
    stopped = ScriptedModel(calls(FIRST, SECOND))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(AgentLoop(stopped, (hangs_in_the_parent, hangs_too)), await take_run(parent))
        await parents.reached.wait()
        tasks.cancel_scope.cancel()
    child = await parent.fork(id="c")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(AgentLoop(ScriptedModel(), (first, hangs_in_the_fork)), await take_run(child))
        await forks.reached.wait()
        await wait_for(child, "result: one")
        tasks.cancel_scope.cancel()
    await AgentLoop(ScriptedModel(answer("Three.")), (first, second))(await take_run(child))
    shared = (await child.head()).own_start.position
    assert (await said(child))[shared:] == [
        "agent.started",
        "agent.turn.started",
        "agent.tool.started",
        "agent.tool.started",
        "result: one",
        "agent.tool.ended",
        "agent.tool.started",
        "result: two",
        "agent.tool.ended",
        "agent.turn.ended",
        "agent.request.defined",
        "agent.turn.started",
        "agent.message.started",
        "assistant stop: Three.",
        "agent.message.ended",
        "agent.turn.ended",
        "agent.ended",
    ]
    own = [event for event in await events(child) if own_event(event)]
    (begun,) = [event for event in own if isinstance(event, AgentStarted)]
    assert (begun.loop_id, begun.parent_loop_id, begun.continuation) == ("c.main.1", "p.main.1", "branch")
    assert [event.usage.input for event in own if isinstance(event, TurnEnded)] == [0, 10]
    (ended,) = [event for event in own if isinstance(event, AgentEnded)]
    assert (ended.turns, ended.usage.input) == (2, 10)


def own_event(event: AgentEvent) -> bool:
    turn_id, loop_id = getattr(event, "turn_id", None), getattr(event, "loop_id", "")
    return (turn_id.loop_id if isinstance(turn_id, TurnId) else str(loop_id)).startswith("c.")


async def test_a_worker_continues_a_fork_after_a_user_message(bus: Bus) -> None:
    parent = bus.session("p")
    await parent.publish(asks("hello?"))
    await AgentLoop(ScriptedModel(answer("Yes?")))(await take_run(parent))
    child = await parent.fork(5, id="c")
    worker = Worker(bus, AgentLoop(ScriptedModel(answer("A fork's."))))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await child.publish(UserMessage.text("go on"))
        await wait_for(child, "agent.ended")
        worker.stop()
    assert "A fork's." in " ".join(await said(child))
