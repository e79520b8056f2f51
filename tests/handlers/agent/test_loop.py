"""The loop: what it appends, and how it continues the log of an earlier run."""

import re
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from decimal import Decimal
from typing import cast

import anyio
import pytest

from lanebus import Bus, ExtensionMessage, Session, SessionClosed
from lanebus.agent import (
    AgentLoop,
    ModelEvent,
    ModelRefused,
    PreviewBounds,
    RunBounds,
    Tool,
    ToolRefused,
    ToolReply,
    tool,
)
from lanebus.bus.messages import AssistantMessage, Delta, SystemMessage, TextBlock, ToolCallBlock, TurnId, Usage
from lanebus.handlers.agent import DuplicateTool, LoopLimits, Model, ModelRequest
from lanebus.handlers.providers import Piece, ToolSpec
from lanebus.messages import AgentEnded, AgentStarted, Cost, MessageStarted, ThinkingBlock, TurnEnded, TurnStarted
from tests.support.agent.agents import SECONDS, Pause, ScriptedModel, Step, answer, calls, take_run
from tests.support.agent.logs import answers, events_of, listed, messages, results, said, watch_deltas
from tests.support.agent.runs import FIRST, SECOND, ask, first


async def test_the_events_of_a_loop_are_in_order_while_its_tools_run_concurrently(session: Session) -> None:
    """The order of seed 001, F16. A new request definition is recorded before the turn."""
    second_is_done = anyio.Event()

    @tool(name="first")
    async def waits_for_the_second() -> str:
        await second_is_done.wait()
        return "one"

    @tool(name="second")
    async def is_faster() -> str:
        second_is_done.set()
        return "two"

    await ask(session)
    model = ScriptedModel(calls(FIRST, SECOND), answer("Three."))
    await AgentLoop(model, (waits_for_the_second, is_faster))(await take_run(session))
    assert await said(session) == listed(
        "user: hello? | agent.started | agent.request.defined | agent.turn.started | agent.message.started | "
        "assistant toolUse: <first><second> | agent.message.ended | agent.tool.started | agent.tool.started | "
        "result: one | agent.tool.ended | result: two | agent.tool.ended | agent.turn.ended | agent.turn.started | "
        "agent.message.started | assistant stop: Three. | agent.message.ended | agent.turn.ended | agent.ended"
    )
    told = await answers(session)
    assert [message.turn_id for message in told] == [TurnId(loop_id="s1.main.1", turn_index=n) for n in (0, 1)]
    assert [event.message_id for event in await events_of(session, MessageStarted)] == [message.id for message in told]
    started, ended = await events_of(session, TurnStarted), await events_of(session, TurnEnded)
    assert [(turn.trigger, turn.prompts) for turn in started] == [("user", (1,)), ("continuation", (10, 12))]
    assert [(turn.stop_reason, turn.message, turn.usage, turn.tool_results) for turn in ended] == [
        ("toolUse", 6, told[0].usage, (10, 12)),
        ("stop", 17, told[1].usage, ()),
    ]
    (end,) = await events_of(session, AgentEnded)
    assert (end.turns, end.usage) == (2, Usage(input=15, output=3, total_tokens=18))
    assert [message.turn_id for message in await results(session)] == [told[0].turn_id] * 2


@pytest.mark.parametrize(
    ("replies", "last", "model_calls"),
    [
        ([("left", True), ("seen", True)], "left\nseen", 1),
        ([("", True), ("seen", True)], "seen", 1),
        ([("", True), (" ", True)], "", 1),
        ([("left", True), ("seen", False)], "More.", 2),
        ([("left", False), ("seen", True)], "More.", 2),
    ],
    ids=["both", "one is empty", "both are empty", "only the first", "only the second"],
)
async def test_a_loop_ends_with_its_results_as_the_final_message_if_every_result_terminates(
    session: Session, replies: list[tuple[str, bool]], last: str, model_calls: int
) -> None:
    def make(content: str, terminate: bool) -> Callable[[], ToolReply]:
        return lambda: ToolReply(content, terminate=terminate)

    tools = [tool(name=name)(make(*reply)) for name, reply in zip(("first", "second"), replies, strict=True)]
    await ask(session)
    model = ScriptedModel(calls(FIRST, SECOND), answer("More."))
    loop = AgentLoop(model, tools)
    await loop(await take_run(session))
    assert len(model.requests) == model_calls
    assert (await answers(session))[-1].text_content() == last
    before = await said(session)
    assert before[-1] == "agent.ended"
    await loop(await take_run(session))
    assert await said(session) == before


