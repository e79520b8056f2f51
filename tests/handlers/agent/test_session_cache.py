"""Cached sessions: both folds equal a read from the start, also after stores, trims and forks."""

from pathlib import Path

import anyio
import pytest

from lanebus import Bus, BusError, ExtensionMessage, Session, Unavailable, Usage, UserMessage
from lanebus.agent import WorkerBounds
from lanebus.archive import DirectoryArchive
from lanebus.bus.errors import CursorTrimmed
from lanebus.bus.messages import Abort, AgentEnded, AgentStarted, Compaction, Lane, LeafMove, Pause, RequestDefined
from lanebus.bus.wire import Cursor, Keys
from lanebus.context import build_context
from lanebus.handlers.agent.turn.loop_state import CachedSession, SessionCache, SessionSnapshot
from lanebus.handlers.projections import STATUS
from lanebus.projections import rebuild
from tests.support.agent.agents import SECONDS, take_run
from tests.support.servers.real import AnyServer, RealServer, eventually


async def speak(session: Session, number: int) -> None:
    """The begin and end of a loop, with many entries that no fold uses."""
    loop = f"{session.id}.main.{number}"
    await session.publish(
        AgentStarted(loop_id=loop, agent="a").as_extension(),
        *[ExtensionMessage.of("progress", {"percent": n}) for n in range(5)],
        UserMessage.text(f"question {number}"),
        AgentEnded(loop_id=loop, stop_reason="stop", turns=1, usage=Usage()).as_extension(),
        ExtensionMessage.of("tick"),
    )


async def assert_same(view: SessionSnapshot, session: Session) -> None:
    """Assert that the snapshot equals a fold over both whole lanes."""
    assert view.context == await build_context(session)
    assert view.status == (await rebuild(session, STATUS)).state


async def test_a_refresh_equals_a_read_from_the_start(bus: Bus) -> None:
    session = bus.session("s")
    warm = CachedSession(bus.session("s", grouped=True))
    for number in (1, 2, 3):
        await speak(session, number)
        await session.publish(Abort().as_extension())
        await assert_same(await warm.refresh(), session)
    assert warm.cursor == (await session.head()).cursor


async def test_a_cold_start_begins_at_the_stored_state_unless_its_log_was_rolled_back(bus: Bus) -> None:
    session, lost = bus.session("s"), bus.session("lost")
    first = CachedSession(session, store_every=5)
    await speak(session, 1)
    await first.refresh()
    await first.store()
    stored = await session.load_projection(STATUS.name, STATUS.version)
    assert stored is not None
    assert stored.position == 9
    await speak(session, 2)
    await assert_same(await CachedSession(session).refresh(), session)
    await speak(lost, 1)
    halted = STATUS.dump(STATUS.initial.model_copy(update={"halted": "paused"}))
    cursor = Cursor(99, 0, "another")
    assert await lost.save_projection(STATUS.name, STATUS.version, halted, cursor=cursor, expected=0)
    await assert_same(await CachedSession(lost).refresh(), lost)


async def test_a_trim_of_the_extension_lane_alone_keeps_the_context_complete(bus: Bus) -> None:
    session = bus.session("s")
    await session.publish(ExtensionMessage.of("tick"), ExtensionMessage.of("tick"))
    await speak(session, 1)
    await session.trim(3)
    view = await CachedSession(session).refresh()
    assert view.context == await build_context(session)
    assert view.status.loop is not None


async def test_a_forks_status_folds_only_its_own_entries(bus: Bus) -> None:
    parent = bus.session("parent")
    await speak(parent, 1)
    await parent.publish(Pause().as_extension())
    fork = await parent.fork(id="fork")
    view = await CachedSession(fork).refresh()
    assert (view.status.loop, view.status.commands) == (None, ())
    await fork.publish(Abort().as_extension())
    await assert_same(await CachedSession(fork).refresh(), fork)


def hold(sessions: SessionCache, name: str) -> CachedSession:
    """Hold a session for a moment."""
    with sessions.held(name) as warm:
        return warm


async def test_an_idle_session_over_the_bound_is_read_again(bus: Bus) -> None:
    sessions = SessionCache(bus.session, WorkerBounds(warm_sessions=2))
    first = hold(sessions, "a")
    assert hold(sessions, "a") is first
    hold(sessions, "b")
    hold(sessions, "c")
    assert len(sessions) == 2
    assert hold(sessions, "a") is not first


