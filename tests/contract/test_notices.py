"""The notices that a subscriber gets between the envelopes, on every server."""

import shutil
from collections.abc import Collection
from contextlib import aclosing

import anyio
import pytest
from anyio.lowlevel import checkpoint

from lanebus import ALL_LANES, Bounds, Bus, Cursor, Envelope, ExtensionMessage, Lane, Notice, Session, UserMessage
from lanebus.bounds import HubBounds
from lanebus.bus.wire import CLOSED
from lanebus.errors import LogRolledBack
from tests.support.log.archived import fill
from tests.support.log.following import Subscriber
from tests.support.log.said import assert_gap_free, read, said, told
from tests.support.servers.bounded import bound_hub, bound_servers
from tests.support.servers.real import AnyServer, RealServer, background, eventually

LLM, EXTENSION = frozenset({Lane.LLM}), frozenset({Lane.EXTENSION})


@pytest.fixture(params=[32, 0], ids=["direct", "indexes"], autouse=True)
def way(request: pytest.FixtureRequest) -> None:
    """Both ways in which the hub learns of changes."""
    bound_servers(request, Bounds(hub=HubBounds(direct_sessions=request.param)))


# --- caught up, fallen behind -------------------------------------------------------------------------------------


@pytest.mark.cluster("smoke test of subscribing")
@pytest.mark.sentinel("smoke test of subscribing")
async def test_a_subscriber_gets_one_caught_up_notice(session: Session) -> None:
    async with background() as tasks:
        empty = Subscriber(session).start(tasks)
        await eventually(empty.has("[caughtUp]"))
        assert empty.cursor == Cursor(0)
        await session.publish(said("a"), told("b"))
        late = Subscriber(session).start(tasks)
        await eventually(late.has("a", "b", "[caughtUp]"))
        assert late.cursor == (await session.head()).cursor
        await session.publish(said("c"))
        await eventually(late.has("a", "b", "[caughtUp]", "c"))
        await eventually(empty.has("[caughtUp]", "a", "b", "c"))
        resumed = Subscriber(session, after=late.cursor).start(tasks)
        await eventually(resumed.has("[caughtUp]"))


async def test_a_slow_subscriber_gets_fell_behind_reads_the_log_and_gets_caught_up(session: Session) -> None:
    async with background() as tasks:
        await session.publish(said("0"))
        slow = session.subscribe(buffer_bytes=2_000)
        first = [await anext(slow), await anext(slow)]
        fast = Subscriber(session).start(tasks)
        await fill(session, 300)
        await eventually(lambda: len(fast.envelopes) == 301)
        rest: list[Envelope | Notice] = []
        while len([item for item in rest if isinstance(item, Envelope)]) < 300 or isinstance(rest[-1], Envelope):
            rest.append(await anext(slow))
        told_of = [item.kind for item in [*first, *rest] if isinstance(item, Notice)]
        assert told_of == ["caughtUp", "fellBehind", "caughtUp"]
        assert_gap_free([item for item in [*first, *rest] if isinstance(item, Envelope)])
        behind = next(item for item in rest if isinstance(item, Notice))
        assert behind.cursor.position == rest.index(behind) + 1
        await session.publish(said("x"))
        assert isinstance(await anext(slow), Envelope)
        await slow.aclose()


async def test_a_buffer_is_counted_in_bytes(session: Session) -> None:
    async with background() as tasks:
        fast = Subscriber(session).start(tasks)
        small, large = session.subscribe(buffer_bytes=100_000), session.subscribe(buffer_bytes=100_000)
        for each in (small, large):
            assert await anext(each) == Notice("caughtUp", Cursor(0))
        await session.publish(*(told("x") for _ in range(1_000)))
        await eventually(lambda: len(fast.envelopes) == 1_000)
        taken = [await anext(small) for _ in range(1_000)]
        assert all(isinstance(item, Envelope) for item in taken)
        await session.publish(told("x" * 60_000))
        await eventually(lambda: len(fast.envelopes) == 1_001)
        assert await anext(large) == Notice("fellBehind", Cursor(0))
        for each in (small, large):
            await each.aclose()


