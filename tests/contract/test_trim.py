"""Trimming, on every server: what it removes, what it keeps, and what readers get."""

import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import cast

import anyio
import pytest
from anyio.lowlevel import checkpoint
from pydantic import JsonValue

from lanebus import START, AssistantMessage, Bus, Cursor, Delta, ExtensionMessage, Lane, Session, TrimRefused
from lanebus.bus import Log, Trimmed
from lanebus.bus.errors import CursorTrimmed, NoSuchPosition, Refused, SessionErased, Unavailable
from lanebus.bus.servers import Argument, Reply
from lanebus.bus.wire import Keys
from lanebus.context import WarmContext, build_context
from lanebus.projections import USAGE, project, rebuild
from tests.support.log.following import Follower
from tests.support.log.groups import begin, take_all, take_one
from tests.support.log.said import read, said, told, word
from tests.support.servers.real import AnyServer, RealServer, background, eventually
from tests.support.servers.resp import ResponseError

Run = Callable[[], Awaitable[Reply]]


async def fill(session: Session, count: int, *, wake: bool | None = False) -> None:
    """Publish `count` messages, alternating between the lanes: each one's word is its position."""
    start = (await session.head()).position
    numbers = range(start + 1, start + count + 1)
    for at in range(0, count, 500):
        page = numbers[at : at + 500]
        await session.publish(*((said if number % 2 else told)(str(number)) for number in page), wake=wake)


async def rest(session: Session, after: Cursor) -> list[str]:
    """Return the words after a cursor."""
    return [word(envelope) async for envelope in session.read(after=after)]


def around_scripts(patch: pytest.MonkeyPatch, around: Callable[[Run], Awaitable[Reply]]) -> None:
    """Let every log run its scripts by way of `around`."""
    run = cast("Callable[..., Awaitable[Reply]]", Log.run)

    def run_around(*arguments: object) -> Awaitable[Reply]:
        return around(lambda: run(*arguments))

    patch.setattr(Log, "run", run_around)


async def assert_sound(bus: Bus, server: AnyServer, *names: str) -> None:
    """Head and streams agree; the bytes counted are those that are there."""
    total = 0
    keys = Keys()
    for name in names:
        head = await bus.session(name).head()
        there = [envelope async for envelope in bus.session(name).read(after=Cursor(head.trimmed))]
        assert [envelope.position for envelope in there] == list(range(head.first_kept, head.position + 1))
        size = 0
        for lane in Lane:
            entries = cast("list[tuple[str, list[str]]]", server.do("XRANGE", keys.lane(name, lane), "-", "+"))
            for entry_id, fields in entries:
                assert int(entry_id.split("-")[0]) > head.trimmed
                size += len(fields[3].encode())
        assert head.size_bytes == size
        total += size
    counted = [server.do("HGET", keys.sessions(bucket), ":bytes") for bucket in {keys.bucket(name) for name in names}]
    assert sum(int(str(count)) for count in counted) == total


@pytest.mark.cluster("smoke test of trimming")
@pytest.mark.sentinel("smoke test of trimming")
async def test_a_trim_takes_both_lanes_and_the_bytes_go_down_by_what_was_removed(bus: Bus, server: AnyServer) -> None:
    session = bus.session("s")
    await fill(session, 10)
    await fill(bus.session("t"), 3)
    before = await session.head()
    done = await session.trim(7)
    assert (done.entries, done.first_kept, done.holders) == (6, 7, {})
    head = await session.head()
    assert (head.trimmed, head.first_kept, head.position) == (6, 7, 10)
    assert (head.trimmed_llm, head.trimmed_extension) == (5, 6)
    assert before.size_bytes - head.size_bytes == done.size_bytes > 0
    assert await rest(session, Cursor(6)) == ["7", "8", "9", "10"]
    await assert_sound(bus, server, "s", "t")
    # Again, and further down than what is gone: nothing happens.
    for position in (7, 3, 0):
        assert await session.trim(position) == Trimmed(0, 0, 7, {})
    await assert_sound(bus, server, "s", "t")


