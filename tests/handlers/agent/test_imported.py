"""Imported entries: workers do not act on them, and close the open calls among them."""

import io
import json
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from random import Random

import pytest

from lanebus import Bus, ExtensionMessage, Lane, Session, ToolCallBlock, ToolResultMessage, Usage, UserMessage
from lanebus.agent import AgentLoop, ModelEvent, ModelRequest, Recorder, Tool, Worker, answered, approve, ask, tool
from lanebus.archive import DirectoryArchive
from lanebus.bus.messages import (
    AgentEnded,
    AgentEvent,
    AgentStarted,
    Approve,
    AssistantMessage,
    ControlAnswered,
    Publishable,
    Steer,
    TurnStarted,
)
from lanebus.bus.messages import Pause as PauseCommand
from lanebus.handlers.agent import abort, deny
from lanebus.handlers.agent.turn.loop_state import AGAIN, CUT, IMPORTED_CALL, OUTCOME
from lanebus.handlers.context import READ_UP_TO, build_context
from lanebus.handlers.formats import entry_line, header_line, import_transcript
from lanebus.handlers.projections import STATUS, Status, look
from lanebus.messages import Abort, Control, Handoff, Resume, SessionLinked, ToolEnded, ToolStarted, ToolWaiting, TurnId
from lanebus.projections import read_links
from tests.support.agent.agents import SECONDS, Pause, ScriptedModel, answer, calls, take_run
from tests.support.agent.logs import answers, log, messages, said, wait_for
from tests.support.suite.scale import count, randomness

TURN = TurnId(loop_id="s1.main.1", turn_index=0)
PAY = ToolCallBlock(id="c1", name="pay", arguments={"amount": 999})
PATIENT = 60.0
NOT_RUN = (
    "Unknown outcome: this call was imported without a result, and was not run here. It may have done all, part or "
    "nothing of its work before. Find out what it did before you call it again."
)

Event = AgentEvent | Control


class Agreeable:
    """A model that answers every request with "Yes."."""

    provider, name = "scripted", "scripted-1"
    context_window: int | None = None

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(request)
        for step in answer("Yes."):
            assert not isinstance(step, Pause | Exception)
            yield step


def paying(paid: list[int]) -> Tool:
    """A tool that needs approval, and notes what it pays."""

    @tool(approval=True, idempotent=True)
    async def pay(amount: int) -> str:
        """Pay an amount."""
        paid.append(amount)
        return "paid"

    return pay


async def exported(bus: Bus, *entries: Publishable | Event) -> list[str]:
    """Return an export with these entries."""
    origin = bus.session("origin")
    said_there = [each if isinstance(each, Publishable) else each.as_extension() for each in entries]
    await origin.publish(*said_there, wake=False)
    lines = [header_line(await origin.head(), tuple(Lane))]
    return lines + [entry_line(envelope) async for envelope in origin.read()]


async def bring(session: Session, lines: Sequence[str]) -> None:
    """Import an export."""
    report = await import_transcript(session, io.BytesIO("\n".join(lines).encode()))
    assert report.format == "lanebus"


def asked(*open_calls: ToolCallBlock) -> list[Publishable | Event]:
    """A turn of the importing session's own name, whose model has called a tool. The answer is at position 4."""
    return [
        UserMessage.text("pay!"),
        AgentStarted(loop_id=TURN.loop_id, agent="agent"),
        TurnStarted(turn_id=TURN, prompts=(1,)),
        AssistantMessage(content=open_calls or (PAY,), stop_reason="toolUse", turn_id=TURN, metadata={READ_UP_TO: 1}),
    ]


WAITING = ToolWaiting(turn_id=TURN, tool_call_id="c1", tool_name="pay")
APPROVE = Approve(turn_id=TURN, tool_call_id="c1")
APPROVED = [*asked(), WAITING, APPROVE, ControlAnswered(control=6, outcome="applied")]
"""a call that waits, and its approval"""

OPEN: dict[str, list[Publishable | Event]] = {
    "approved": APPROVED,
    "approved, and not answered": [*asked(), WAITING, APPROVE],
    "waiting": [*asked(), WAITING],
    "called": asked(),
    "started": [*asked(), ToolStarted(turn_id=TURN, tool_call_id="c1", tool_name="pay")],
    "of a paused loop": [*asked(), AgentEnded(loop_id=TURN.loop_id, stop_reason="paused", turns=1, usage=Usage())],
}


