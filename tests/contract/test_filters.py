"""Followers select lanes and kinds, and lose or double nothing wherever they stop, on every server."""

import random
from collections.abc import Collection
from contextlib import aclosing
from functools import partial

import anyio
import pytest

from lanebus import ALL_LANES, START, Bus, Cursor, DecodeFailure, Envelope, ExtensionMessage, Lane, Notice, Session
from lanebus.bounds import Bounds, HubBounds
from lanebus.bus.errors import CursorTrimmed, NoKinds, NoLanes
from lanebus.bus.wire import Keys, Selection
from lanebus.messages import Compaction, Delta, Publishable
from tests.support.log.following import Subscriber
from tests.support.log.said import said, told, word
from tests.support.servers.bounded import bound_hub, bound_servers
from tests.support.servers.real import AnyServer, background, eventually
from tests.support.suite.scale import count

CHOICES: list[list[str] | None] = [
    *(None, ["user"], ["told"], ["rare"], ["agent.*"], ["user", "agent.ended"], ["nothing"], ["*"])
]
LANES = (ALL_LANES, ALL_LANES, frozenset({Lane.LLM}), frozenset({Lane.EXTENSION}))


@pytest.fixture(params=[32, 0], ids=["direct", "indexes"])
def way(request: pytest.FixtureRequest) -> None:
    """Both ways in which the hub learns of changes."""
    bound_servers(request, Bounds(hub=HubBounds(direct_sessions=request.param)))


def some_message(chance: random.Random) -> Publishable:
    roll = chance.random()
    if roll < 0.4:
        return said("x")
    if roll < 0.8:
        return told("y")
    if roll < 0.995:
        return ExtensionMessage.of(chance.choice(("agent.ended", "agent.progress")), None)
    return ExtensionMessage.of("rare", None)


async def test_reading_no_lane_or_no_kind_at_all_is_refused(session: Session) -> None:
    await session.publish(said("x"), told("y"))
    for reading in (session.read, session.pages, session.follow, session.subscribe):
        for ask, error in ((partial(reading, lanes=()), NoLanes), (partial(reading, kinds=()), NoKinds)):
            with anyio.fail_after(120), pytest.raises(error, match="give at least one"):
                async with aclosing(ask()) as found:
                    await anext(aiter(found))
    for reading in (session.read, session.pages):
        with pytest.raises(NoKinds):
            async with aclosing(reading(kinds={Lane.LLM: (), Lane.EXTENSION: ()})) as found:
                await anext(aiter(found))
    assert [e.position async for e in session.read(kinds={Lane.LLM: ()})] == [2]


async def fill(session: Session, count: int, chance: random.Random) -> None:
    for start in range(0, count, 500):
        await session.publish(*(some_message(chance) for _ in range(min(500, count - start))))


@pytest.mark.cluster("smoke test of reading by kind")
@pytest.mark.sentinel("smoke test of reading by kind")
async def test_a_kind_is_chosen_exactly_or_by_how_it_begins(session: Session) -> None:
    await session.publish(
        said("a"), told("b"), ExtensionMessage.of("agent.ended", "c"), ExtensionMessage.of("agents", "d")
    )
    await session.publish(Compaction(summary="e"))
    for kinds, positions in (
        (["user"], [1]),
        ("user", [1]),
        (["told", "compaction"], [2, 5]),
        (["agent.*"], [3]),
        (["agent*"], [3, 4]),
        (["*"], [1, 2, 3, 4, 5]),
    ):
        assert [e.position async for e in session.read(kinds=kinds)] == positions
    assert [e.position async for e in session.read(kinds=["*"], lanes={Lane.LLM})] == [1, 5]


async def test_what_a_framework_stores_is_read_and_followed_only_with_the_llm_lane(session: Session) -> None:
    await session.publish(said("a"), ExtensionMessage.of("store.x", "b"), told("c"), said("d"))
    for lanes, positions in ((ALL_LANES, [1, 2, 3, 4]), ({Lane.EXTENSION}, [3])):
        for kinds in (None, ["*"]):
            assert [e.position async for e in session.read(lanes=lanes, kinds=kinds)] == positions
        with anyio.fail_after(120):
            async with aclosing(session.follow(lanes=lanes)) as followed:
                assert [(await anext(followed)).position for _ in positions] == positions