async def test_a_terminating_tool_can_set_the_final_message_and_a_later_question_is_answered(session: Session) -> None:
    @tool
    async def leave() -> ToolReply:
        """Says goodbye."""
        await ask(session, "and?")
        return ToolReply("left", terminate=True, terminate_message="Bye.")

    @tool
    def look() -> ToolReply:
        """Looks."""
        return ToolReply("seen", terminate=True)

    await ask(session)
    wants = (ToolCallBlock(id="c1", name="leave"), ToolCallBlock(id="c2", name="look"))
    model = ScriptedModel(calls(*wants), answer("More."))
    loop = AgentLoop(model, [leave, look])
    await loop(await take_run(session))
    closing = (await answers(session))[-1]
    assert (closing.text_content(), closing.model, closing.usage) == ("Bye.\nseen", None, None)
    assert len(model.requests) == 1
    assert (await said(session))[-1] == "agent.ended"
    await loop(await take_run(session))
    assert len(model.requests) == 2, "nobody had read the question when the tools ended the loop"
    assert (await messages(session))[-1].text_content() == "More."


@pytest.mark.parametrize(
    ("limits", "text", "stop_reason", "turns"),
    [
        (LoopLimits(turns=3), "turn limit of 3 reached", "maxTurns", 3),
        (LoopLimits(cost=Decimal("0.5")), "cost limit of $0.5 reached", "guardRail", 2),
    ],
)
async def test_a_loop_stops_at_its_limit_before_the_next_call(
    session: Session, limits: LoopLimits, text: str, stop_reason: str, turns: int
) -> None:
    await ask(session)
    spent = Usage(input=1, cost=Cost(total=Decimal("0.3")))
    model = ScriptedModel(*[[AssistantMessage(content=(FIRST,), stop_reason="toolUse", usage=spent)]] * 9)
    loop = AgentLoop(model, (first,), limits=limits)
    await loop(await take_run(session))
    assert (await said(session))[-2:] == [f"user: [Agent stopped: {text}]", "agent.ended"]
    (end,) = await events_of(session, AgentEnded)
    assert (end.stop_reason, end.turns, len(model.requests)) == (stop_reason, turns, turns)
    assert end.usage.cost is not None
    assert end.usage.cost.total == turns * Decimal("0.3")
    assert not (await (await take_run(session)).refresh()).loop_state.has_work, "its own note is no question"
    await loop(await take_run(session))
    assert len(model.requests) == turns


async def test_a_failed_model_leaves_its_text_and_the_next_question_begins_a_new_loop(session: Session) -> None:
    await ask(session)
    failing: list[Step] = [Piece("text", "Well, "), Usage(input=7), ValueError("cut off")]
    loop = AgentLoop(ScriptedModel(failing, answer("Fine.")))
    await loop(await take_run(session))
    assert (await said(session))[-4:] == [
        "assistant error: Well, ",
        "agent.message.ended",
        "agent.turn.ended",
        "agent.ended",
    ]
    told = (await answers(session))[-1]
    assert told.error_message == "ValueError: cut off"
    assert told.usage == Usage(input=7, output=2, total_tokens=9, estimated=True)
    await loop(await take_run(session))
    assert len(await messages(session)) == 2, "a failed answer is not tried again by itself"
    await ask(session, "and now?")
    await loop(await take_run(session))
    loops = await events_of(session, AgentStarted)
    assert [(event.loop_id, event.parent_loop_id) for event in loops] == [
        ("s1.main.1", None),
        ("s1.main.2", "s1.main.1"),
    ]


async def test_loops_are_numbered_from_the_log_for_each_config(session: Session) -> None:
    for config in ("main", "main", "other", "main"):
        await ask(session)
        await AgentLoop(ScriptedModel(answer("Yes.")), config=config)(await take_run(session))
    loops = [event.loop_id for event in await events_of(session, AgentStarted)]
    assert loops == ["s1.main.1", "s1.main.2", "s1.other.1", "s1.main.3"]


async def test_a_session_without_a_system_prompt_of_its_own_gets_that_of_the_agent_once(bus: Bus) -> None:
    session, other = bus.session("s1"), bus.session("s2")
    model = ScriptedModel(answer("One."), answer("Two."), answer("Three."))
    await other.publish(SystemMessage.text("Mine."))
    for each in (session, session, other):
        await ask(each)
        await AgentLoop(model, system="Be brief.")(await take_run(each))
    assert [text for text in await said(session) if text.startswith("system")] == ["system: Be brief."]
    assert [text for text in await said(other) if text.startswith("system")] == ["system: Mine."]
    assert [message.text_content() for message in model.requests[0].context.system] == ["Be brief."]


