"""Commands to a running agent: their effects, their order and their answers."""

from collections.abc import Awaitable, Callable

import anyio
import pytest

from lanebus import Receipt, Session
from lanebus.agent import AgentLoop, FunctionTool, abort, answered, approve, deny, handoff, pause, resume, steer, tool
from lanebus.bus.messages import AgentStarted, ExtensionMessage, ToolCallBlock, ToolEnded, Usage, UserMessage
from lanebus.errors import DecodeError, InvalidArgument, KeyTooLong
from lanebus.handlers.agent import AnswerTimeout, follow_up
from lanebus.handlers.agent.loop import ModelStream
from lanebus.messages import AgentEnded, Approve, ControlAnswered, Deny, ToolWaiting, TurnId, TurnStarted, parse_control
from lanebus.projections import TURNS, project
from lanebus.providers import Piece
from tests.support.agent.agents import SECONDS, Pause, ScriptedModel, answer, calls, take_run
from tests.support.agent.logs import answers, events_of, listed, log, results, said
from tests.support.agent.runs import FIRST, SECOND, ask, at_work, called, first, second, work

TURN = TurnId(loop_id="s1.main.1", turn_index=0)


def works(pause: Pause) -> FunctionTool:
    """A tool that waits until it is released."""

    async def run() -> str:
        await pause.wait()
        return "done"

    return tool(name="first")(run)


def waits(call: str, name: str) -> ToolWaiting:
    return ToolWaiting(turn_id=TURN, tool_call_id=call, tool_name=name)


async def outcomes(session: Session) -> list[tuple[int, str]]:
    return [(e.control, e.outcome) for e in await events_of(session, ControlAnswered)]


async def ends(session: Session) -> list[str]:
    return [event.stop_reason for event in await events_of(session, AgentEnded)]


async def replies(session: Session) -> list[str]:
    return [text for text in await said(session) if text.startswith(("assistant", "result"))]


# --- abort --------------------------------------------------------------------------------------------------------


async def test_an_abort_cuts_the_answer_and_earlier_messages_are_not_answered(session: Session) -> None:
    await ask(session)
    stop = Pause()
    model = ScriptedModel([Usage(input=3), Piece("text", "As I was "), stop, *answer("Never.")], answer("Yes."))
    agent = AgentLoop(model, drain_seconds=0)
    async with at_work(session, agent, stop):
        await ask(session, "and this?")
        command = await abort(session, reason="enough")
        assert (await answered(session, command)).outcome == "applied"
    assert (await said(session))[-5:] == [
        "assistant aborted: As I was ",
        "agent.message.ended",
        "agent.turn.ended",
        "agent.ended",
        "agent.control.answered",
    ]
    cut = (await answers(session))[-1]
    assert (cut.error_message, cut.usage) == (
        "Aborted by the user",
        Usage(input=3, output=3, total_tokens=6, estimated=True),
    )
    assert await ends(session) == ["aborted"]
    assert await session.open_messages() == []
    await ask(session, "still there?")
    await work(agent, await take_run(session))
    assert (await replies(session))[-1] == "assistant stop: Yes."
    shown = [message.text_content() for message in model.requests[1].context.messages]
    assert shown == ["hello?", "and this?", "still there?"]