async def test_all_may_go_and_positions_survive_a_restart(bus: Bus, session: Session, process: RealServer) -> None:
    await fill(session, 5)
    assert (await session.trim(6)).first_kept == 6
    assert (await session.head()).size_bytes == 0
    assert (await session.publish(said("a"), told("b"))).positions == (6, 7)
    assert (await session.trim(8)).entries == 2
    process.kill()
    process.start()
    process.do("BGREWRITEAOF")
    await eventually(lambda: "aof_rewrite_in_progress:0" in str(process.do("INFO", "persistence")))
    process.kill()
    process.start()
    assert (await session.publish(said("c"), told("d"))).positions == (8, 9)
    assert await rest(session, Cursor(7)) == ["c", "d"]
    await assert_sound(bus, process, "s")


@pytest.mark.parametrize("before", [7, 99_999, 10**30])
async def test_a_trim_beyond_the_end_is_refused_and_removes_nothing(bus: Bus, session: Session, before: int) -> None:
    await fill(session, 5)
    for force, dry_run in ((False, False), (True, False), (False, True)):
        with pytest.raises(NoSuchPosition) as caught:
            await session.trim(before, force=force, dry_run=dry_run)
        assert (caught.value.session, caught.value.position, caught.value.last) == ("s", before, 5)
    assert (await session.head()).trimmed == 0
    with pytest.raises(NoSuchPosition, match="publish to it first"):
        await bus.session("empty").trim(2)


async def test_a_long_trim_is_many_steps_each_complete(bus: Bus, session: Session, server: AnyServer) -> None:
    await fill(session, 3_500)
    seen: list[int] = []

    async def look() -> None:
        while True:
            head = await session.head()
            seen.append(head.trimmed)
            await checkpoint()

    async with background() as tasks:
        tasks.start_soon(look)
        assert (await session.trim(3_400)).entries == 3_399
    assert seen == sorted(seen)
    await assert_sound(bus, server, "s")


