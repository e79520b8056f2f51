"""The promises of reading and of checkpoints, also from a server that closes connections at a limit."""

from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from lanebus import START, Bounds, Bus, Cursor, DecodeFailure, Delta, Envelope, ExtensionMessage, Lane, Session
from lanebus.archive import DirectoryArchive
from lanebus.bounds import HubBounds
from lanebus.bus.wire import Keys
from lanebus.errors import BusError, InvalidName, LogRolledBack, ReplyTooLarge
from lanebus.handlers.verify import verify_session
from lanebus.projections import USAGE, project
from tests.support.log.archived import fill
from tests.support.log.following import Subscriber, stalled
from tests.support.log.said import assert_gap_free, read, said, told, word
from tests.support.servers.bounded import TINY
from tests.support.servers.real import AnyServer, RealServer, background, eventually, shortly


@pytest.mark.cluster("smoke test of reading in pages")
async def test_pages_are_joined_without_a_seam(session: Session) -> None:
    await fill(session, 2_500)
    envelopes = await read(session)
    assert_gap_free(envelopes)
    assert [word(e) for e in envelopes] == [str(n) for n in range(1, 2_501)]
    llm = [e.position async for e in session.read(lanes={Lane.LLM})]
    assert llm == list(range(1, 2_501, 3))
    extension = [e.position async for e in session.read(lanes={Lane.EXTENSION})]
    assert sorted([*llm, *extension]) == list(range(1, 2_501))


@pytest.mark.cluster("smoke test of reading beside publishing")
@pytest.mark.sentinel("smoke test of reading beside publishing")
async def test_reading_has_no_gap_while_publishing_goes_on(bus: Bus, other: Bus) -> None:
    async with anyio.create_task_group() as tasks:
        done = anyio.Event()

        async def publish() -> None:
            for n in range(250):
                await other.session("s").publish(said(str(n)) if n % 2 else told(str(n)))
            done.set()

        tasks.start_soon(publish)
        while not done.is_set():
            assert_gap_free(await read(bus.session("s")))


async def test_an_envelope_has_its_position_time_and_producer(bus: Bus, other: Bus) -> None:
    await bus.session("s").publish(told("a"))
    await other.session("s").publish(told("b"))
    first, second = await read(bus.session("s"))
    assert first.producer != second.producer
    assert first.time <= second.time
    assert isinstance(first, Envelope)
    assert (first.session, first.lane, first.delta, first.cursor.id) == ("s", Lane.EXTENSION, 0, "1-0")
    assert first.message == ExtensionMessage.of("told", "a")
    assert first.cursor > START
    head = await bus.session("s").head()
    assert (head.created, head.updated) == (first.time, second.time)
    assert head.size_bytes == 2 * len(told("a").to_json())


LARGE = "x" * 30_000
"""A message of this text has less than 32 KiB."""


@pytest.fixture(params=[None, TINY], ids=["default", "tiny"])
def narrow(valkey: RealServer, request: pytest.FixtureRequest) -> RealServer:
    """A server that sends at most 1 MiB to a client at once."""
    valkey.bounds = request.param
    limit(valkey, "1mb")
    return valkey


def limit(server: RealServer, size: str) -> None:
    server.do("CONFIG", "SET", "client-output-buffer-limit", f"normal {size} {size} 0")


async def fill_lanes(session: Session, entries: int, text: str = LARGE) -> None:
    """Publish `entries` messages to each lane."""
    for _ in range(entries):
        await session.publish(said(text), told(text))


@pytest.mark.full
@pytest.mark.parametrize("sessions", [1, 12, 40])
async def test_a_follower_of_a_stalled_process_continues_after_much(narrow: RealServer, sessions: int) -> None:
    names = [f"s{number}" for number in range(sessions)]
    each = 80 // sessions or 1

    async def publish() -> None:
        async with narrow.bus() as other, anyio.create_task_group() as publishing:
            for name in names:
                publishing.start_soon(fill_lanes, other.session(name), each)

    async with narrow.bus() as bus, background() as tasks:
        subscribers = [Subscriber(bus.session(name)).start(tasks) for name in names]
        for subscriber in subscribers:
            await eventually(subscriber.has("[caughtUp]"))
        for _ in range(2):
            stalled(publish)
        await bus.session("s0").publish(said("last"))
        for subscriber in subscribers:
            await eventually(subscriber.has_taken(4 * each + (subscriber is subscribers[0])))
            assert subscriber.error is None
            assert_gap_free(subscriber.envelopes)