async def test_live_deltas_are_the_text_and_have_the_id_of_the_message(session: Session) -> None:
    await ask(session)
    pause = Pause()
    run = await take_run(session)
    found: list[Delta] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(AgentLoop(ScriptedModel([pause, *answer("Hello there!")])), run)
        found += await watch_deltas(session, pause, "agent.ended")
    told = (await messages(session))[-1]
    assert "".join(delta.delta for delta in found) == "Hello there!"
    assert {(delta.message_id, delta.turn_id) for delta in found} == {(told.id, told.turn_id)}


@pytest.mark.parametrize("is_in_tool", [False, True], ids=["in an answer", "in a tool"])
async def test_a_fenced_loop_ends_quietly_and_appends_nothing(session: Session, is_in_tool: bool) -> None:
    pause = Pause()
    hangs = tool(name="first", idempotent=True)(pause.wait)
    late = calls(FIRST) if is_in_tool else [pause, *answer("Too late.")]
    await ask(session)
    deposed, run = await take_run(session), await take_run(session)
    await AgentLoop(ScriptedModel(), system="Be brief.")(deposed)  # it does not start
    await AgentLoop(ScriptedModel())(deposed)
    assert await said(session) == ["user: hello?"]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(AgentLoop(ScriptedModel(late), (hangs,)), run)
        await pause.reached.wait()
        await take_run(session)
        pause.over.set()
    assert (await said(session))[-1] == ("agent.tool.started" if is_in_tool else "agent.message.started")
    await AgentLoop(ScriptedModel(answer("In time.")), (first,))(await take_run(session))
    entries = [text for text in await said(session) if text.startswith(("assistant stop", "result"))]
    assert entries == [*["result: one"] * is_in_tool, "assistant stop: In time."]


async def test_a_cancelled_loop_records_its_partial_answer_and_the_next_run_answers(session: Session) -> None:
    await ask(session)
    pause = Pause()
    model = ScriptedModel([Usage(input=3), Piece("text", "As I was "), pause], answer("Here it is."))
    loop, run = AgentLoop(model), await take_run(session)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(loop, run)
            await pause.reached.wait()
            scope.cancel()
    assert scope.cancelled_caught
    assert (await said(session))[-3:] == ["assistant aborted: As I was ", "agent.message.ended", "agent.turn.ended"]
    cut = (await answers(session))[-1]
    assert cut.usage == Usage(input=3, output=3, total_tokens=6, estimated=True)
    await loop(await take_run(session))
    assert (await said(session))[-6:] == listed(
        "agent.turn.started | agent.message.started | assistant stop: Here it is. | agent.message.ended | "
        "agent.turn.ended | agent.ended"
    )
    started = await events_of(session, TurnStarted)
    assert [(str(turn.turn_id), turn.prompts) for turn in started] == [("s1.main.1#0", (1,)), ("s1.main.1#1", (1,))]
    (end,) = await events_of(session, AgentEnded)
    assert end.usage == Usage(input=13, output=5, total_tokens=18, estimated=True)


async def test_a_turn_that_is_cut_before_its_first_piece_begins_again(session: Session) -> None:
    await ask(session)
    pause = Pause()
    loop, run = AgentLoop(ScriptedModel([pause], answer("Here."))), await take_run(session)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(loop, run)
            await pause.reached.wait()
            await ask(session, "are you there?")
            scope.cancel()
    await loop(await take_run(session))
    assert await said(session) == listed(
        "user: hello? | agent.started | agent.request.defined | agent.turn.started | agent.message.started | "
        "user: are you there? | agent.turn.started | agent.message.started | assistant stop: Here. | "
        "agent.message.ended | agent.turn.ended | agent.ended"
    )
    started = await events_of(session, TurnStarted)
    assert [(turn.turn_id.turn_index, turn.prompts) for turn in started] == [(0, (1,)), (0, (1, 6))]