async def test_one_entry_larger_than_the_buffer_gets_through(session: Session) -> None:
    async with background() as tasks:
        await session.publish(said("0"))
        alone, behind = (session.subscribe(buffer_bytes=10) for _ in range(2))
        fast = Subscriber(session).start(tasks)
        for each in (alone, behind):
            _ = [await anext(each), await anext(each)]
        await session.publish(said("x" * 5_000))
        await eventually(lambda: len(fast.envelopes) == 2)
        found = await anext(alone)
        assert isinstance(found, Envelope)
        assert found.position == 2
        await session.publish(said("y" * 5_000))
        await eventually(lambda: len(fast.envelopes) == 3)
        kinds = [type(await anext(behind)) for _ in range(4)]
        assert kinds == [Notice, Envelope, Envelope, Notice]
        for each in (alone, behind):
            await each.aclose()


# --- closed and open ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [ALL_LANES, LLM, EXTENSION], ids=["both", "llm", "extension"])
@pytest.mark.parametrize("kinds", [None, ["user", "told"], ["nothing"]], ids=["all", "some", "none"])
async def test_notices_of_the_sessions_state_come_for_any_selection(
    bus: Bus, other: Bus, lanes: Collection[Lane], kinds: Collection[str] | None
) -> None:
    async with background() as tasks:
        session, theirs = bus.session("s"), other.session("s")
        await session.publish(said("a"), told("b"))
        follower = Subscriber(session, lanes=lanes, kinds=kinds).start(tasks)
        plain = Subscriber(session).start(tasks)
        await eventually(follower.has_been_told("caughtUp"))
        end = await theirs.close(said("last"))
        await eventually(follower.has_been_told("closed"))
        assert follower.cursor == end.cursor
        late = Subscriber(session, lanes=lanes, kinds=kinds).start(tasks)
        await eventually(late.has_been_told("closed"))
        assert late.story[-2:] == ["[caughtUp]", "[closed]"]
        resumed = Subscriber(session, lanes=lanes, kinds=kinds, after=end.cursor).start(tasks)
        await eventually(resumed.has("[caughtUp]", "[closed]"))
        await theirs.reopen(said("again"))
        for each in (follower, late, resumed):
            await eventually(each.has_been_told("reopened"))
        await theirs.close()
        for each in (follower, late, resumed):
            await eventually(each.has_been_told("closed", 2))
            assert each.error is None
        told_of = [item.kind for item in plain.items if isinstance(item, Notice)]
        assert told_of == ["caughtUp", "closed", "reopened", "closed"]
        wanted = [e async for e in session.read(lanes=lanes, kinds=kinds)]
        assert follower.envelopes == late.envelopes == wanted


async def test_a_subscriber_of_one_lane_gets_notices_caused_by_the_other_at_once(server: AnyServer) -> None:
    bound_hub(server, block_seconds=3_600)  # nothing is found out by looking now and then
    async with server.bus() as bus, background() as tasks:
        session = bus.session("s")
        await session.publish(said("a"), told("b"))
        alone = Subscriber(session, lanes=LLM).start(tasks)
        await eventually(alone.has("a", "[scanned]", "[caughtUp]"))
        await session.close()
        await eventually(alone.has("a", "[scanned]", "[caughtUp]", "[closed]"))
        other = bus.session("other")
        await other.publish(told("a"))
        first = Subscriber(other, lanes=EXTENSION).start(tasks)
        await eventually(first.has("a", "[caughtUp]"))
        await other.publish(said("b"))
        second = Subscriber(other, lanes=EXTENSION).start(tasks)
        await eventually(second.has("a", "[scanned]", "[caughtUp]"))
        assert (alone.error, second.error) == (None, None)


@pytest.mark.cluster("the hub reads each node on a connection of its own")
async def test_a_subscriber_that_keeps_up_never_falls_behind(session: Session) -> None:
    async with aclosing(session.subscribe(buffer_bytes=2_000)) as items:
        assert await anext(items) == Notice("caughtUp", Cursor(0))
        for _ in range(20):
            await session.publish(told("x" * 900))
            assert isinstance(await anext(items), Envelope)


@pytest.mark.cluster("smoke test of closing and reopening")
@pytest.mark.sentinel("smoke test of closing and reopening")
async def test_the_closed_notice_comes_after_the_last_message_and_reopened_before_the_first(session: Session) -> None:
    async with background() as tasks:
        follower = Subscriber(session, kinds=["user"]).start(tasks)
        await eventually(follower.has("[caughtUp]"))
        await session.publish(ExtensionMessage.of(CLOSED, "x"))  # a message of this kind closes nothing
        await session.publish(said("0"))
        await eventually(follower.has("[caughtUp]", "0"))
        late = Subscriber(session).start(tasks)
        await eventually(late.has_been_told("caughtUp"))
        assert "[closed]" not in late.story
        await session.close(said("a"))
        await eventually(follower.has("[caughtUp]", "0", "a", "[closed]"))
        await session.reopen(said("b"))
        await eventually(follower.has("[caughtUp]", "0", "a", "[closed]", "[reopened]", "b"))


