"""Workers: one loop per session, and nothing is lost if a worker stops, dies or gets a poison message."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from lanebus import AssistantMessage, ExtensionMessage, Fenced, Lane, Receipt, TrimRefused, UserMessage
from lanebus.agent import Agent, AgentLoop, Piece, PreviewBounds, Run, RunBounds, Worker, WorkerBounds
from lanebus.archive import DirectoryArchive
from lanebus.bus import Bus, Lease, Session, open_server
from lanebus.bus.wire import Cursor, Keys
from lanebus.errors import OutcomeUnknown
from lanebus.messages import AgentStarted, Compaction, Publishable
from tests.support.agent.agents import SECONDS, Pause, ScriptedModel, answer, short_folder
from tests.support.agent.logs import answers, events_of, said, wait_for
from tests.support.agent.runs import ask
from tests.support.held import held
from tests.support.log.groups import held_lease
from tests.support.servers.real import background, eventually
from tests.support.servers.resp import Resp

TINY = WorkerBounds(
    warm_sessions=3,
    warm_bytes=3,
    store_every=2,
    first_pause_seconds=0.01,
    longest_pause_seconds=0.02,
    run=RunBounds(
        publish_attempts=20,
        watch_after_seconds=0.001,
        drain_tokens=1,
        usage_answers=1,
        preview=PreviewBounds(pause_seconds=0.001, flush_characters=4, delta_characters=3),
    ),
)

_bounds = WorkerBounds()
"""bounds of the workers of the current test"""


@pytest.fixture(params=[WorkerBounds(), TINY], ids=["default", "tiny"], autouse=True)
def bounds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> WorkerBounds:
    monkeypatch.setattr(f"{__name__}._bounds", request.param)
    return _bounds


class Echo(ScriptedModel):
    """Answers "Yes." each time."""

    def __init__(self) -> None:
        super().__init__(*[answer("Yes.")] * 1_000)


@asynccontextmanager
async def working(bus: Bus, *agents: Agent, heartbeat: float = 15.0) -> AsyncGenerator[list[Worker], None]:
    """Run a worker for each agent within the block."""
    workers = [
        Worker(bus, agent, name=f"w{number}", heartbeat=heartbeat, bounds=_bounds)
        for number, agent in enumerate(agents)
    ]
    async with anyio.create_task_group() as tasks:
        for worker in workers:
            tasks.start_soon(worker.run)
        yield workers
        for worker in workers:
            worker.stop()


@asynccontextmanager
async def fresh_server() -> AsyncGenerator[tuple[Bus, Path], None]:
    """A bus, and the socket of its server."""
    async with short_folder() as folder, open_server(folder / "d") as server, Bus.open(data_dir=folder / "d") as bus:
        yield bus, server.socket


def pending(socket: Path, namespace: str = "lanebus", group: str = "agents") -> int:
    """Sessions with delivered work that is not acked, with or without a delay."""
    found = 0
    with Resp(socket) as server:
        names = server("KEYS", f"{namespace}:*:open:*:{group}")
        assert isinstance(names, list)
        for name in names:
            works = server("HVALS", str(name))
            assert isinstance(works, list)
            found += sum(" d " not in str(work) for work in works)
    return found


@pytest.fixture
async def place() -> AsyncGenerator[tuple[Bus, Path], None]:
    """A bus, and the socket of its server."""
    async with held(fresh_server()) as found:
        yield found


@pytest.fixture
def bus(place: tuple[Bus, Path]) -> Bus:
    """A bus on a server of its own."""
    return place[0]


@pytest.fixture
def socket(place: tuple[Bus, Path]) -> Path:
    """The socket of that server."""
    return place[1]


async def next_answer(session: Session, after: int) -> AssistantMessage:
    """Wait for the next message of the model after a position."""
    with anyio.fail_after(SECONDS):
        async for envelope in session.follow(lanes={Lane.LLM}, after=Cursor(after)):
            if isinstance(envelope.message, AssistantMessage):
                return envelope.message
    raise AssertionError


async def nothing_pending(socket: Path) -> None:
    await eventually(lambda: not pending(socket))


async def test_a_worker_answers_and_acknowledges(bus: Bus, session: Session, socket: Path) -> None:
    await ask(session)
    async with working(bus, AgentLoop(Echo())):
        await wait_for(session, "agent.ended")
        await ask(session, "again?")
        await wait_for(session, "agent.ended", 2)
        await nothing_pending(socket)
    assert (await session.head()).epoch >= 1


async def test_two_workers_run_one_loop_for_each_question(bus: Bus, socket: Path) -> None:
    sessions = [bus.session(f"s{number}") for number in range(12)]
    async with working(bus, AgentLoop(Echo()), AgentLoop(Echo())):
        for question in range(1, 4):
            for session in sessions:
                await ask(session)
            for session in sessions:
                await wait_for(session, "agent.ended", question)
        await nothing_pending(socket)
    for session in sessions:
        started = [event.loop_id for event in await events_of(session, AgentStarted)]
        assert started == [f"{session.id}.main.{number}" for number in (1, 2, 3)]


async def test_a_message_during_an_answer_has_the_same_lease(bus: Bus, session: Session, socket: Path) -> None:
    pause = Pause()
    epochs: list[int] = []
    loop = AgentLoop(ScriptedModel([pause, *answer("One.")], answer("Two.")))

    async def agent(run: Run) -> None:
        epochs.append(run.lease.epoch)
        await loop(run)

    async with working(bus, agent):
        await ask(session)
        await pause.reached.wait()
        await ask(session, "and?")
        pause.over.set()
        await wait_for(session, "agent.ended", 2)
        await nothing_pending(socket)
    assert epochs == [1, 1]


async def test_a_message_under_another_lease_is_answered_after_it(bus: Bus, session: Session, socket: Path) -> None:
    lease = await held_lease(session, "somebody", 600)
    async with working(bus, AgentLoop(Echo())):
        await ask(session)
        other = bus.session("s2")
        await ask(other)
        await wait_for(other, "agent.ended")
        assert pending(socket) >= 1
        assert await said(session) == ["user: hello?"]
        await session.release_lease(lease)
        await wait_for(session, "agent.ended")
        await nothing_pending(socket)


async def test_a_stopped_worker_finishes_its_work_and_fetches_no_more(bus: Bus, session: Session) -> None:
    other = bus.session("s2")
    pause = Pause()
    async with working(bus, AgentLoop(ScriptedModel([pause, *answer("Done.")]))) as (worker,):
        await ask(session)
        await pause.reached.wait()
        worker.stop()
        await ask(other)
        pause.over.set()
    assert (await said(session))[-1] == "agent.ended"
    assert await said(other) == ["user: hello?"]


async def test_a_stopped_worker_does_not_wait_for_the_lease_of_another_owner(bus: Bus, session: Session) -> None:
    other = bus.session("s2")
    assert await session.acquire_lease("somebody", 600) is not None
    with anyio.fail_after(SECONDS):
        async with working(bus, AgentLoop(Echo())):
            await ask(session)
            await ask(other)
            await wait_for(other, "agent.ended")
    assert (await bus.group_status("agents")).retries == 1, "its pointer is handed back"


async def test_a_cancelled_worker_returns_its_turn_to_the_group(bus: Bus, session: Session, socket: Path) -> None:
    pause = Pause()
    first = Worker(bus, AgentLoop(ScriptedModel([Piece("text", "As I was "), pause])), name="first")
    async with working(bus) as _, background() as tasks:
        tasks.start_soon(first.run)
        await ask(session)
        await pause.reached.wait()
    async with working(bus, AgentLoop(ScriptedModel(answer("Here it is.")))):
        await wait_for(session, "agent.ended")
        await nothing_pending(socket)
    entries = await said(session)
    assert [text for text in entries if text.startswith("assistant")] == [
        "assistant aborted: As I was ",
        "assistant stop: Here it is.",
    ]
    assert entries.count("agent.started") == entries.count("agent.ended") == 1


async def test_a_worker_that_lost_its_lease_stops_its_agent(bus: Bus, session: Session, socket: Path) -> None:
    stolen = Pause()
    echo = AgentLoop(Echo())
    runs: list[int] = []

    async def agent(run: Run) -> None:
        runs.append(run.lease.epoch)
        if stolen.reached.is_set():
            return await echo(run)
        thief: Lease | None = None
        with anyio.CancelScope(shield=True):  # on a slow machine the lease may be lost while it is being stolen
            await run.session.release_lease(run.lease)
            thief = await run.session.acquire_lease("thief", 600)
            stolen.reached.set()
        assert thief is not None
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await run.session.release_lease(thief)

    async with working(bus, agent, heartbeat=0.3):
        await ask(session)
        await wait_for(session, "agent.ended")
        await nothing_pending(socket)
    assert len(runs) >= 2
    assert stolen.reached.is_set()


async def test_an_agent_that_raises_or_appends_nothing_leaves_an_entry_and_others_continue(
    bus: Bus, socket: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session, silent, other = bus.session("poison"), bus.session("silent"), bus.session("s2")
    echo = AgentLoop(Echo())

    async def agent(run: Run) -> None:
        if run.session.id == "poison" and len(await said(run.session)) == 1:
            raise ZeroDivisionError("no way")
        if run.session.id != "silent":
            await echo(run)

    async with working(bus, agent):
        for each in (session, silent):
            await ask(each)
            await wait_for(each, "assistant error")
        await ask(other)
        await wait_for(other, "agent.ended")
        await nothing_pending(socket)
        reasons = [(await answers(each))[-1].error_message for each in (session, silent)]
        assert reasons == ["ZeroDivisionError: no way", "RuntimeError: the agent appended nothing"]
        await ask(session, "and now?")
        await wait_for(session, "agent.ended")
    assert "the agent failed" in caplog.text


async def test_a_forged_entry_does_not_block_a_session(bus: Bus, session: Session, socket: Path) -> None:
    await session.publish(UserMessage.text("hi"), wake=False)
    with Resp(socket) as server:
        names = server("KEYS", "lanebus:*:s:s1:llm")
        assert isinstance(names, list)
        server("XADD", str(names[0]), "1-5", "forged", "entry")
    async with working(bus, AgentLoop(Echo())):
        await ask(session)
        await wait_for(session, "agent.ended")
        await nothing_pending(socket)


@pytest.mark.parametrize("error", ["CursorTrimmed", "EntriesMissing"])
async def test_a_question_whose_context_is_gone_is_told_it(
    bus: Bus, session: Session, socket: Path, error: str
) -> None:
    await session.publish(UserMessage.text("first"), wake=False)
    await session.publish(UserMessage.text("second"), wake=False)
    if error == "CursorTrimmed":
        await session.trim(2)
    else:
        with Resp(socket) as server:
            assert server("DEL", Keys().lane("s1", Lane.LLM)) == 1
    await ask(session, "third?")
    async with working(bus, AgentLoop(Echo())):
        failed = await next_answer(session, 3)
        await nothing_pending(socket)
        assert failed.stop_reason == "error"
        assert error in (failed.error_message or "")


@pytest.mark.parametrize("is_fenced", [False, True])
async def test_a_failure_whose_ack_is_lost_is_recorded_once(
    bus: Bus, session: Session, socket: Path, monkeypatch: pytest.MonkeyPatch, is_fenced: bool
) -> None:
    publish, lost = Run.publish, 0

    async def losing(run: Run, *messages: Publishable, key: str | None = None) -> Receipt:
        nonlocal lost
        if is_fenced and not lost:
            lost += 1
            raise Fenced("s1", 1, 2)
        receipt = await publish(run, *messages, key=key)
        if not is_fenced and lost < 3:
            lost += 1
            raise OutcomeUnknown("s1", 1)
        return receipt

    monkeypatch.setattr(Run, "publish", losing)
    await session.publish(UserMessage.text("first"), wake=False)
    await session.trim(2)
    await ask(session, "second?")
    async with working(bus, AgentLoop(Echo())) as (worker,):
        with anyio.fail_after(SECONDS):
            await anext(session.follow(after=Cursor(2)))
        await nothing_pending(socket)
        assert worker.counts.rescheduled == 0
        letters = [letter async for letter in bus.dead_letters("agents").read()]
    assert [
        e.message.stop_reason async for e in session.read(after=Cursor(2)) if isinstance(e.message, AssistantMessage)
    ] == ["error"]
    assert [letter.reason.partition(":")[0] for letter in letters] == ["CursorTrimmed"]
    assert lost == (1 if is_fenced else 3)


def empty(archive: Path) -> None:
    """Leave nothing in any segment."""
    for file in archive.rglob("*.gz"):
        file.write_bytes(b"")


async def test_a_question_whose_context_is_damaged_in_the_archive_is_answered_with_the_reason(
    bus: Bus, session: Session, socket: Path, tmp_path: Path
) -> None:
    async with Bus.open(f"unix://{socket}", archive=DirectoryArchive(tmp_path)) as other:
        session = other.session("s1")
        await session.publish(UserMessage.text("first"), wake=False)
        await session.archive()
        await session.trim(2)
        empty(tmp_path)
        await ask(session, "second?")
        async with working(other, AgentLoop(Echo())):
            failed = await next_answer(bus.session("s1"), 2)
            await nothing_pending(socket)
            assert "ArchiveDamaged" in (failed.error_message or "")


async def test_a_trim_keeps_a_context_until_archived(bus: Bus, session: Session, socket: Path, tmp_path: Path) -> None:
    async with Bus.open(f"unix://{socket}", archive=DirectoryArchive(tmp_path)) as other:
        session = other.session("s1")
        await session.publish(ExtensionMessage.of("tick"))
        await ask(session)
        async with working(bus, AgentLoop(Echo())):
            await wait_for(session, "agent.ended")
            await nothing_pending(socket)
        for before in (3, 5):
            with pytest.raises(TrimRefused, match="archive the entries") as caught:
                await session.trim(before)
            assert caught.value.holders["a:agent"] == 1
            assert (await session.trim(before, dry_run=True)).holders["a:agent"] == 1
        assert (await session.trim(2, dry_run=True)).holders == {}  # of the extension lane alone
        await session.archive(before=5)
        assert (await session.trim(5)).entries == 4
        with pytest.raises(TrimRefused):
            await session.trim((await session.head()).position + 1)
        async with working(other, AgentLoop(Echo())):
            position = await ask(session, "again?")
            assert (await next_answer(session, position)).stop_reason == "stop"
            await nothing_pending(socket)
        assert [letter async for letter in other.dead_letters("agents").read()] == []


async def test_a_forced_trim_records_the_agent_and_holds_nothing_then(bus: Bus, session: Session, socket: Path) -> None:
    await ask(session)
    async with working(bus, AgentLoop(Echo())):
        await wait_for(session, "agent.ended")
        await nothing_pending(socket)
    end = (await session.head()).position
    await session.trim(3, force=True)
    [note] = [envelope.message async for envelope in session.read(after=Cursor(end))]
    assert isinstance(note, ExtensionMessage)
    assert isinstance(note.data, dict)
    assert isinstance(note.data["passed"], dict)
    assert note.data["passed"]["a:agent"] == 0
    assert "a:agent" not in (await session.trim(end, dry_run=True)).holders  # the context is incomplete already


@pytest.mark.full
@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize("is_warm", [False, True], ids=["cold", "warm"])
async def test_after_a_forced_trim_a_worker_needs_a_compaction(
    bus: Bus, session: Session, socket: Path, is_warm: bool, is_compacted: bool
) -> None:
    async def trim_and_ask() -> None:
        if is_compacted:
            await session.publish(Compaction(summary="so far"), wake=False)
        position = (await session.head()).position
        await session.trim(2, force=True)  # the first question, which the context needs
        await ask(session, "again?")
        answered = await next_answer(session, position)
        assert answered.text_content() == ("Yes." if is_compacted else "")
        assert ("CursorTrimmed" in (answered.error_message or "")) != is_compacted

    async with working(bus, AgentLoop(Echo())):
        await ask(session)
        await wait_for(session, "agent.ended")
        await nothing_pending(socket)
        if is_warm:
            await trim_and_ask()
    if not is_warm:
        async with working(bus, AgentLoop(Echo())):
            await trim_and_ask()


async def test_a_worker_drops_a_session_that_is_erased(bus: Bus, session: Session, socket: Path) -> None:
    pause = Pause()
    await ask(session)
    model = ScriptedModel([pause, *answer("Yes.")], answer("No."))
    async with working(bus, AgentLoop(model), heartbeat=0.3):
        await pause.reached.wait()
        await session.erase()
        await nothing_pending(socket)
        await ask(bus.session("s2"))  # unanswered if the worker had ended or were stuck in s1
        await wait_for(bus.session("s2"), "agent.ended")
    assert (await session.head()).is_erased