async def test_the_partial_answer_of_a_lost_worker_is_recorded_by_the_next_one(session: Session) -> None:
    await ask(session)
    pause = Pause()
    lost = await take_run(session)
    shown: list[Delta] = []
    async with anyio.create_task_group() as tasks:
        spoken = [Piece("thinking", "Hm."), Piece("text", "half a ", 1), Piece("toolCall", '{"a', 2, "add")]
        tasks.start_soon(AgentLoop(ScriptedModel([*spoken, pause, *answer("Never.")])), lost)
        with anyio.fail_after(SECONDS):
            async for envelope in session.follow(live=True):
                if isinstance(envelope.message, Delta):
                    shown.append(envelope.message)
                    if envelope.message.kind == "toolCall":
                        break
        await session.publish(ExtensionMessage.of("progress"), wake=False)
        await AgentLoop(ScriptedModel(answer("Whole.")))(await take_run(session))
        pause.over.set()
    entries = await said(session)
    assert [text for text in entries if text.startswith("assistant")] == [
        "assistant aborted: half a ",
        "assistant stop: Whole.",
    ]
    assert entries.count("agent.started") == entries.count("agent.ended") == 1
    started = await events_of(session, MessageStarted)
    told = await answers(session)
    assert [message.id for message in told] == [event.message_id for event in started]
    assert {delta.message_id for delta in shown} == {told[0].id}
    assert [delta.delta for delta in shown] == ["Hm.", "half a ", '{"a']
    assert told[0].content == (ThinkingBlock(text="Hm."), TextBlock(text="half a "))
    assert told[0].error_message == "the worker was lost"
    assert await session.open_messages() == []
    turns = await events_of(session, TurnEnded)
    assert [(str(turn.turn_id), turn.stop_reason) for turn in turns] == [
        ("s1.main.1#0", "aborted"),
        ("s1.main.1#1", "stop"),
    ]


async def test_a_lost_worker_shows_nothing_after_its_recorded_answer(session: Session) -> None:
    await ask(session)
    first, second = Pause(), Pause()
    lost = await take_run(session)
    async with anyio.create_task_group() as tasks:
        model = ScriptedModel([Piece("text", "a"), first, Piece("text", "b"), second, *answer("Never.")])
        tasks.start_soon(AgentLoop(model), lost)
        await first.reached.wait()
        await AgentLoop(ScriptedModel(answer("Whole.")))(await take_run(session))
        first.over.set()
        await second.reached.wait()
        second.over.set()
    assert await session.open_messages() == []
    answers = [text for text in await said(session) if text.startswith("assistant")]
    assert answers[-1] == "assistant stop: Whole."
    assert answers[:-1] in ([], ["assistant aborted: a"]), "as far as it was shown before it was lost"


async def test_a_worker_that_was_lost_before_its_first_piece_leaves_a_cut(session: Session) -> None:
    await ask(session)
    pause = Pause()
    lost = await take_run(session)
    found: list[Delta] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(AgentLoop(ScriptedModel([pause, *answer("Never.")])), lost)
        await pause.reached.wait()
        other = Pause()
        tasks.start_soon(AgentLoop(ScriptedModel([other, *answer("Whole.")])), await take_run(session))
        await other.reached.wait()
        found += await watch_deltas(session, other, "agent.ended")
        pause.over.set()
    ids = [event.message_id for event in await events_of(session, MessageStarted)]
    assert len(set(ids)) == 2
    assert "".join(delta.delta for delta in found if delta.message_id == ids[1]) == "Whole."
    assert await session.open_messages() == []


async def test_streamed_messages_of_other_producers_are_not_recorded(session: Session) -> None:
    await ask(session)
    turn = TurnId(loop_id="s1.main.1", turn_index=0)
    for id in ("mine", "s1.main.1#0.99", "s1.main.1#0.x", "s1.main.1#1.1"):
        await session.preview(Delta(kind="text", message_id=id, turn_id=turn, delta="x"))
    await session.preview(Delta(kind="text", message_id="s1.main.1#0.1", delta="x"))
    await take_run(session)
    await take_run(session)
    await AgentLoop(ScriptedModel(answer("Yes.")))(await take_run(session))
    assert [text for text in await said(session) if text.startswith("assistant")] == ["assistant stop: Yes."]
    assert len(await session.open_messages()) == 5


async def test_the_preview_of_a_turn_that_was_answered_meanwhile_ends_with_a_cut(session: Session) -> None:
    await ask(session)
    loop = AgentLoop(ScriptedModel(answer("One."), answer("Two.")))
    await take_run(session)
    await loop(await take_run(session))
    turn = TurnId(loop_id="s1.main.1", turn_index=0)
    await session.preview(Delta(kind="text", message_id="s1.main.1#0.1", turn_id=turn, delta="One"))
    await ask(session, "and?")
    await loop(await take_run(session))
    assert await session.open_messages() == []
    assert [text for text in await said(session) if text.startswith("assistant")] == [
        "assistant stop: One.",
        "assistant stop: Two.",
    ]