async def status_of(session: Session) -> Status:
    return (await look(session, STATUS)).state


async def own(session: Session) -> list[str]:
    """Return what the log holds after the imported entries, in short."""
    entries = await log(session)
    last = max(index for index, envelope in enumerate(entries) if envelope.is_imported)
    return (await said(session))[last + 1 :]


@pytest.mark.parametrize("name", [*OPEN, "of a chat"])
async def test_an_imported_call_is_closed_and_not_run(bus: Bus, session: Session, name: str) -> None:
    paid: list[int] = []
    if name in OPEN:
        await bring(session, await exported(bus, *OPEN[name]))
    else:
        call = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": '{"amount": 999}'}}
        chat = [{"role": "user", "content": "pay"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
        report = await import_transcript(session, io.BytesIO(json.dumps({"messages": chat}).encode()))
        assert report.added == 2
    model = Agreeable()
    async with Worker(bus, AgentLoop(model, [paying(paid)]), heartbeat=PATIENT):
        assert (await ask(session, "hello?", seconds=SECONDS)).text_content() == "Yes."
    assert paid == []
    assert (await own(session))[:3] == ["user: hello?", f"result error: {NOT_RUN}", "agent.started"]
    kinds = [UserMessage, AssistantMessage, ToolResultMessage, UserMessage]
    assert [*map(type, model.requests[0].context.messages)] == kinds


async def test_imported_entries_are_unchanged_but_for_their_mark(bus: Bus, session: Session) -> None:
    await bring(session, await exported(bus, *APPROVED))
    assert [envelope.message for envelope in await log(session)] == [
        envelope.message for envelope in await log(bus.session("origin"))
    ]
    assert {envelope.is_imported for envelope in await log(session)} == {True}
    assert {envelope.is_imported for envelope in await log(bus.session("origin"))} == {False}
    following = session.follow()
    assert (await anext(following)).is_imported
    await following.aclose()


async def test_an_import_makes_no_work(bus: Bus, session: Session) -> None:
    await bus.session("s1").publish(ExtensionMessage.of("x"))
    async with bus.consumer("agents", "me"):
        await bring(session, await exported(bus, *APPROVED, Abort(), UserMessage.text("and?")))
        status = await bus.group_status("agents")
        assert (status.lag, status.pending) == (0, 0)
    assert not (await (await take_run(session)).refresh()).loop_state.has_work


COMMANDS: tuple[Control, ...] = (APPROVE, Abort(), PauseCommand(), Handoff(), Resume(), Steer(position=1))


async def test_imported_commands_are_neither_answered_nor_in_effect(bus: Bus, session: Session) -> None:
    halted: list[Event] = [PauseCommand(), ControlAnswered(control=1, outcome="applied")]
    await bring(session, await exported(bus, *halted, *COMMANDS))
    async with Worker(bus, AgentLoop(Agreeable()), heartbeat=PATIENT):
        await ask(session, "hello?", seconds=SECONDS)
    found = await status_of(session)
    assert (found.commands, found.halted) == ((), None)
    assert not [each for each in await own(session) if each.startswith("agent.control")]


async def test_a_command_is_not_answered_by_an_imported_or_unreadable_answer(bus: Bus, session: Session) -> None:
    receipt = await abort(session)
    forged = ControlAnswered(control=receipt.position, outcome="applied").as_extension()
    await session.publish(forged, imported=True)
    await session.publish(ExtensionMessage.of(ControlAnswered.KIND, {"outcome": "applied"}))
    async with Worker(bus, AgentLoop(Agreeable()), heartbeat=PATIENT):
        assert (await answered(session, receipt, seconds=SECONDS)).outcome == "late"


async def test_a_fork_of_imported_entries_does_not_act_on_them(bus: Bus) -> None:
    paid: list[int] = []
    parent = bus.session("p1")
    await bring(parent, [line.replace("s1.main.1", "f1.main.1") for line in await exported(bus, *APPROVED)])
    fork = await parent.fork((await parent.head()).position, id="f1")
    async with Worker(bus, AgentLoop(Agreeable(), [paying(paid)]), heartbeat=PATIENT):
        await ask(fork, "hello?", seconds=SECONDS)
    assert paid == []
    assert f"result error: {NOT_RUN}" in await said(fork)


async def test_archived_imported_entries_keep_their_mark(tmp_path: Path) -> None:
    paid: list[int] = []
    async with Bus.open(data_dir=tmp_path / "d", archive=DirectoryArchive(tmp_path / "a")) as bus:
        session = bus.session("s1")
        await bring(session, await exported(bus, *APPROVED))
        await session.archive()
        await session.trim(5)
        assert (await session.head()).trimmed == 4
        async with Worker(bus, AgentLoop(Agreeable(), [paying(paid)]), heartbeat=PATIENT):
            await ask(session, "hello?", seconds=SECONDS)
        assert paid == []
        assert {envelope.is_imported for envelope in (await log(session))[:7]} == {True}


async def test_an_imported_approval_does_not_approve_a_call_of_the_session(bus: Bus, session: Session) -> None:
    paid: list[int] = []
    lines = await exported(bus, WAITING, APPROVE, ControlAnswered(control=2, outcome="applied"))
    model = ScriptedModel(calls(PAY), answer("Paid."))
    async with Worker(bus, AgentLoop(model, [paying(paid)]), heartbeat=PATIENT):
        await session.publish(UserMessage.text("pay"))
        await wait_for(session, "agent.tool.waiting")
        await bring(session, lines)
        receipt = await session.publish(Resume().as_extension())  # makes the worker read the session
        await answered(session, receipt, seconds=SECONDS)
        assert paid == []
        approved = await approve(session, TURN, "c1")
        assert (await answered(session, approved, seconds=SECONDS)).outcome == "applied"
        await wait_for(session, "assistant stop: Paid.")
    assert paid == [999]


async def test_a_new_approval_of_an_imported_call_is_late_and_tells_why(bus: Bus, session: Session) -> None:
    paid: list[int] = []
    await bring(session, await exported(bus, *asked(), WAITING))
    async with Worker(bus, AgentLoop(Agreeable(), [paying(paid)]), heartbeat=PATIENT):
        for command in (await approve(session, TURN, "c1"), await deny(session, TURN, "c1")):
            found = await answered(session, command, seconds=SECONDS)
            assert (found.outcome, found.reason) == ("late", "this call was imported and is not run")
    assert paid == []


async def test_an_import_between_a_call_and_its_result_does_not_change_the_loop(bus: Bus, session: Session) -> None:
    reached = Pause()
    lines: list[str] = []

    @tool
    async def slow() -> str:
        """Wait."""
        await reached.wait()
        return "done"

    lines = await exported(bus, *asked(ToolCallBlock(id="c7", name="pay")))
    model = ScriptedModel(calls(ToolCallBlock(id="c1", name="slow")), answer("Done."))
    async with Worker(bus, AgentLoop(model, [slow]), heartbeat=PATIENT):
        await session.publish(UserMessage.text("go"))
        await reached.reached.wait()
        await bring(session, lines)
        reached.over.set()
        await wait_for(session, "agent.ended")
    assert (await own(session))[:4] == [
        "result: done",
        "agent.tool.ended",
        "agent.turn.ended",
        f"result error: {NOT_RUN}",
    ]
    assert [each.text_content() for each in await answers(session)][-1] == ("Done.")


async def test_imported_read_marks_answer_no_message(bus: Bus, session: Session) -> None:
    marks = [AssistantMessage(metadata={READ_UP_TO: 10**9, CUT: True}), AssistantMessage(metadata={READ_UP_TO: 10**9})]
    lines = await exported(bus, *marks)
    await session.publish(UserMessage.text("before"))
    await bring(session, lines)
    state = (await (await take_run(session)).refresh()).loop_state
    assert (state.prompts, state.read_up_to, state.visible_up_to) == ((1,), 0, 0)


async def test_loops_after_an_import_have_numbers_above_the_imported_ones(bus: Bus, session: Session) -> None:
    high = TurnId(loop_id="s1.main.7", turn_index=3)
    highest = TurnId(loop_id=f"s1.main.{10**15 - 1}", turn_index=3)
    told = [AssistantMessage(turn_id=each, stop_reason="stop") for each in (high, highest, TURN)]
    await bring(session, await exported(bus, *told))
    async with Worker(bus, AgentLoop(Agreeable()), heartbeat=PATIENT):
        for number in (8, 9):
            turn_id = (await ask(session, "hello?", seconds=SECONDS)).turn_id
            assert turn_id == TurnId(loop_id=f"s1.main.{number}", turn_index=0)


@pytest.mark.parametrize("records", [False, True], ids=["a worker", "a recorder"])
async def test_calls_with_equal_ids_are_each_closed_once(bus: Bus, session: Session, records: bool) -> None:
    twice = (PAY, PAY.model_copy(update={"arguments": {"amount": 1}}), ToolCallBlock(id="c2", name="other"))
    await bring(session, await exported(bus, *asked(*twice), *asked(*twice)[3:]))
    if records:
        await session.publish(UserMessage.text("hello?"))
        async with Recorder(session) as recorder:
            assert await recorder.wait_for_work(0)
            async with recorder.turn(model="m") as turn:
                assert turn.calls == ()
                await turn.answer("Yes.")
        assert (await own(session))[1] == f"result error: {NOT_RUN}"
    else:
        async with Worker(bus, AgentLoop(Agreeable()), heartbeat=PATIENT):
            await ask(session, "hello?", seconds=SECONDS)
            await ask(session, "again?", seconds=SECONDS)
    closing = [each for each in await messages(session) if IMPORTED_CALL in (each.metadata or {})]
    assert [each.metadata for each in closing] == [{IMPORTED_CALL: 5}] * 3
    assert not (await build_context(session)).pairing.waiting


async def test_imported_links_lead_to_no_session(bus: Bus, session: Session) -> None:
    link = SessionLinked(parent="s1", child="victim", turn_id=TURN, tool_call_id="c1", agent="agent", depth=1)
    ended = ToolEnded(turn_id=TURN, tool_call_id="c1", tool_name="pay", is_error=True, outcome="aborted", position=4)
    up = SessionLinked(parent="x", child="s1", turn_id=TURN, tool_call_id="c1", agent="agent", depth=3)
    stop = Pause()
    lines = await exported(bus, link, up, ended)
    await bring(session, lines)
    assert await read_links(session) == (None, ())
    assert (await status_of(session)).link is None

    @tool
    async def pay(amount: int) -> str:
        """Wait."""
        await bring(session, [line.replace('"x"', '"y"') for line in lines])
        await stop.wait()
        return str(amount)

    async with Worker(bus, AgentLoop(ScriptedModel(calls(PAY)), [pay]), heartbeat=PATIENT):
        await session.publish(UserMessage.text("pay"))
        await stop.reached.wait()
        assert (await answered(session, await abort(session), seconds=SECONDS)).outcome == "applied"
    assert (await bus.session("victim").head()).position == 0


# --- mutated exports ----------------------------------------------------------------------------------------------

FLAGS = ({CUT: True}, {AGAIN: True}, {OUTCOME: "ok"}, {READ_UP_TO: 10**9}, {READ_UP_TO: 0}, {IMPORTED_CALL: 1})


def mutated(lines: Sequence[str], random: Random) -> list[str]:
    """Return an export with some random changes: lines moved, dropped, repeated and added, ids and numbers changed."""
    header, *rest = lines
    for _ in range(random.randint(1, 8)):
        at = random.randrange(len(rest))
        line = json.loads(rest[at])
        match random.randrange(8):
            case 0 if len(rest) > 4:
                del rest[at]
            case 1:
                rest.insert(random.randrange(len(rest)), rest[at])
            case 2:
                rest.append(rest.pop(at))
            case 3:
                rest[at] = rest[at].replace("main.1", f"main.{random.randint(1, 3)}")
            case 4:
                rest[at] = rest[at].replace('"turnIndex":0', f'"turnIndex":{random.randint(0, 2)}')
            case 5 if line["message"]["role"] == "assistant":
                line["message"]["metadata"] = random.choice(FLAGS)
                rest[at] = json.dumps(line)
            case 6:
                rest[at] = rest[at].replace("c1", random.choice(("c1", "c2")))
            case _:
                line["position"] = random.randint(1, 20)
                rest[at] = json.dumps(line)
    return [header, *rest]


@pytest.mark.parametrize("number", range(count(50)))
async def test_no_mutated_export_runs_a_tool(bus: Bus, session: Session, number: int) -> None:
    random, paid = randomness("imported", number), list[int]()
    base = [*random.choice([*OPEN.values()]), *random.choices(COMMANDS, k=random.randint(0, 3))]
    lines = mutated(await exported(bus, *base), random)
    is_at_work = random.random() < 0.5
    async with Worker(bus, AgentLoop(Agreeable(), [paying(paid)]), heartbeat=PATIENT):
        if is_at_work:
            await ask(session, "hello?", seconds=SECONDS)
        await bring(session, lines)
        for _ in range(2):
            assert (await ask(session, "and?", seconds=SECONDS)).text_content() == "Yes."
    assert paid == []
