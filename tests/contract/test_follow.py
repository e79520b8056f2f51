"""Following: every entry comes once and in order, whatever happens to the connection or to the caller."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace

import anyio
import pytest
from anyio.abc import TaskGroup

from lanebus import ALL_LANES, Bounds, Bus, Closed, Delta, Envelope, Lane, Notice, Session, Unavailable
from lanebus.bounds import ConnectionBounds, HubBounds, LogBounds, WorkBounds
from lanebus.bus.wire import Keys
from lanebus.errors import LogRolledBack, NoLanes, Refused
from lanebus.integration import resumable
from lanebus.projections import TURNS
from lanebus.projections import follow as follow_projection
from tests.support.log.following import Follower, Subscriber
from tests.support.log.said import assert_gap_free, said, told
from tests.support.servers.bounded import bound_hub
from tests.support.servers.proxy import proxy
from tests.support.servers.real import AnyServer, RealServer, background, blocked, eventually, shortly


@pytest.mark.full
@pytest.mark.cluster("the hub reads each node on a connection of its own")
async def test_crossing_the_limit_of_the_hub_in_both_ways_loses_nothing(server: AnyServer) -> None:
    bound_hub(server, direct_sessions=3)
    async with server.bus() as bus, background() as tasks:
        sessions = [bus.session(f"s{index}") for index in range(8)]
        for session in sessions:
            await session.publish(said("0"))
        stop = anyio.Event()

        async def publish(session: Session) -> None:
            while not stop.is_set():
                await session.publish(said("x"), told("y"))
                await anyio.sleep(0.001)  # lets the followers of eight sessions keep up

        kept = [Follower(session).start(tasks) for session in sessions[:2]]
        for session in sessions:
            tasks.start_soon(publish, session)
        for _ in range(4):
            joined = list[Follower]()
            async with anyio.create_task_group() as more:
                joined = [Follower(session).start(more) for session in sessions[2:]]
                for follower in joined:
                    await eventually(follower.has(len(follower.seen) + 20))
                more.cancel_scope.cancel()
            for follower in joined:
                assert_gap_free(follower.seen)
            goals = [len(follower.seen) + 10 for follower in kept]
            for follower, goal in zip(kept, goals, strict=True):
                await eventually(follower.has(goal))
        stop.set()
        for follower in kept:
            end = (await follower.session.head()).position
            await eventually(follower.has(end - 2))
            assert_gap_free(follower.seen)
            assert follower.error is None


@pytest.mark.cluster("the hub reads each node on a connection of its own")
async def test_the_hub_forgets_closed_subscriptions(bus: Bus) -> None:
    hub = bus._shards.of("s").hub  # pyright: ignore[reportPrivateUsage]  # whether it forgets shows nowhere else
    session = bus.session("s")
    await session.publish(said("0"))
    async for _ in session.follow():
        assert hub.followed == {"s": 1}
        break
    await eventually(lambda: hub.followed == {})
    for patience in (0.0, 0.001, 0.003, 0.01, 0.03):
        with anyio.move_on_after(patience):
            async for _ in session.follow():
                pass
    await eventually(lambda: hub.followed == {})
    stream = session.follow()
    await anext(stream)
    await stream.aclose()
    assert hub.followed == {}


@pytest.mark.cluster("the hub reads each node on a connection of its own")
async def test_following_ends_with_the_bus(server: AnyServer) -> None:
    async with anyio.create_task_group() as tasks:
        async with server.bus() as bus:
            session = bus.session("s")
            await session.publish(said("0"))
            follower = Follower(session).start(tasks)
            await eventually(follower.has(1))
        await eventually(lambda: follower.error is not None)
        assert isinstance(follower.error, Closed)
        for call in (session.publish(said("x")), anext(session.follow()), session.head()):
            with pytest.raises(Closed):
                await call


@pytest.mark.cluster("the hub reads each node on a connection of its own")
@pytest.mark.sentinel("a failover may empty the log")
async def test_a_follower_raises_when_the_log_was_emptied(server: AnyServer) -> None:
    bound_hub(server, block_seconds=0.2)
    async with server.bus() as bus, server.bus() as other, background() as tasks:
        session = bus.session("s")
        await session.publish(said("0"), told("1"))
        quiet = Follower(session).start(tasks)
        await eventually(quiet.has(2))
        server.do("FLUSHALL")
        await eventually(lambda: quiet.error is not None)
        assert isinstance(quiet.error, LogRolledBack)
        assert (quiet.error.seen, quiet.error.found) == (2, 0)
        await other.session("s").publish(said("new"))
        again = Follower(session).start(tasks)
        await eventually(again.has(1))
        assert again.words == ["new"]


async def test_a_follower_raises_when_another_log_is_longer_already(bus: Bus, other: Bus, server: AnyServer) -> None:
    async with background() as tasks:
        session = bus.session("s")
        await session.publish(said("0"), told("1"))
        follower = Follower(session).start(tasks)
        await eventually(follower.has(2))
        await eventually(lambda: blocked(server) > 0)
        server.do("FLUSHALL")
        await other.session("s").publish(said("new"), said("newer"), said("newest"))
        await eventually(lambda: follower.error is not None)
        assert isinstance(follower.error, LogRolledBack)
        assert follower.words == ["0", "1"]


async def test_a_connection_that_died_silently_is_replaced(one: RealServer) -> None:
    bounds = Bounds(  # what is tested: each time-out is passed once
        hub=HubBounds(block_seconds=0.1, silence_seconds=1.5), connection=ConnectionBounds(answer_seconds=1.5)
    )
    async with proxy(one.socket) as way, Bus.open(way.url, bounds=bounds) as bus, background() as tasks:
        session = bus.session("s")
        await session.publish(said("0"))
        follower = Follower(session).start(tasks)
        await eventually(follower.has(1))
        way.silence()
        await session.publish(said("1"))
        await eventually(follower.has(2))
        way.silence()
        assert (await session.head()).position == 2
        assert follower.words == ["0", "1"]


async def test_following_no_lane_is_refused_to_one_alone(bus: Bus, session: Session, shared_valkey: RealServer) -> None:
    async with background() as tasks:
        nothing = Follower(bus.session("t"), lanes=frozenset()).start(tasks)
        follower = Follower(session).start(tasks)
        await session.publish(said("0"))
        await bus.session("t").publish(said("0"))
        await eventually(follower.has(1))
        await eventually(lambda: nothing.error is not None)
        assert isinstance(nothing.error, NoLanes)
        assert nothing.seen == []


@pytest.mark.cluster("one read has the sessions of one node")
async def test_a_stream_of_a_wrong_type_ends_only_its_own_followers(server: AnyServer) -> None:
    bound_hub(
        server, direct_sessions=32
    )  # no notice announces that a foreign client replaced a key; only a read shows it
    async with server.bus() as bus, background() as tasks:
        broken, whole = bus.session("broken"), bus.session("whole")
        first, second = Follower(broken).start(tasks), Follower(whole).start(tasks)
        await whole.publish(said("0"))
        await eventually(second.has(1))
        server.do("SET", Keys().lane("broken", Lane.LLM), "x")
        third = Follower(broken).start(tasks)
        await whole.publish(said("1"))
        await eventually(second.has(2))
        await eventually(lambda: third.error is not None)
        assert first.seen == third.seen == []


async def test_an_error_of_a_direct_receiver_ends_only_its_own_follower(bus: Bus, shared_valkey: RealServer) -> None:
    class Failing:
        def can_receive(self, item: Envelope | Notice, /) -> bool:
            return isinstance(item, Envelope) and item.position > 1  # what comes first may come either way

        def receive(self, item: Envelope | Notice, /) -> None:
            raise ZeroDivisionError

    failed = anyio.Event()

    async def fail(session: Session, ready: anyio.Event) -> None:
        try:
            async for item in session.subscribe(direct=Failing()):
                if isinstance(item, Notice) and item.kind == "caughtUp":
                    ready.set()
        except ZeroDivisionError:
            failed.set()

    async with background() as tasks, shortly():
        session, ready = bus.session("s"), anyio.Event()
        await session.publish(said("first"))
        subscriber = Subscriber(session).start(tasks)
        tasks.start_soon(fail, session, ready)
        await ready.wait()
        published = 1
        while not failed.is_set():  # a follower that does not wait yet is given the entry itself
            await session.publish(said("more"))
            published += 1
            await eventually(subscriber.has_taken(published))
        await session.publish(said("after"))
        await eventually(subscriber.has_taken(published + 1))
        assert subscriber.error is None


PATIENCE = (0.0, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03)
"""time limits of one `anext`, in seconds; the shortest end within each of its steps"""


async def polled(items: AsyncGenerator[Envelope, None], count: int) -> list[int]:
    """Return the positions of `count` items, each of them asked for with ever other time limits."""
    found: list[int] = []
    asked = 0
    while len(found) < count:
        asked += 1
        with anyio.move_on_after(PATIENCE[asked % len(PATIENCE)]):
            found.append((await anext(items)).position)
        await asyncio.sleep(0)
    return found


async def filled(session: Session, count: int) -> None:
    for number in range(count):
        await session.publish(said(str(number)))


async def test_a_reader_and_a_follower_with_a_time_limit_get_each_entry_once(session: Session) -> None:
    await filled(session, 30)
    async with aclosing(session.read()) as envelopes:
        assert await polled(envelopes, 30) == [*range(1, 31)]
        assert [envelope async for envelope in envelopes] == []
    async with aclosing(session.follow()) as envelopes:
        assert await polled(envelopes, 30) == [*range(1, 31)]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(envelopes), 0.01)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(filled, session, 30)
            assert await polled(envelopes, 30) == [*range(31, 61)]


async def test_notices_and_deltas_come_once_after_a_time_limit(session: Session, shared_valkey: RealServer) -> None:
    await filled(session, 2)
    seen: list[str] = []
    async with aclosing(session.subscribe(live=True)) as items:
        for text in ("a", "b", "c"):
            await session.preview(Delta(message_id="m", kind="text", delta=text))
            while not seen or seen[-1] != text:
                with anyio.move_on_after(0.001):
                    item = await anext(items)
                    seen.append(item.kind if isinstance(item, Notice) else words_of(item))
    assert "".join(each for each in seen if each in "abc") == "abc"
    assert seen.count("caughtUp") == 1


def words_of(envelope: Envelope) -> str:
    message = envelope.message
    return message.delta if isinstance(message, Delta) else "entry"


@pytest.mark.parametrize("begin", [Session.follow, Session.subscribe, Session.read, Session.pages])
async def test_closing_an_iterator_that_timed_out_ends_it(
    bus: Bus, shared_valkey: RealServer, begin: Callable[[Session], AsyncGenerator[object, None]]
) -> None:
    hub = bus._shards.of("s").hub  # pyright: ignore[reportPrivateUsage]  # whether it forgets shows nowhere else
    await filled(bus.session("s"), 1)
    for patience in PATIENCE:
        items = begin(bus.session("s"))
        with anyio.move_on_after(patience):
            await anext(items)
        await items.aclose()
        assert [item async for item in items] == []
    assert hub.followed == {}


async def test_an_abandoned_iterator_that_timed_out_leaves_no_subscription(bus: Bus, shared_valkey: RealServer) -> None:
    hub = bus._shards.of("s").hub  # pyright: ignore[reportPrivateUsage]  # whether it forgets shows nowhere else
    await filled(bus.session("s"), 1)
    for patience in PATIENCE:
        items = bus.session("s").follow()
        with anyio.move_on_after(patience):
            await anext(items)
            await anext(items)
        del items
    await eventually(lambda: hub.followed == {})


async def test_two_tasks_cannot_iterate_at_once_and_a_follower_fails_once_and_then_ends(
    session: Session, shared_valkey: RealServer
) -> None:
    async with aclosing(session.follow()) as items:
        first = asyncio.ensure_future(anext(items))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="already running"):
            await anext(items)
        await filled(session, 1)
        assert (await first).position == 1
        waiting = asyncio.ensure_future(anext(items))
        await session.erase()
        with pytest.raises(Exception, match="erased"):
            await waiting
        assert [item async for item in items] == []


async def test_the_states_of_a_projection_go_on_after_a_time_limit(session: Session, shared_valkey: RealServer) -> None:
    await filled(session, 3)
    positions: list[int] = []
    async with aclosing(follow_projection(session, TURNS)) as states:
        for count in (3, 4, 5):
            while not positions or positions[-1] < count:
                with anyio.move_on_after(0.001):
                    positions.append((await anext(states)).position)
            await filled(session, 1)
    assert positions == [3, 4, 5]


async def test_dead_letters_are_read_on_after_a_time_limit(bus: Bus, shared_valkey: RealServer) -> None:
    await filled(bus.session("s"), 1)
    async with bus.consumer("g", "c") as consumer:
        for number in range(3):
            await bus.session(f"s{number}").publish(said("a"))
            for work in await consumer.fetch(8):
                await consumer.dead_letter(work, reason="broken")
    letters = bus.dead_letters("g").read()
    found: list[object] = []
    expected = await bus.dead_letters("g").count()
    while len(found) < expected:
        with anyio.move_on_after(0.0005):
            found.append(await anext(letters))
    assert [letter async for letter in letters] == []
    assert len({*map(str, found)}) == expected > 0


async def test_an_iterator_whose_task_was_cancelled_says_that_it_is_closed() -> None:
    @resumable
    async def endless() -> AsyncGenerator[int, None]:
        await asyncio.Event().wait()
        yield 1

    items = endless()
    with anyio.move_on_after(0.01):
        await anext(items)
    (task,) = asyncio.all_tasks() - {asyncio.current_task()}
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await anext(items)
    with pytest.raises(Exception, match="the iterator is closed"):
        await anext(items)


LLM = frozenset({Lane.LLM})


@pytest.mark.parametrize("others", [0, HubBounds().direct_sessions], ids=["direct", "by indexes"])
@pytest.mark.parametrize(("lanes", "wanted"), [(ALL_LANES, "abcX"), (LLM, "acX")], ids=["both lanes", "one lane"])
@pytest.mark.parametrize("is_quiet", [True, False], ids=["quiet", "appended to"])
async def test_follower_of_a_session_that_becomes_a_fork_gets_the_shared_entries(
    bus: Bus, other: Bus, valkey: RealServer, *, lanes: frozenset[Lane], wanted: str, others: int, is_quiet: bool
) -> None:
    async with background() as tasks:
        await other.session("parent").publish(said("a"), told("b"), said("c"), told("d"))
        for number in range(others):
            Follower(bus.session(f"other{number}")).start(tasks)
        follower = Follower(bus.session("child"), lanes=lanes).start(tasks)
        hub = bus._shards.of("child").hub  # pyright: ignore[reportPrivateUsage]
        await eventually(lambda: "child" in hub.followed)
        child = await other.session("parent").fork(3, id="child")
        if is_quiet:
            await eventually(follower.has(len(wanted) - 1))
        await child.publish(said("X"))
        await eventually(follower.has(len(wanted)))
        assert "".join(follower.words) == wanted


COUNT = 40


class Held(Follower):
    """A follower that takes one entry and then waits until it is let go."""

    def __init__(self, session: Session, buffer_bytes: int) -> None:
        super().__init__(session)
        self.go, self._buffer_bytes = anyio.Event(), buffer_bytes

    async def run(self) -> None:
        try:
            async with aclosing(self.session.follow(buffer_bytes=self._buffer_bytes)) as entries:
                async for envelope in entries:
                    self.seen.append(envelope)
                    await self.go.wait()
        except Exception as error:  # noqa: BLE001  the outcome is what is looked at
            self.error = error


def held(session: Session, tasks: TaskGroup, *, buffer_bytes: int = 1_000_000) -> Held:
    follower = Held(session, buffer_bytes)
    follower.start(tasks)
    return follower


def bound_page(server: RealServer, entries: int) -> None:
    server.bounds = replace(Bounds(), log=LogBounds(page_entries=entries))


async def outlive(server: RealServer, follower: Held) -> None:
    """Kill the server, let the follower go, and start the server again. The follower then gets everything once.

    Ten failed calls in between give the follower time to find the server gone: one try of a follower makes fewer.
    """
    server.kill()
    follower.go.set()
    for _ in range(10):
        with pytest.raises(Unavailable):
            await follower.session.head()
    server.start()
    await eventually(follower.has(COUNT))
    assert follower.error is None
    assert_gap_free(follower.seen)


async def test_the_server_dies_while_a_follower_reads_stored_entries(process: RealServer) -> None:
    bound_page(process, 3)
    async with process.bus() as bus, background() as tasks:
        session = bus.session("s")
        for _ in range(COUNT):
            await session.publish(said("x"))
        follower = held(session, tasks)
        await eventually(follower.has(1))
        await outlive(process, follower)


async def test_the_server_dies_before_a_slow_follower_reads_again(session: Session, process: RealServer) -> None:
    async with background() as tasks:
        await session.publish(said("x"))
        slow, fast = held(session, tasks, buffer_bytes=100), Follower(session).start(tasks)
        await eventually(slow.has(1))
        for _ in range(COUNT - 1):
            await session.publish(said("x"))
        await eventually(fast.has(COUNT))
        await outlive(process, slow)


async def test_a_refusal_that_waiting_does_not_end_is_raised(valkey: RealServer) -> None:
    bound_page(valkey, 3)
    async with valkey.bus() as bus, anyio.create_task_group() as tasks:
        session = bus.session("s")
        for _ in range(COUNT):
            await session.publish(said("x"))
        follower = held(session, tasks)
        await eventually(follower.has(1))
        valkey.do("SET", Keys().lane("s", Lane.LLM), "x")
        follower.go.set()
        await eventually(lambda: follower.error is not None)
        assert isinstance(follower.error, Refused)
        assert follower.error.code == "WRONGTYPE"


MANY = 40
"""More than are read from their own streams."""


@pytest.mark.parametrize("lanes", [{Lane.LLM}, {Lane.EXTENSION}, {*Lane}], ids=["llm", "extension", "both"])
@pytest.mark.cluster("each bucket has a connection of its own")
async def test_a_follower_gets_entries_whose_notices_were_lost(server: AnyServer, lanes: set[Lane]) -> None:
    heard: dict[str, list[int]] = {}
    wanted = [position for position, lane in ((1, Lane.LLM), (2, Lane.EXTENSION)) if lane in lanes]

    async def follow(session: Session) -> None:
        positions = heard[session.id] = []
        async for envelope in session.follow(lanes=lanes):
            positions += [envelope.position]

    bound_hub(server, block_seconds=0.2)  # heads are looked at after each wait
    lossy = Bounds(work=WorkBounds(notices=0))
    async with server.bus() as bus, server.bus(bounds=lossy) as other, background() as tasks:
        names = [f"s{number}" for number in range(MANY)]
        for name in names:
            tasks.start_soon(follow, bus.session(name))
        await eventually(lambda: len(heard) == MANY)
        for name in names:
            await other.session(name).publish(said("x"), told("y"))
        await eventually(lambda: all(positions == wanted for positions in heard.values()))