async def test_following_until_closed_ends_by_itself_at_the_end(session: Session) -> None:
    async with anyio.create_task_group() as tasks:
        await session.publish(said("a"))
        found: dict[str, list[Envelope]] = {}

        async def follow(name: str, lanes: Collection[Lane]) -> None:
            found[name] = [envelope async for envelope in session.follow(lanes=lanes, until_closed=True)]

        tasks.start_soon(follow, "both", ALL_LANES)
        tasks.start_soon(follow, "llm", LLM)
        await session.publish(said("b"))
        assert found == {}
        await session.close(said("c"))
        await eventually(lambda: len(found) == 2)
        await follow("late", ALL_LANES)
        assert found["both"] == found["late"] == await read(session)
        assert found["llm"] == [envelope for envelope in found["both"] if envelope.lane is Lane.LLM]
        await session.reopen()
        tasks.start_soon(follow, "reopened", ALL_LANES)
        await session.publish(said("d"))
        assert "reopened" not in found
        await session.close()
        await eventually(lambda: "reopened" in found)


# --- a log that lost its end --------------------------------------------------------------------------------------


async def test_followers_of_a_rolled_back_log_raise_once_and_resume_where_it_agrees(process: RealServer) -> None:
    async with process.bus() as bus, background() as tasks:
        session = bus.session("s")
        await session.publish(said("a"), told("b"))
        shutil.copytree(process.directory / "appendonlydir", process.directory / "copy")
        await session.publish(said("c"), told("d"))
        held: dict[str, list[str]] = {"both": [], "llm": []}
        losses = list[LogRolledBack]()

        async def follow(name: str, lanes: Collection[Lane]) -> None:
            """The documented recipe: drop all envelopes after `found`, and follow from there."""
            after = Cursor(0)
            kept: list[Envelope] = []
            while True:
                try:
                    async for envelope in session.follow(lanes=lanes, after=after):
                        kept.append(envelope)
                        held[name] = [str(envelope.message) for envelope in kept]
                except LogRolledBack as lost:
                    losses.append(lost)
                    after = Cursor(lost.found)
                    kept = [each for each in kept if not each.cursor.is_after(after)]

        tasks.start_soon(follow, "both", ALL_LANES)
        tasks.start_soon(follow, "llm", LLM)
        await eventually(lambda: (len(held["both"]), len(held["llm"])) == (4, 2))
        process.kill()
        shutil.rmtree(process.directory / "appendonlydir")
        (process.directory / "copy").rename(process.directory / "appendonlydir")
        process.start()
        async with process.bus() as other:
            await other.session("s").publish(said("C"))
        now = await read(session)
        assert [envelope.position for envelope in now] == [1, 2, 3]
        await eventually(lambda: held["both"] == [str(each.message) for each in now])
        await eventually(lambda: held["llm"] == [str(each.message) for each in now if each.lane is Lane.LLM])
        assert [(loss.seen, loss.found) for loss in losses] == [(4, 2)] * 2


# --- cancelled ----------------------------------------------------------------------------------------------------


@pytest.mark.full
async def test_a_subscriber_cancelled_during_its_head_request_does_not_affect_others(bus: Bus) -> None:
    async with background() as tasks:
        sessions: list[Session] = [bus.session(f"s{number}") for number in range(300)]
        for session in sessions[:3]:
            await session.publish(said(session.id))
        with anyio.CancelScope() as scope:
            scope.cancel()
            await anext(sessions[0].subscribe())
        leaving = [Subscriber(session) for session in sessions]
        async with anyio.create_task_group() as gone:
            for each in leaving:
                each.start(gone)
            await checkpoint()
            gone.cancel_scope.cancel()
        assert not any(each.items for each in leaving)
        kept = [Subscriber(session).start(tasks) for session in sessions]
        for each in kept:
            await eventually(each.has_been_told("caughtUp"))
        assert [each.story for each in kept[:4]] == [*([f"s{n}", "[caughtUp]"] for n in range(3)), ["[caughtUp]"]]
        await sessions[299].publish(UserMessage.text("x"))
        await eventually(kept[299].has("[caughtUp]", "x"))
