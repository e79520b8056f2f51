"""Following, on every server: every entry comes once and in order, whatever happens to the connection."""

from collections.abc import Callable

import anyio
import pytest
from anyio.abc import TaskGroup

from lanebus import ALL_LANES, START, Bounds, Bus, Closed, Cursor, Delta, Envelope, Lane, Notice, Session
from lanebus.bounds import ConnectionBounds, HubBounds
from lanebus.bus.wire import Keys
from lanebus.errors import LogRolledBack, NoLanes
from tests.support.log.following import Subscriber
from tests.support.log.said import assert_gap_free, said, told, word
from tests.support.servers.bounded import bound_hub
from tests.support.servers.proxy import proxy
from tests.support.servers.real import AnyServer, RealServer, blocked, eventually, shortly


class Follower:
    """A subscriber that records what it gets."""

    def __init__(
        self, session: Session, *, after: Cursor = START, live: bool = False, lanes: frozenset[Lane] = ALL_LANES
    ):
        self.session, self.after, self.live, self.lanes = session, after, live, lanes
        self.seen: list[Envelope] = []
        self.error: Exception | None = None

    async def run(self) -> None:
        try:
            async for envelope in self.session.follow(after=self.after, live=self.live, lanes=self.lanes):
                self.seen.append(envelope)
        except Exception as error:  # noqa: BLE001  the outcome is what is looked at
            self.error = error

    def start(self, tasks: TaskGroup) -> "Follower":
        tasks.start_soon(self.run)
        return self

    @property
    def words(self) -> list[str]:
        return [e.message.delta if isinstance(e.message, Delta) else word(e) for e in self.seen]

    def has(self, count: int) -> Callable[[], bool]:
        return lambda: len(self.seen) >= count or self.error is not None

    @property
    def positions(self) -> list[int]:
        return [envelope.position for envelope in self.seen]


def piece(text: str) -> Delta:
    return Delta(kind="text", message_id="m", delta=text)


@pytest.mark.full
@pytest.mark.cluster("the hub reads each node on a connection of its own")
async def test_crossing_the_limit_of_the_hub_in_both_ways_loses_nothing(server: AnyServer) -> None:
    bound_hub(server, direct_sessions=3)
    async with server.bus() as bus, anyio.create_task_group() as tasks:
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
        tasks.cancel_scope.cancel()


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
    async with server.bus() as bus, server.bus() as other, anyio.create_task_group() as tasks:
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
        tasks.cancel_scope.cancel()


async def test_a_follower_raises_when_another_log_is_longer_already(bus: Bus, other: Bus, server: AnyServer) -> None:
    async with anyio.create_task_group() as tasks:
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
        tasks.cancel_scope.cancel()


async def test_a_connection_that_died_silently_is_replaced(one: RealServer) -> None:
    bounds = Bounds(  # what is tested: each time-out is passed once
        hub=HubBounds(block_seconds=0.1, silence_seconds=1.5), connection=ConnectionBounds(answer_seconds=1.5)
    )
    async with proxy(one.socket) as way, Bus.open(way.url, bounds=bounds) as bus, anyio.create_task_group() as tasks:
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
        tasks.cancel_scope.cancel()


async def test_following_no_lane_is_refused_and_affects_no_other_follower(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus, anyio.create_task_group() as tasks:
        session = bus.session("s")
        nothing = Follower(bus.session("t"), lanes=frozenset()).start(tasks)
        follower = Follower(session).start(tasks)
        await session.publish(said("0"))
        await bus.session("t").publish(said("0"))
        await eventually(follower.has(1))
        await eventually(lambda: nothing.error is not None)
        assert isinstance(nothing.error, NoLanes)
        assert nothing.seen == []
        tasks.cancel_scope.cancel()


@pytest.mark.cluster("one read has the sessions of one node")
async def test_a_stream_of_a_wrong_type_ends_only_its_own_followers(server: AnyServer) -> None:
    bound_hub(
        server, direct_sessions=32
    )  # no notice announces that a foreign client replaced a key; only a read shows it
    async with server.bus() as bus, anyio.create_task_group() as tasks:
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
        tasks.cancel_scope.cancel()


async def test_an_error_of_a_direct_receiver_ends_only_its_own_follower(shared_valkey: RealServer) -> None:
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

    async with shared_valkey.bus() as bus, anyio.create_task_group() as tasks, shortly():
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
        tasks.cancel_scope.cancel()