@pytest.mark.full
async def test_followers_of_one_lane_and_of_live_deltas_go_on_too(narrow: RealServer) -> None:
    async def publish() -> None:
        async with narrow.bus() as other:
            session = other.session("s")
            await fill_lanes(session, 40)
            for number in range(60):
                await session.preview(Delta(kind="text", message_id="m", delta=f"{number} {LARGE}"))

    async with narrow.bus() as bus, background() as tasks:
        session = bus.session("s")
        lane = Subscriber(session, lanes={said("").lane}).start(tasks)
        await eventually(lane.has("[caughtUp]"))
        live: list[Envelope] = []

        async def follow() -> None:
            async for envelope in session.follow(live=True):
                live.append(envelope)  # noqa: PERF401  it never ends

        tasks.start_soon(follow)
        await eventually(lambda: "s" in bus._shards.of("s").hub.followed)  # pyright: ignore[reportPrivateUsage]  # it shows nowhere else
        stalled(publish)
        await eventually(lane.has_taken(40))
        spoken = "".join(f"{number} {LARGE}" for number in range(60))
        await eventually(lambda: sum(_length(each) for each in live) >= len(spoken))
        assert "".join(each.message.delta for each in live if isinstance(each.message, Delta)) == spoken
        assert_gap_free([each for each in live if not each.delta])


def _length(envelope: Envelope) -> int:
    return len(envelope.message.delta) if isinstance(envelope.message, Delta) else 0


@pytest.mark.full
async def test_any_session_is_read_archived_forked_joined_and_verified(narrow: RealServer, tmp_path: Path) -> None:
    archive = DirectoryArchive(tmp_path)
    async with Bus.open(narrow.url, archive=archive, bounds=narrow.bounds) as bus:
        session = bus.session("s")
        for _ in range(3):
            await fill_lanes(session, 200, "short")
            await fill_lanes(session, 40)
        assert_gap_free(await read(session))
        fork = await session.fork(1_000)
        assert len(await read(fork)) == 1_000
        async with shortly(), aclosing(session.follow()) as envelopes:
            for position in range(1, 1_441):
                assert (await anext(envelopes)).position == position
        report = await verify_session(bus, "s")
        assert report is not None
        assert report.problems == ()
        assert (await session.archive()).position == 1_440
        await session.trim(1_001, force=True)
        assert_gap_free(await read(session))


async def test_a_late_follower_gets_the_whole_preview(session: Session, narrow: RealServer) -> None:
    await session.publish(said("q"))
    for _ in range(80):
        await session.preview(Delta(kind="text", message_id="m", delta=LARGE))
    (spoken,) = await session.open_messages()
    assert spoken.blocks[0].delta == LARGE * 80
    async with shortly(), aclosing(session.follow(live=True, after=Cursor(1))) as envelopes:
        assert _length(await anext(envelopes)) == len(LARGE) * 80


@pytest.mark.full
async def test_all_sessions_are_listed(narrow: RealServer) -> None:
    keys, names = Keys(), [f"s{number}" for number in range(6_000)]
    with narrow.talk() as say:
        for name in names:  # written as others would, as so many publishes take long
            say("HSET", keys.sessions(keys.bucket(name)), name, "1700000000000")
            say(
                "HSET",
                keys.head(name),
                "position",
                "1",
                "created",
                "1700000000000",
                "incarnations",
                " ".join(["0_" + "x" * 26] * 7),
            )
    async with narrow.bus() as bus:
        assert {head.session for head in await bus.sessions()} == {*names}


@pytest.mark.parametrize("direct", [32, 0])
async def test_an_entry_larger_than_the_limit_stops_no_other_session(valkey: RealServer, direct: int) -> None:
    valkey.bounds = Bounds(hub=HubBounds(direct_sessions=direct))

    async def publish() -> None:
        async with valkey.bus() as other:
            await other.session("large").publish(said("a"), said("x" * 500_000), said("b"))
            await other.session("small").publish(said("c"))

    async with valkey.bus() as bus, background() as tasks:
        large, small = (Subscriber(bus.session(name)).start(tasks) for name in ("large", "small"))
        for subscriber in (large, small):
            await eventually(subscriber.has("[caughtUp]"))
        limit(valkey, "256kb")
        stalled(publish)
        await eventually(small.has_taken(1))
        await eventually(large.has_failed)
        for error in (large.error, await failure(bus.session("large"))):
            assert isinstance(error, ReplyTooLarge)
            assert (error.session, error.position) == ("large", 2)
            assert error.size_bytes > 500_000
            assert "client-output-buffer-limit" in str(error)
        assert small.error is None
        limit(valkey, "64mb")
        assert_gap_free(await read(bus.session("large")))


async def failure(session: Session) -> BusError | None:
    try:
        await read(session)
    except BusError as error:
        return error
    return None