@pytest.mark.full
@pytest.mark.parametrize("seed", range(4))
async def test_a_follower_that_resumes_anywhere_gets_entries_once(bus: Bus, other: Bus, way: None, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  a test's dice
    async with anyio.create_task_group() as tasks:
        session, theirs = bus.session("s"), other.session("s")
        await fill(theirs, count(3_000, least=1_200), chance)  # more than is read between two notices
        done = anyio.Event()

        async def publish() -> None:
            for _ in range(60):
                await fill(theirs, chance.randint(1, 40), chance)
            done.set()

        seen: list[list[Envelope]] = []
        choices = [(chance.choice(LANES), chance.choice(CHOICES)) for _ in range(8)]
        finished = 0

        async def follow(lanes: Collection[Lane], kinds: list[str] | None) -> None:
            nonlocal finished
            mine, after = list[Envelope](), START
            seen.append(mine)
            while not (done.is_set() and after.position >= (await session.head()).position):
                stop = chance.choice((1, 3, 50, 1_000))
                with anyio.move_on_after(0.2):
                    async for item in session.subscribe(lanes=lanes, kinds=kinds, after=after, buffer_bytes=3_000):
                        after = item.cursor
                        if isinstance(item, Envelope):
                            mine.append(item)
                        stop -= 1
                        if not stop:
                            break
            finished += 1

        tasks.start_soon(publish)
        for lanes, kinds in choices:
            tasks.start_soon(follow, lanes, kinds)
        await eventually(lambda: finished == len(choices))
        everything = [envelope async for envelope in session.read()]
        for (lanes, kinds), mine in zip(choices, seen, strict=True):
            selection = Selection.of(lanes, kinds)
            assert mine == [envelope for envelope in everything if selection.takes(envelope)]
            assert mine == [envelope async for envelope in session.read(lanes=lanes, kinds=kinds)]


@pytest.mark.full
@pytest.mark.parametrize("lanes", [ALL_LANES, frozenset({Lane.LLM})], ids=["both", "llm"])
async def test_a_cursor_comes_every_thousand_entries(way: None, lanes: Collection[Lane], bus: Bus, other: Bus) -> None:
    async with background() as tasks:
        session, theirs = bus.session("s"), other.session("s")

        async def publish(count: int) -> None:
            for _ in range(count // 100):
                await theirs.publish(*(said("x") for _ in range(100)))

        await publish(5_000)
        follower = Subscriber(session, lanes=lanes, kinds=["rare"]).start(tasks)
        await eventually(follower.has_been_told("caughtUp"))
        assert follower.cursor.position == 5_000
        assert follower.story[-2:] == ["[scanned]", "[caughtUp]"]
        await publish(5_000)
        await eventually(lambda: follower.cursor.position > 9_000)
        assert follower.envelopes == []
        steps = [item.cursor.position for item in follower.items]
        assert max(b - a for a, b in zip([0, *steps], steps, strict=False)) <= 1_000


async def test_unreadable_entries_are_delivered_for_any_selection(server: AnyServer, way: None, bus: Bus) -> None:
    async with background() as tasks:
        session = bus.session("s")
        follower = Subscriber(session, kinds=["rare"]).start(tasks)
        await eventually(follower.has("[caughtUp]"))
        await session.publish(said("a"), told("b"))
        stream = Keys().lane("s", Lane.LLM)
        server.do("XADD", stream, "1-5", "x", "forged")
        await session.publish(ExtensionMessage.of("rare", "c"))
        # Else the late one may join a read from before the forgery. Whether this one sees it depends on when it read 1.
        await eventually(lambda: follower.story[-1:] == ["c"])
        late = Subscriber(session, kinds=["rare"]).start(tasks)
        await eventually(late.has_been_told("caughtUp"))
        shown = [each for each in late.envelopes if isinstance(each.message, DecodeFailure)]
        assert [each.position for each in shown] == [1]
        assert len(late.envelopes) == 2


async def test_a_gap_is_told_to_followers_that_did_not_select_the_entry(session: Session, server: AnyServer) -> None:
    await session.publish(*(told(str(number)) for number in range(1, 6)), ExtensionMessage.of("rare", "x"))
    server.do("XDEL", Keys().lane("s", Lane.EXTENSION), "3-0")
    with pytest.raises(CursorTrimmed) as caught:
        _ = [envelope async for envelope in session.read(kinds=["rare"])]
    assert (caught.value.cursor, caught.value.first_kept) == ("2-0", 4)
    assert [word(e) async for e in session.read(kinds=["told"], after=Cursor(3))] == ["4", "5"]


async def test_a_trimmed_lane_that_is_not_followed_is_no_loss(server: AnyServer, way: None) -> None:
    bound_hub(server, block_seconds=0.1)
    async with server.bus() as bus, background() as tasks:
        session = bus.session("s")
        await session.publish(told("a"))
        follower = Subscriber(session, lanes={Lane.EXTENSION}).start(tasks)
        await eventually(follower.has("a", "[caughtUp]"))
        await session.publish(*(said("x") for _ in range(1_500)))
        await eventually(lambda: follower.cursor.position == 1_501)
        assert follower.story == ["a", "[caughtUp]", "[scanned]"]
        server.do("XTRIM", Keys().lane("s", Lane.LLM), "MINID", "1502-0")
        server.do("HSET", Keys().head("s"), "trimmed", "1501")
        await session.publish(told("b"))
        await eventually(follower.has("a", "[caughtUp]", "[scanned]", "b"))
        assert follower.error is None


async def test_live_deltas_are_delivered_for_any_selected_kinds(way: None, session: Session) -> None:
    async with background() as tasks:
        await session.publish(said("a"))
        items: list[Envelope | Notice] = []

        async def follow() -> None:
            async for item in session.subscribe(kinds=["rare"], live=True):
                items.append(item)  # noqa: PERF401  it never ends

        tasks.start_soon(follow)
        await eventually(lambda: len(items) == 2)
        for number in range(3):
            await session.preview(Delta(kind="text", message_id="m", delta=str(number)))
            await session.publish(told("b"))
        await eventually(lambda: len(items) == 5)
        assert [item.cursor[:2] for item in items] == [(1, 0), (1, 0), (1, 1), (2, 1), (3, 1)]