async def test_a_cut_stream_is_read_until_its_usage_is_known(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Pause()
    drain = ModelStream.drain

    async def go_on_and_drain(speech: ModelStream, *, seconds: float, tokens: int) -> bool:
        stop.over.set()
        return await drain(speech, seconds=seconds, tokens=tokens)

    monkeypatch.setattr(ModelStream, "drain", go_on_and_drain)
    await ask(session)
    model = ScriptedModel([Piece("text", "half"), stop, Piece("text", " more"), *answer("Whole.")])
    async with at_work(session, AgentLoop(model, drain_seconds=SECONDS), stop):
        await answered(session, await abort(session))
    told = (await answers(session))[-1]
    assert (told.stop_reason, told.text_content()) == ("aborted", "half")
    assert told.usage == Usage(input=10, output=2, total_tokens=12)


async def test_an_abort_before_the_first_piece_or_the_loop_is_applied(session: Session) -> None:
    await ask(session)
    await abort(session)
    later = ScriptedModel(answer("Yes."))
    await work(AgentLoop(later), await take_run(session))
    assert later.requests == []
    assert await outcomes(session) == [(2, "applied")]
    await ask(session, "again?")
    await work(AgentLoop(later), await take_run(session))
    assert len(later.requests) == 1
    await ask(session, "once more?")
    stop = Pause()
    async with at_work(session, AgentLoop(ScriptedModel([stop, *answer("Never.")]), drain_seconds=0), stop):
        await answered(session, await abort(session))
    assert (await replies(session))[-1] == "assistant aborted: "
    assert (await ends(session))[-1] == "aborted"
    assert await session.open_messages() == []


async def test_a_command_that_no_worker_answers_is_waited_for_until_the_time_is_over(session: Session) -> None:
    command = await pause(session)
    with pytest.raises(AnswerTimeout, match="the command at position 1 was not answered within") as caught:
        await answered(session, command, seconds=0.01)
    assert (caught.value.session, caught.value.position) == ("s1", command.position)
    assert (await session.head()).position == command.position


async def test_an_abort_of_an_ended_loop_is_late(session: Session) -> None:
    await ask(session)
    agent = AgentLoop(ScriptedModel(answer("Yes."), answer("Two.")))
    await work(agent, await take_run(session))
    await abort(session)
    await abort(session, loop_id="s1.main.1")
    await ask(session, "more?")
    await abort(session, loop_id="s1.main.1")
    await work(agent, await take_run(session))
    assert [outcome for _, outcome in await outcomes(session)] == ["late", "late", "late"]
    assert (await replies(session))[-1] == "assistant stop: Two."


async def test_an_abort_after_the_turn_lets_the_turn_finish(session: Session) -> None:
    stop = Pause()

    await ask(session)
    model = ScriptedModel(calls(FIRST))
    async with at_work(session, AgentLoop(model, (works(stop),)), stop):
        command = await abort(session, when="turn")
        stop.over.set()
        assert (await answered(session, command)).outcome == "applied"
    assert await replies(session) == ["assistant toolUse: <first>", "result: done", "assistant aborted: "]
    assert await ends(session) == ["userStop"]
    assert len(model.requests) == 1


# --- steer, follow up ---------------------------------------------------------------------------------------------


async def test_a_steering_message_is_in_the_next_request_of_the_same_loop(session: Session) -> None:
    stop = Pause()

    await ask(session)
    model = ScriptedModel(calls(FIRST), answer("Ok."))
    async with at_work(session, AgentLoop(model, (works(stop),)), stop):
        command = await steer(session, "in French, please")
        stop.over.set()
        assert (await answered(session, command)).outcome == "applied"
    shown = [message.text_content() for message in model.requests[1].context.messages]
    assert shown == ["hello?", "", "done", "in French, please"]
    assert await ends(session) == ["stop"]
    turns = await events_of(session, TurnStarted)
    assert command.positions[0] in turns[1].prompts


async def test_a_steer_with_now_cuts_the_answer_and_the_next_turn_answers_it(session: Session) -> None:
    await ask(session)
    stop = Pause()
    model = ScriptedModel([Piece("text", "Well, "), stop, *answer("Never.")], answer("Bien."))
    async with at_work(session, AgentLoop(model, drain_seconds=0), stop):
        await answered(session, await steer(session, "in French, please", when="now"))
    assert await replies(session) == ["assistant aborted: Well, ", "assistant stop: Bien."]
    assert await ends(session) == ["stop"]
    assert [message.text_content() for message in model.requests[1].context.messages] == ["hello?", "in French, please"]
    assert [outcome for _, outcome in await outcomes(session)] == ["applied"]


async def test_a_steer_without_a_loop_is_late_and_its_message_is_answered(session: Session) -> None:
    command = await steer(session, "hello?", when="now")
    await work(AgentLoop(ScriptedModel(answer("Yes."))), await take_run(session))
    assert (await answered(session, command)).outcome == "late"
    assert (await replies(session)) == ["assistant stop: Yes."]


async def test_a_steer_names_the_position_of_its_message_despite_concurrent_appends(session: Session) -> None:
    receipts: list[Receipt] = []

    async def one(number: int) -> None:
        receipts.append(await steer(session, f"number {number}", key=f"k{number % 8}"))

    async with anyio.create_task_group() as tasks:
        for number in range(16):
            tasks.start_soon(one, number)
    assert sum(not receipt.is_duplicate for receipt in receipts) == 8
    model = ScriptedModel(answer("All."))
    await work(AgentLoop(model), await take_run(session))
    assert [outcome for _, outcome in await outcomes(session)] == ["late"] * 8, "none was refused"


async def test_a_follow_up_waits_until_the_loop_has_ended(session: Session) -> None:
    stop = Pause()

    await ask(session)
    model = ScriptedModel(calls(FIRST), answer("One."), answer("Two."))
    async with at_work(session, AgentLoop(model, (works(stop),)), stop):
        await follow_up(session, "and then?")
        stop.over.set()
    shown = [[m.text_content() for m in request.context.messages] for request in model.requests]
    assert shown == [["hello?"], ["hello?", "", "done"], ["hello?", "", "done", "One.", "and then?"]]
    loops = [event.loop_id for event in await events_of(session, AgentStarted)]
    assert loops == ["s1.main.1", "s1.main.2"]


# --- pause, handoff, resume ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("halt", "stop_reason"), [(pause, "paused"), (handoff, "handoff")])
async def test_a_halted_loop_continues_after_resume_with_later_messages(
    session: Session, halt: Callable[[Session], Awaitable[Receipt]], stop_reason: str
) -> None:
    stop = Pause()

    await ask(session)
    model = ScriptedModel(calls(FIRST), answer("Ok."))
    agent = AgentLoop(model, (works(stop),))
    async with at_work(session, agent, stop):
        await halt(session)
        stop.over.set()
    assert await ends(session) == [stop_reason]
    await ask(session, "while you were away")
    run = await take_run(session)
    assert not (await run.refresh()).loop_state.has_work
    await halt(session)
    await work(agent, run)
    assert len(model.requests) == 1
    await resume(session)
    await resume(session)
    await work(agent, run)
    assert [message.text_content() for message in model.requests[1].context.messages] == [
        "hello?",
        "",
        "done",
        "while you were away",
    ]
    assert await ends(session) == [stop_reason, "stop"]
    loops = await events_of(session, AgentStarted)
    assert [(loop.loop_id, loop.parent_loop_id, loop.continuation) for loop in loops] == [
        ("s1.main.1", None, "initial"),
        ("s1.main.2", "s1.main.1", "default"),
    ]
    assert [outcome for _, outcome in await outcomes(session)] == ["applied", "repeated", "applied", "repeated"]


async def test_nothing_is_left_to_continue_after_an_abort_of_a_paused_loop(session: Session) -> None:
    await ask(session)
    stop = Pause()

    model = ScriptedModel(calls(FIRST), answer("Later."))
    agent = AgentLoop(model, (works(stop),))
    async with at_work(session, agent, stop):
        await pause(session)
        stop.over.set()
    await abort(session, loop_id="s1.main.1")
    await resume(session)
    await work(agent, await take_run(session))
    assert len(model.requests) == 1
    assert [outcome for _, outcome in await outcomes(session)] == ["applied"] * 3
    await ask(session, "again?")
    await work(agent, await take_run(session))
    assert (await replies(session))[-1] == "assistant stop: Later."


# --- approve, deny ------------------------------------------------------------------------------------------------


async def test_an_approval_is_applied_once_late_after_the_call_and_refused_for_another(session: Session) -> None:
    await ask(session)
    run = await take_run(session)
    await run.publish(*called(FIRST, then=[waits("c1", "first")]))
    model = ScriptedModel(answer("Ok."))
    agent = AgentLoop(model, (first,))
    await work(agent, run)
    assert await outcomes(session) == []
    assert model.requests == []
    other = TurnId(loop_id="s1.main.1", turn_index=7)
    foreign = TurnId(loop_id="s2.main.1", turn_index=0)
    for sent in (
        approve(session, other, "c1"),
        approve(session, TURN, "c9"),
        deny(session, foreign, "c1"),
        approve(session, TURN, "c1", by="me"),
        approve(session, TURN, "c1"),
        deny(session, TURN, "c1"),
    ):
        await sent
    await work(agent, run)
    found = await events_of(session, ControlAnswered)
    wanted = ["refused", "refused", "refused", "applied", "repeated", "late"]
    assert [event.outcome for event in found] == wanted
    wrong_turn = "the turn does not match: the call is of turn s1.main.1#0"
    assert [event.reason for event in found[:3]] == [wrong_turn, "there is no such call", wrong_turn]
    assert await replies(session) == ["assistant toolUse: <first>", "result: one", "assistant stop: Ok."]
    await deny(session, TURN, "c1")
    await work(agent, run)
    assert (await outcomes(session))[-1][1] == "late"


async def test_an_approval_with_the_hash_of_other_arguments_is_refused_and_the_call_waits(session: Session) -> None:
    await ask(session)
    run = await take_run(session)
    await run.publish(*called(FIRST, then=[waits("c1", "first")]))
    model = ScriptedModel(answer("Ok."))
    agent = AgentLoop(model, (first,))
    seen = ToolCallBlock(id="c1", name="first", arguments={"path": "harmless"})
    await approve(session, TURN, "c1", call_hash=seen.call_hash)
    await work(agent, run)
    (answered_by,) = await events_of(session, ControlAnswered)
    assert (answered_by.outcome, "look at it again" in str(answered_by.reason)) == ("refused", True)
    assert model.requests == []
    await approve(session, TURN, "c1", call_hash=FIRST.call_hash)
    await work(agent, run)
    assert len(model.requests) == 1


@pytest.mark.parametrize("turn", ["main.1#2", "s1.main.1#2"])
async def test_an_approval_names_its_turn_by_text_with_or_without_the_session(session: Session, turn: str) -> None:
    for call_hash in ("", "short", "A" * 64, "a" * 63, "a" * 64 + "\n"):
        with pytest.raises(InvalidArgument, match=r"call_hash.*SHA-256 of 64 digits"):
            await approve(session, turn, "c1", call_hash=call_hash)
    for command in (approve, deny):
        with pytest.raises(DecodeError, match="'s1' is not a turn id: write one such as"):
            await command(session, "s1", "c1")
    await approve(session, turn, "c1", by="ada")
    await deny(session, turn, "c1")
    entries = [entry.message for entry in await log(session)]
    sent = [parse_control(each) for each in entries if isinstance(each, ExtensionMessage)]
    turn_id = TurnId(loop_id="s1.main.1", turn_index=2)
    assert sent == [Approve(turn_id=turn_id, tool_call_id="c1", by="ada"), Deny(turn_id=turn_id, tool_call_id="c1")]


async def test_of_an_approval_and_a_message_that_no_worker_has_read_the_first_counts(session: Session) -> None:
    await ask(session)
    run = await take_run(session)
    await run.publish(*called(FIRST, SECOND, then=[waits("c1", "first"), waits("c2", "second")]))
    await approve(session, TURN, "c1")
    await ask(session, "never mind")
    await approve(session, TURN, "c2")
    await work(AgentLoop(ScriptedModel(answer("Ok.")), (first, second)), run)
    assert [outcome for _, outcome in await outcomes(session)] == ["applied", "late"]
    assert await replies(session) == listed(
        "assistant toolUse: <first><second> | result: one | result error: Skipped due to queued user message. | "
        "assistant stop: Ok."
    )


# --- all of them --------------------------------------------------------------------------------------------------


async def test_an_unreadable_command_is_refused_and_blocks_no_other(session: Session) -> None:
    await session.publish(
        ExtensionMessage.of("control.sing", {}),
        ExtensionMessage.of("control.approve", {"turnId": 3}),
        ExtensionMessage.of("control.steer", {"position": 99}),
        ExtensionMessage.of("control.compact", {}),
        ExtensionMessage.of("control.pause", {}),
    )
    run = await take_run(session)
    assert (await run.refresh()).loop_state.has_work
    await work(AgentLoop(ScriptedModel()), run)
    assert await outcomes(session) == [*((number, "refused") for number in (1, 2, 3, 4)), (5, "applied")]
    found = [event.reason for event in await events_of(session, ControlAnswered)]
    assert all(found[:4])


async def test_a_command_does_not_count_as_a_repeat_of_a_message_or_of_another_command(session: Session) -> None:
    sent = [
        await session.publish(UserMessage.text("hi"), key="k"),
        await abort(session, key="k"),
        await steer(session, "shorter", key="k"),
        await pause(session, key="k"),
    ]
    await resume(session, key="r")
    sent.append(await session.publish(UserMessage.text("hi"), key="r"))
    assert [receipt.is_duplicate for receipt in sent] == [False] * 5
    assert (await abort(session, key="k")).positions == sent[1].positions
    assert (await steer(session, "shorter", key="k")).positions == sent[2].positions
    assert (await follow_up(session, "hi", key="k")).positions == sent[0].positions


async def test_a_command_is_appended_once_for_each_key_which_is_refused_as_the_caller_wrote_it(
    session: Session,
) -> None:
    one, two = await pause(session, key="p"), await pause(session, key="p")
    assert (two.is_duplicate, two.position) == (True, one.position)
    await work(AgentLoop(ScriptedModel()), await take_run(session))
    assert await outcomes(session) == [(1, "applied")]
    assert (await answered(session, two)).outcome == "applied"
    with pytest.raises(KeyTooLong) as caught:
        await abort(session, key="k" * 1_024)
    assert caught.value.size_bytes == 1_024
    await abort(session, key="k" * caught.value.limit_bytes)
    with pytest.raises(KeyTooLong):
        await abort(session, key="k" * (caught.value.limit_bytes + 1))


# --- how tool calls end -------------------------------------------------------------------------------------------


async def test_the_end_of_a_tool_call_says_if_it_completed_failed_or_has_an_unknown_outcome(session: Session) -> None:
    @tool(name="fails")
    async def fails() -> str:
        raise ValueError("no")

    @tool(name="late", timeout=0.01)
    async def late() -> str:
        await anyio.sleep_forever()
        return ""

    await ask(session)
    asked = [ToolCallBlock(id=f"c{n}", name=name) for n, name in enumerate(("first", "fails", "late", "lost"))]
    agent = AgentLoop(ScriptedModel(calls(*asked), answer("Ok.")), (first, fails, late))
    await work(agent, await take_run(session))
    ended = await events_of(session, ToolEnded)
    assert {event.tool_name: (event.outcome, event.is_error) for event in ended} == {
        "first": ("completed", False),
        "fails": ("failed", True),
        "late": ("unknown", True),
        "lost": ("failed", True),
    }
    found = await results(session)
    assert [each.metadata for each in found] == [None] * 4
    runs = [run for turn in (await project(session, TURNS)).state.turns for run in turn.tools]
    assert [(run.outcome, run.fault) for run in runs] == [
        ("completed", ""),
        ("failed", "failed"),
        ("unknown", "with unknown outcome"),
        ("failed", "failed"),
    ]