async def test_large_foreign_entries_stop_no_reader_and_no_follower(session: Session, narrow: RealServer) -> None:
    async with background() as tasks:
        subscriber = Subscriber(session).start(tasks)
        for _ in range(3):
            await session.publish(said(LARGE))
            with narrow.talk() as say:
                position = (await session.head()).position
                for index in range(1, 61):
                    say("XADD", Keys().lane("s", Lane.LLM), f"{position}-{index}", "x", LARGE)
        await session.publish(told("last"))
        await eventually(lambda: bool(subscriber.envelopes) and subscriber.envelopes[-1].position == 4)
        for envelopes in (await read(session), subscriber.envelopes):
            genuine = [each.position for each in envelopes if not isinstance(each.message, DecodeFailure)]
            assert genuine == [1, 2, 3, 4]


# --- checkpoints of readers and projections --------------------------------------------------------------------


@pytest.mark.cluster("smoke test of checkpoints")
@pytest.mark.sentinel("smoke test of checkpoints")
async def test_a_reader_resumes_at_its_checkpoint(other: Bus, session: Session) -> None:
    await session.publish(said("a"), said("b"), said("c"))
    assert await session.load_checkpoint("mirror") is None
    second = (await read(session))[1].cursor
    assert await session.save_checkpoint("mirror", second)
    after = await other.session("s").load_checkpoint("mirror")
    assert after is not None
    assert after == second
    assert after.incarnation
    assert [e.position async for e in session.read(after=after)] == [3]


@pytest.mark.parametrize("restarts", [False, True])
async def test_an_older_checkpoint_is_refused_unless_forced(
    session: Session, server: AnyServer, restarts: bool
) -> None:
    await session.publish(said("a"))
    if restarts:
        server.do("HSET", Keys().head("s"), "run", "another")  # as if the server had started again
    await session.publish(said("b"))
    first, second = (e.cursor for e in await read(session))
    assert (first.incarnation != second.incarnation) == restarts
    assert await session.save_checkpoint("r", second)
    assert await session.save_checkpoint("r", second)
    assert not await session.save_checkpoint("r", first)
    assert not await session.save_checkpoint("r", Cursor(1))
    assert await session.load_checkpoint("r") == second
    assert await session.save_checkpoint("r", first, rewind=True)
    assert await session.load_checkpoint("r") == first
    assert await session.save_checkpoint("r", first._replace(delta=3))
    assert not await session.save_checkpoint("r", first._replace(delta=2))


async def test_a_checkpoint_that_the_log_lost_is_refused_and_may_be_replaced(bus: Bus, server: AnyServer) -> None:
    session = bus.session("s")
    await session.publish(said("a"), said("b"))
    first = (await read(session))[0].cursor
    for lost in (Cursor(2, 0, "lost"), Cursor(3), Cursor(3, 0, first.incarnation)):
        with pytest.raises(LogRolledBack) as caught:
            await session.save_checkpoint("r", lost)
        assert caught.value.seen == lost.position
        assert caught.value.found == (0 if lost.incarnation == "lost" else 2)
    # As after a rollback: what was saved is of an incarnation that the log knows nothing of.
    server.do("HSET", Keys().checkpoints("s"), "r:r", "9-0.lost")
    assert await session.save_checkpoint("r", first)
    assert await session.load_checkpoint("r") == first


async def test_all_readers_that_need_entries_are_listed(session: Session, server: AnyServer) -> None:
    assert await session.checkpoints() == {}
    await session.publish(said("a"))
    cursor = (await session.head()).cursor
    await session.save_checkpoint("ui.1", START)
    await session.save_checkpoint("mirror", cursor)
    await project(session, USAGE)
    projection = f"p:{USAGE.name}@{USAGE.version}"
    assert await session.checkpoints() == {"r:mirror": cursor, "r:ui.1": START, projection: Cursor(1)}
    assert await session.drop_checkpoint("ui.1")
    assert not await session.drop_checkpoint("ui.1")
    assert await session.drop_projection(USAGE.name, USAGE.version)
    assert not await session.drop_projection(USAGE.name, USAGE.version)
    assert await session.load_projection(USAGE.name, USAGE.version) is None
    assert await session.checkpoints() == {"r:mirror": cursor}
    server.do("HSET", Keys().checkpoints("s"), "r:broken", "\udcff")
    assert (await session.checkpoints())["r:broken"] == START
    assert await session.load_checkpoint("broken") == START
    assert await session.save_checkpoint("broken", cursor)


async def test_a_name_that_is_none_is_refused(session: Session, shared_valkey: RealServer) -> None:
    for name in ("", "a b", "a:b", "a@1", "x" * 65, "é", "a\n"):
        saved, loaded = session.save_checkpoint(name, START), session.load_checkpoint(name)
        for step in (saved, loaded, session.drop_checkpoint(name)):
            with pytest.raises(InvalidName) as caught:
                await step
            assert caught.value.name == name
    assert shared_valkey.do("KEYS", "*:s:*") == []