async def test_idle_sessions_are_evicted_by_their_bytes_but_for_the_newest(bus: Bus) -> None:
    sessions = SessionCache(bus.session, WorkerBounds(warm_bytes=2))
    for name in ("a", "b"):
        await bus.session(name).publish(*[UserMessage.text("hello?")] * 3)
        with sessions.held(name) as first, sessions.held(name) as warm:
            await first.refresh()
            await warm.refresh()
        assert len(sessions) == 1
        assert hold(sessions, name) is first  # the last one to be put back


async def test_a_large_session_counts_by_its_bytes(bus: Bus) -> None:
    sessions = SessionCache(bus.session, WorkerBounds(warm_bytes=50_000))
    for name, characters, kept in (("a", 100, 1), ("b", 100, 2), ("large", 60_000, 1), ("c", 100, 1), ("d", 100, 2)):
        await bus.session(name).publish(UserMessage.text("x" * characters))
        with sessions.held(name) as warm:
            await warm.refresh()
        assert len(sessions) == kept


async def test_an_erased_session_leaves_the_memory_at_the_next_sweep(bus: Bus) -> None:
    sessions = SessionCache(bus.session, WorkerBounds(warm_sweep_seconds=1e-9))
    for name in ("gone", "kept"):
        await bus.session(name).publish(UserMessage.text("hello?"))
        with sessions.held(name) as warm:
            await warm.refresh()
    await bus.session("gone").erase()
    await sessions.sweep(bus.log)
    assert len(sessions) == 1
    assert (sessions.first_page("gone"), sessions.first_page("kept") is not None) == (None, True)


async def test_a_held_session_is_not_evicted(bus: Bus) -> None:
    sessions = SessionCache(bus.session, WorkerBounds(warm_sessions=1))
    await bus.session("a").publish(UserMessage.text("hello?"))
    with sessions.held("a") as held:
        for name in "bcd":
            hold(sessions, name)
        assert len((await held.refresh()).context.entries) == 1
    assert hold(sessions, "a") is held


async def test_a_session_is_kept_after_unavailable_and_discarded_after_other_errors(bus: Bus) -> None:
    sessions = SessionCache(bus.session)
    await speak(bus.session("a"), 1)
    first = hold(sessions, "a")
    with pytest.raises(Unavailable), sessions.held("a"):
        raise Unavailable("no server")
    assert hold(sessions, "a") is first
    with pytest.raises(ValueError, match="odd"), sessions.held("a"):
        raise ValueError("odd")
    assert (second := hold(sessions, "a")) is not first
    await bus.session("a").erase()
    await sessions.catch_up("a")
    assert hold(sessions, "a") is not second, "it cannot catch up"


async def test_an_idle_session_that_caught_up_has_nothing_left_to_read(bus: Bus) -> None:
    sessions, session = SessionCache(bus.session), bus.session("a")
    await speak(session, 1)
    await sessions.catch_up("a")
    assert len(sessions) == 0, "one that is not kept is not read either"
    with sessions.held("a") as warm:
        await warm.refresh()
        await speak(session, 2)
        await sessions.catch_up("a")
        assert warm.cursor.position == 9, "it is its holder's"
    await sessions.catch_up("a")
    assert warm.cursor.position == 18
    await assert_same(warm.snapshot, session)
    assert hold(sessions, "a") is warm


# --- runs ---------------------------------------------------------------------------------------------------------


@pytest.mark.cluster("wake-ups come over a node's own connection")
async def test_a_run_wakes_for_a_command_and_not_for_its_own_appends(bus: Bus, other: Bus, server: AnyServer) -> None:
    session = bus.session("s")
    await session.publish(UserMessage.text("hello?"))
    run = await take_run(session)
    await run.refresh()
    heard = anyio.Event()

    async def wait() -> None:
        await run.wait_for_wake_up()
        heard.set()

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            await run.publish(ExtensionMessage.of("progress"))
            tasks.start_soon(wait)
            await eventually(lambda: "cmd=xread " in str(server.do("CLIENT", "LIST")))
            await session.head()  # its own appends would have woken it by now
            assert not heard.is_set()
            await other.session("s").publish(Abort().as_extension())
            await heard.wait()
    assert [command.message.kind for command in (await run.refresh()).status.commands] == ["control.abort"]


async def test_the_loop_state_of_a_snapshot_is_derived_once_until_the_next_entry(bus: Bus) -> None:
    session = bus.session("s")
    await session.publish(UserMessage.text("hello?"))
    cached = CachedSession(session)
    state = (await cached.refresh()).loop_state
    assert (await cached.refresh()).loop_state is state
    await session.publish(UserMessage.text("and?"))
    assert (await cached.refresh()).loop_state.prompts == (1, 2)