async def test_messages_published_during_an_answer_follow_the_pieces_so_far(session: Session) -> None:
    await ask(session)
    run = await take_run(session, bounds=RunBounds(preview=PreviewBounds(pause_seconds=3_600.0)))

    class Telling(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
            async with aclosing(super().stream(request)) as parts:
                async for event in parts:
                    yield event
                    await run.publish(ExtensionMessage.of("told"))

    seen: list[str] = []
    async with anyio.create_task_group() as tasks:
        start = Pause()
        tasks.start_soon(AgentLoop(Telling([start, *answer("Hello there!")])), run)
        with anyio.fail_after(SECONDS):
            async for envelope in session.follow(live=True):
                match envelope.message:
                    case Delta(delta=text):
                        seen.append(text)
                    case ExtensionMessage(kind="agent.message.started"):
                        start.over.set()
                    case ExtensionMessage(kind="told"):
                        seen.append("told")
                    case AssistantMessage():
                        seen.append("whole")
                        break
                    case _:
                        pass
    assert seen == ["Hel", "told", "lo there!", "told", "told", "whole"]


async def test_the_preview_in_a_session_that_was_closed_meanwhile_is_cut(session: Session) -> None:
    await ask(session)
    pause = Pause()
    run = await take_run(session)
    with pytest.RaisesGroup(SessionClosed):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(AgentLoop(ScriptedModel([Piece("text", "half"), pause, *answer("Never.")])), run)
            await pause.reached.wait()
            await session.close(reason="enough")
            pause.over.set()
    assert await session.open_messages() == []


class _NoProvider:
    name = "m"


class _NoName:
    provider, name = "p", None


class _NoStream:
    provider, name = "p", "m"


class _Returning(_NoStream):
    async def stream(self, request: ModelRequest) -> str:
        return str(request)


class _Sync(_NoStream):
    def stream(self, request: ModelRequest) -> Iterator[str]:
        yield str(request)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (_NoProvider(), "'_NoProvider' has no text as its 'provider': set it"),
        (_NoName(), "'_NoName' has no text as its 'name': set it"),
        (_NoStream(), "'_NoStream' has no method 'stream': write `async def"),
        (_Returning(), "'_Returning' returns its answer from 'stream': yield each event"),
        (_Sync(), "'_Sync' has a sync 'stream': make it an async generator"),
        (ScriptedModel, "'ScriptedModel' is a class: pass an instance"),
    ],
)
def test_an_object_that_is_no_model_is_refused_when_the_agent_is_made(wrong: object, reason: str) -> None:
    with pytest.raises(ModelRefused, match=reason):
        AgentLoop(cast("Model", wrong))


def test_an_object_that_is_no_tool_and_a_second_tool_of_one_name_are_refused_when_the_agent_is_made() -> None:
    def no_tool(text: str) -> str:
        return text

    for wrong, name, reason in (
        (no_tool, "no_tool", "is a function: decorate it with @tool"),
        (ScriptedModel, "ScriptedModel", "is a class: pass an instance"),
        (ToolSpec("x", "", {}), "ToolSpec", "has no .*run: decorate a function with @tool"),
    ):
        with pytest.raises(ToolRefused, match=f"'{name}' in `tools` is not a tool: it {reason}") as caught:
            AgentLoop(ScriptedModel(), (first, cast("Tool", wrong)))
        assert caught.value.tool == name
    with pytest.raises(DuplicateTool) as twice:
        AgentLoop(ScriptedModel(), (first, first))
    assert twice.value.name == "first"


async def test_an_answer_over_the_limit_or_of_a_wrong_type_fails(session: Session) -> None:
    for number, (script, reason) in enumerate(
        (
            (answer("x" * 2_000_000), "over the limit"),
            ([cast("Step", "hello")], r'of type str: yield Piece\("text", …\)'),
        )
    ):
        await ask(session)
        await AgentLoop(ScriptedModel(script))(await take_run(session))
        failed = (await answers(session))[-1]
        assert (failed.stop_reason, failed.content) == ("error", ())
        assert re.search(reason, failed.error_message or "")
        assert number or failed.usage == Usage(input=10, output=2, total_tokens=12), "its cost is kept"
        assert (await said(session))[-1] == "agent.ended"