async def test_a_step_is_bounded_by_bytes(bus: Bus, shared_valkey: RealServer, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []

    async def measured(run: Run) -> Reply:
        reply = await run()
        steps.append(json.loads(cast("bytes", reply))["bytes"])
        return reply

    for _ in range(10):
        await bus.session("s").publish(*[told("x" * 900_000)] * 4)
    around_scripts(monkeypatch, measured)
    assert (await bus.session("s").trim(41)).first_kept == 41
    assert len(steps) > 1
    assert max(steps) < 8 * 1_048_576 + 25 * 900_100


# --- holders ------------------------------------------------------------------------------------------------------


async def test_entries_that_are_still_needed_are_not_trimmed(bus: Bus, session: Session, server: AnyServer) -> None:
    await fill(session, 4)
    await project(session, USAGE)
    await fill(session, 4)
    cursors = [e.cursor for e in await read(session)]
    await session.save_checkpoint("slow", cursors[1])
    await session.save_checkpoint("quick", cursors[5])
    server.do("HSET", Keys().checkpoints("s"), "f:child", "0")
    usage = f"p:{USAGE.name}@{USAGE.version}"
    with pytest.raises(TrimRefused) as caught:
        await session.trim(6)
    assert (caught.value.session, caught.value.before) == ("s", 6)
    assert caught.value.holders == {"f:child": 0, "r:slow": 2, usage: 4}
    look = await session.trim(6, dry_run=True)
    assert (look.entries, look.first_kept, look.holders) == (5, 6, caught.value.holders)
    assert (await session.head()).trimmed == 0
    server.do("HDEL", Keys().checkpoints("s"), "f:child")
    with pytest.raises(TrimRefused):
        await session.trim(4)
    assert (await session.trim(3)).entries == 2  # what is done with may go
    await session.drop_checkpoint("slow")
    await session.drop_projection(USAGE.name, USAGE.version)
    assert (await session.trim(7)).first_kept == 7
    with pytest.raises(TrimRefused):
        await session.trim(8)
    await assert_sound(bus, server, "s")


async def test_readers_of_the_archive_do_not_hold_up_archived_entries(session: Session, server: AnyServer) -> None:
    await fill(session, 8, wake=True)
    await session.save_checkpoint("r", START)
    with pytest.raises(TrimRefused):
        await session.trim(5)
    server.do("HSET", Keys().head("s"), "archived", "4")
    assert (await session.trim(5)).first_kept == 5
    with pytest.raises(TrimRefused):
        await session.trim(6)
    server.do("HSET", Keys().groups(Keys().bucket("s")), "agent:g", "0 0")
    server.do("HSET", Keys().head("s"), "archived", "8")
    with pytest.raises(TrimRefused) as caught:
        await session.trim(6)
    assert caught.value.holders == {"g:g": 0}


async def test_force_passes_all_and_says_so_in_the_same_step(bus: Bus, session: Session, server: AnyServer) -> None:
    await fill(session, 1_001)
    await fill(session, 1_499, wake=True)
    await session.save_checkpoint("r", Cursor(3))
    server.do("HSET", Keys().groups(Keys().bucket("s")), "agent:рабочие", "0 0")
    server.do("HSET", Keys().head("s"), "g:рабочие", "1001")
    await session.publish(said("2501"))
    done = await session.trim(2_400, force=True)
    passed = {"r:r": 3, "g:" + "".join(f"%{byte:02X}" for byte in "рабочие".encode()): 1_001}
    assert done == Trimmed(2_399, done.size_bytes, 2_400, passed)
    *_, last, note = [envelope async for envelope in session.read(after=Cursor(2_399))]  # one note, for all steps
    assert word(last) == "2501"
    data: JsonValue = {"before": 2_400, "forced": True, "passed": {**passed}}
    assert note.message == ExtensionMessage.of("session.trimmed", data)
    assert (note.position, note.producer) == (2_502, "log")
    woken = server.do("XREVRANGE", Keys().index(Keys().bucket("s")), "+", "-", "COUNT", "1")
    assert "'s', 's', 'z', '2502'" in str(woken)
    await assert_sound(bus, server, "s")
    assert (await session.publish(said("x"))).position == 2_503


async def test_force_passes_no_unknown_fork_but_a_foreign_entry(bus: Bus, session: Session, server: AnyServer) -> None:
    await fill(session, 5)
    await session.save_checkpoint("r", Cursor(3))
    await session.fork(4, id="known")
    known = (await session.trim(5, force=True, dry_run=True)).holders
    await session.fork(4, id="later")
    with pytest.raises(TrimRefused) as caught:
        await session.trim(5, force=True, known=known)
    assert caught.value.holders == {**known, "f:later": 0}
    assert (await session.head()).trimmed == 0
    server.do("XADD", Keys().lane("s", Lane.EXTENSION), "99-0", "x", "y")  # where the note of the trim belongs
    assert (await session.trim(5, force=True, known={*known, "f:later"})).first_kept == 5
    assert (await session.head()).position == 6
    await assert_sound(bus, server, "s")


async def test_the_trim_note_reaches_followers_and_begins_an_incarnation_if_needed(bus: Bus, server: AnyServer) -> None:
    async with background() as tasks:
        session = bus.session("s")
        await fill(session, 4)
        await session.save_checkpoint("r", START)
        seen = Follower(session).start(tasks).seen
        await eventually(lambda: len(seen) == 4)
        server.do("HSET", Keys().head("s"), "run", "another")
        await session.trim(3, force=True)
        await eventually(lambda: len(seen) == 5)
        head = await session.head()
        assert [i.start for i in head.incarnations] == [0, 4]
        assert seen[-1].cursor == head.cursor
        await session.publish(said("x"))
        assert len((await session.head()).incarnations) == 2  # a publish takes it for its own server's
        await eventually(lambda: len(seen) == 6)


# --- consumer groups ----------------------------------------------------------------------------------------------


@pytest.mark.cluster("work and log are asked for on different connections")
async def test_work_that_no_worker_has_handled_is_kept(bus: Bus, session: Session) -> None:
    async with bus.consumer("agents", "w") as consumer:
        await session.publish(said("1"))
        await consumer.ack(await take_one(consumer))
        await fill(session, 2)
        await session.publish(said("4"), told("5"))  # wakes
        await fill(session, 3)
        with pytest.raises(TrimRefused) as caught:  # not given
            await session.trim(9)
        assert caught.value.holders == {"g:agents": 1}
        work = await take_one(consumer)
        assert work.position == 5
        with pytest.raises(TrimRefused) as caught:  # held by a consumer
            await session.trim(9)
        assert caught.value.holders == {"g:agents": 1}
        await session.publish(said("9"))  # wakes
        await consumer.ack(work)
        with pytest.raises(TrimRefused) as caught:
            await session.trim(9)
        assert caught.value.holders == {"g:agents": 5}
        assert (await session.trim(6)).first_kept == 6
        await consumer.ack(await take_one(consumer))
        assert (await session.trim(10)).first_kept == 10


async def test_what_a_group_has_never_looked_at_is_kept_without_wake_ups_too(bus: Bus, server: AnyServer) -> None:
    async with bus.consumer("agents", "w") as consumer:
        await bus.session("other").publish(said("1"))
        await take_one(consumer)  # the group is there
        session = bus.session("s")
        await session.publish(said("1"))
        await fill(session, 2)
        server.do("DEL", Keys().wake_ups(Keys().bucket("s")))
        with pytest.raises(TrimRefused) as caught:
            await session.trim(4)
        assert caught.value.holders == {"g:agents": 0}


async def test_a_later_group_entries_that_wake_no_worker_and_other_sessions_hold_up_nothing(
    bus: Bus, session: Session, server: AnyServer
) -> None:
    keys = Keys()
    others = [name for n in range(20_000) if keys.bucket(name := f"o{n}") == keys.bucket("s")][:100]
    async with bus.consumer("agents", "w", start="now") as consumer:
        await session.publish(said("1"))
        await begin(server, consumer, "agents")
        await fill(session, 2)
        assert (await session.trim(3)).first_kept == 3
        for other in others:
            await bus.session(other).publish(said("x"))
        await take_all(consumer, 50)
        await fill(session, 4)
        assert (await session.trim(8)).first_kept == 8
        await session.publish(said("8"))
        with pytest.raises(TrimRefused) as caught:
            await session.trim(9)
        assert caught.value.holders == {"g:agents": 0}


async def test_a_reader_that_appears_stops_a_trim(shared_valkey: RealServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def late(run: Run) -> Reply:
        reply = await run()
        shared_valkey.do("HSET", Keys().checkpoints("s"), "r:late", "1200-0")
        return reply

    async with shared_valkey.bus() as bus:
        await fill(bus.session("s"), 3_000)
        around_scripts(monkeypatch, late)
        done = await bus.session("s").trim(3_000)
        monkeypatch.undo()
        assert (done.entries, done.first_kept, done.holders) == (1_000, 1_001, {"r:late": 1_200})
        await assert_sound(bus, shared_valkey, "s")


# --- what readers get -----------------------------------------------------------------------------------------------


async def test_readers_before_the_trimmed_position_raise_and_those_at_it_continue(session: Session) -> None:
    await fill(session, 10)
    cursors = [START, *(e.cursor for e in await read(session))]
    await session.trim(7)
    for ask in (session.read, session.follow):
        for after in (START, cursors[5], Cursor(5)):
            with pytest.raises(CursorTrimmed) as caught:
                await anext(ask(after=after))
            assert (caught.value.cursor, caught.value.first_kept) == (f"{after.position}-0", 7)
        for after in (cursors[6], Cursor(6), cursors[8]):
            envelopes = ask(after=after)
            assert (await anext(envelopes)).position == after.position + 1
            await envelopes.aclose()


async def test_a_reader_of_one_lane_raises_only_for_that_lane(session: Session) -> None:
    await session.publish(said("1"), told("2"), told("3"), told("4"), said("5"), told("6"))
    await session.trim(5)
    head = await session.head()
    assert (head.trimmed, head.trimmed_llm, head.trimmed_extension) == (4, 1, 4)
    for ask in (session.read, session.follow):
        llm = ask(lanes={Lane.LLM}, after=Cursor(1))  # nothing of its own is missing
        assert word(await anext(llm)) == "5"
        await llm.aclose()
        for lane, after in ((Lane.LLM, 0), (Lane.EXTENSION, 2)):
            with pytest.raises(CursorTrimmed):
                await anext(ask(lanes={lane}, after=Cursor(after)))


@pytest.mark.parametrize("lanes", [(Lane.LLM,), tuple(Lane)], ids=["one lane", "both lanes"])
@pytest.mark.parametrize("is_erased", [False, True], ids=["trimmed", "erased"])
async def test_entries_trimmed_between_the_head_and_the_page_raise(
    bus: Bus,
    other: Bus,
    shared_valkey: RealServer,
    lanes: tuple[Lane, ...],
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_erased: bool,
) -> None:
    await fill(bus.session("s"), 40)
    pool, session = bus.session("s").resources.log.pool, other.session("s")
    call_many = pool.call_many

    async def cut_in(commands: Sequence[Sequence[Argument]], **more: float) -> list[Reply | Refused]:
        head = await call_many(commands[:1], **more)
        await (session.erase() if is_erased else session.trim(41))
        return head + await call_many(commands[1:], **more)

    monkeypatch.setattr(pool, "call_many", cut_in)
    with pytest.raises(SessionErased if is_erased else CursorTrimmed):
        await anext(bus.session("s").read(lanes=lanes))
    monkeypatch.undo()


async def test_trimming_a_lane_without_followers_disturbs_no_follower(other: Bus, session: Session) -> None:
    async with background() as tasks:
        await session.publish(said("1"), told("2"), told("3"), told("4"))
        llm = Follower(session, lanes=frozenset({Lane.LLM})).start(tasks).seen
        await eventually(lambda: len(llm) == 1)
        await other.session("s").trim(4)
        both = Follower(session, after=Cursor(3)).start(tasks).seen  # the hub itself has only seen position 1
        await eventually(lambda: len(both) == 1)
        await session.publish(said("5"), told("6"))
        await eventually(lambda: len(both) == 3 and len(llm) == 2)
        assert [e.position for e in both] == [4, 5, 6]
        assert [e.position for e in llm] == [1, 5]
        with pytest.raises(CursorTrimmed):
            await anext(session.follow(after=Cursor(2)))


async def test_a_hub_that_missed_trimmed_entries_ends_its_followers(bus: Bus, other: Bus, one: RealServer) -> None:
    caught: list[CursorTrimmed] = []
    joined = anyio.Event()

    async def follow(session: Session) -> None:
        try:
            async for _ in session.follow(after=Cursor(3)):
                joined.set()
        except CursorTrimmed as error:
            caught.append(error)

    async with background() as tasks:
        session = other.session("s")
        await fill(session, 4)
        tasks.start_soon(follow, bus.session("s"))
        await joined.wait()
        # Published and trimmed in one step, before any reader can have seen it.
        with one.talk() as say:
            say("MULTI")
            say("XADD", Keys().lane("s", Lane.LLM), "5-0", "h", "1 1 x", "m", '{"role":"user","content":"c"}')
            say("XTRIM", Keys().lane("s", Lane.LLM), "MAXLEN", "0")
            say("HSET", Keys().head("s"), "position", "5", "trimmed", "5", "trimmed_llm", "5")
            say("EXEC")
        await session.publish(told("6"))
        await eventually(lambda: len(caught) == 1)
        assert (caught[0].cursor, caught[0].first_kept) == ("4-0", 6)


async def test_folds_report_missing_entries_and_continue(session: Session) -> None:
    warm = WarmContext(session)
    await fill(session, 6)
    await project(session, USAGE)
    await warm.refresh()
    await session.trim(7)
    await fill(session, 2)
    assert (await project(session, USAGE)).position == 8  # what it needs is there
    assert (await warm.refresh()).position == 7
    for fold in (rebuild(session, USAGE), build_context(session)):
        with pytest.raises(CursorTrimmed):
            await fold


async def test_live_deltas_of_ended_messages_go_and_of_open_ones_stay(session: Session, server: AnyServer) -> None:
    await session.publish(told("1"))
    await session.preview(Delta(kind="text", message_id="ended", delta="x"))
    await session.preview(Delta(kind="text", message_id="open", delta="He"))
    await session.publish(AssistantMessage(id="ended"))
    await session.preview(Delta(kind="text", message_id="open", delta="llo"))
    await session.publish(told("3"))
    assert await session.trim(4, dry_run=True) == Trimmed(3, (await session.head()).size_bytes, 4, {})
    assert server.do("XLEN", Keys().live("s")) == 3
    await session.trim(4)
    assert server.do("XLEN", Keys().live("s")) == 2
    (still,) = await session.open_messages()
    assert (still.message_id, [block.delta for block in still.blocks]) == ("open", ["Hello"])


# --- faults -------------------------------------------------------------------------------------------------------


async def test_a_step_is_not_done_twice(bus: Bus, shared_valkey: RealServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def twice(run: Run) -> Reply:
        first, second = await run(), await run()
        assert json.loads(cast("bytes", first)) == json.loads(cast("bytes", second))
        return second

    await fill(bus.session("s"), 2_500)
    await bus.session("s").save_checkpoint("r", START)
    around_scripts(monkeypatch, twice)
    done = await bus.session("s").trim(2_400, force=True)
    monkeypatch.undo()
    assert (done.entries, done.holders) == (2_399, {"r:r": 0})
    assert (await bus.session("s").head()).position == 2_501  # one note
    await assert_sound(bus, shared_valkey, "s")


@pytest.mark.full
async def test_a_server_killed_in_the_middle_has_trimmed_less(bus: Bus, session: Session, process: RealServer) -> None:
    await fill(session, 6_000)
    await session.save_checkpoint("r", START)

    async def trim_if_it_can() -> None:
        with suppress(Unavailable):
            await session.trim(5_900, force=True)

    for round_ in range(4):
        async with anyio.create_task_group() as tasks:
            trimmed = (await session.head()).trimmed
            tasks.start_soon(trim_if_it_can)
            while (await session.head()).trimmed == trimmed < 5_899:
                await checkpoint()
            process.kill()
            if round_ % 2:
                tasks.cancel_scope.cancel()
            process.start()
        await assert_sound(bus, process, "s")
    await session.trim(5_900, force=True)
    assert (await session.head()).first_kept == 5_900
    await assert_sound(bus, process, "s")


async def test_a_full_server_can_be_trimmed(bus: Bus, session: Session, process: RealServer) -> None:
    await fill(session, 1_200)
    await session.save_checkpoint("r", START)
    process.do("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(ResponseError):
        process.do("SET", "x", "y")
    with pytest.raises(TrimRefused):
        await session.trim(1_100)
    assert (await session.trim(1_100, force=True)).first_kept == 1_100
    process.do("CONFIG", "SET", "maxmemory", "0")
    await assert_sound(bus, process, "s")


async def test_publishers_and_readers_go_on_while_it_is_trimmed(session: Session) -> None:
    async with background() as tasks:
        await fill(session, 1)
        seen = Follower(session).start(tasks).seen

        async def trim_behind() -> None:
            while True:
                if seen:
                    cursor = seen[-1].cursor
                    await session.save_checkpoint("r", cursor)
                    await session.trim(cursor.position + 1)
                await checkpoint()

        tasks.start_soon(trim_behind)
        for _ in range(100):
            await fill(session, 20)
        await eventually(lambda: seen[-1].position == 2_001)
        assert [e.position for e in seen] == list(range(1, 2_002))