async def test_a_trimmed_request_definition_is_recorded_again(bus: Bus) -> None:
    session = bus.session("s")
    await session.publish(RequestDefined(hash="h", provider="p", model="m", max_tokens=1).as_extension())
    await speak(session, 1)
    first = CachedSession(session, store_every=1)
    await first.refresh()
    await first.store()
    assert (await CachedSession(session).refresh()).status.request == "h"
    await session.trim(2)
    assert (await CachedSession(session).refresh()).status.request is None


async def folded(cache: CachedSession) -> SessionSnapshot | str:
    """Return what a worker decides from: the session's state, or the name of the error that it records."""
    try:
        return await cache.refresh()
    except BusError as error:
        return type(error).__name__


@pytest.mark.parametrize("has_stored", [False, True], ids=["no stored status", "stored status"])
@pytest.mark.parametrize(
    ("compacts", "keeps", "outcome"),
    [
        ("never", None, "CursorTrimmed"),
        ("before the trim", None, ["seen so far", "question 2", "question 3"]),
        ("before the trim", 10, ["seen so far", "kept", "question 2", "question 3"]),
        ("before the trim", 7, "CursorTrimmed"),
        ("after the trim", None, ["seen so far", "question 3"]),
    ],
)
async def test_a_warm_and_a_cold_worker_make_the_same_of_a_trimmed_session(
    bus: Bus, compacts: str, keeps: int | None, outcome: str | list[str], has_stored: bool
) -> None:
    session = bus.session("s")
    summary = Compaction(summary="seen so far", first_kept=keeps)
    warm = CachedSession(session, store_every=1)
    await speak(session, 1)
    if compacts == "before the trim":
        await session.publish(UserMessage.text("kept"), summary)
    await speak(session, 2)
    await warm.refresh()
    if has_stored:
        await warm.store()
    await session.trim(9, force=True)
    if compacts == "after the trim":
        await session.publish(summary)
    await speak(session, 3)
    cold = await folded(CachedSession(session))
    assert await folded(warm) == cold
    assert warm.is_stale == isinstance(outcome, str)
    if isinstance(cold, str):
        assert cold == outcome
        return
    assert outcome[0] in texts(cold)[0]
    assert texts(cold)[1:] == outcome[1:]
    await speak(session, 4)
    assert await folded(warm) == await folded(CachedSession(session))


def texts(snapshot: SessionSnapshot) -> list[str]:
    return [message.text_content() for message in snapshot.context.messages]


async def test_a_move_to_a_trimmed_entry_is_no_context(bus: Bus) -> None:
    session, warm = bus.session("s"), CachedSession(bus.session("s"))
    await session.publish(UserMessage.text("first"), UserMessage.text("second"), Compaction(summary="both"))
    await session.publish(LeafMove(to=1), UserMessage.text("instead"))
    await warm.refresh()
    await session.trim(3, force=True)
    for cache in (warm, CachedSession(session)):
        assert await folded(cache) == "CursorTrimmed"
    with pytest.raises(CursorTrimmed):
        await build_context(session)


@pytest.mark.parametrize("is_forced", [False, True], ids=["archived", "forced past the archive"])
async def test_a_warm_and_a_cold_worker_read_the_same_archive(tmp_path: Path, is_forced: bool) -> None:
    async with Bus.open(data_dir=tmp_path / "data", archive=DirectoryArchive(tmp_path / "archive")) as bus:
        session, warm = bus.session("s"), CachedSession(bus.session("s"))
        for number in (1, 2):
            await speak(session, number)
        await warm.refresh()
        await session.archive(before=5 if is_forced else None)
        await session.trim(10, force=is_forced)
        await speak(session, 3)
        cold = await folded(CachedSession(session))
        assert await folded(warm) == cold
        assert (cold == "CursorTrimmed") == is_forced


async def test_a_warm_worker_is_told_that_the_log_lost_its_llm_lane(bus: Bus, valkey: RealServer) -> None:
    session, warm = bus.session("s"), CachedSession(bus.session("s"))
    await speak(session, 1)
    await warm.refresh()
    valkey.do("DEL", Keys().lane("s", Lane.LLM))
    await speak(session, 2)
    for cache in (warm, CachedSession(session)):
        assert await folded(cache) == "EntriesMissing"
