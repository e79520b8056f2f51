"""Monitoring: the status of groups and leases, and the activity of a bus."""

from dataclasses import replace

import anyio
import pytest

from lanebus import Bounds, Bus, UserMessage
from lanebus.bounds import ActivityBounds, WorkBounds
from lanebus.bus.wire import Keys
from lanebus.errors import InvalidSessionId
from lanebus.groups import Consumer
from tests.support.agent.agents import until
from tests.support.log.groups import held_lease, take_all, take_one, wake
from tests.support.log.said import told
from tests.support.servers.real import AnyServer, background, eventually, shortly

pytestmark = pytest.mark.cluster("each bucket has a connection of its own")


@pytest.mark.cluster("smoke test of group_status")
@pytest.mark.sentinel("smoke test of group_status")
async def test_the_status_of_a_group_has_consumers_sessions_and_waiting_work(bus: Bus, consumer: Consumer) -> None:
    await wake(bus, "a", "a", "b", "d")
    works = sorted(await take_all(consumer, 3))
    await consumer.nack(works[2], delay=600)
    await wake(bus, "x")
    dead = await take_one(consumer)
    await consumer.dead_letter(dead, reason="r")
    await wake(bus, "x", "y", "y")
    await bus.session("z").publish(told("wakes nobody"))
    status = await bus.group_status("g")
    assert (status.name, status.lag, status.is_lag_more, status.retries, status.dead) == ("g", 2, False, 1, 1)
    assert status.next_retry is not None
    assert 590 < status.next_retry <= 600
    (shown,) = status.consumers
    assert (shown.name, shown.is_alive, shown.heartbeat) == ("c", True, 15.0)
    assert (shown.sessions, status.pending) == (("a", "b"), 2)
    assert shown.seen is not None
    assert 0 <= shown.seen < 15
    assert await bus.groups() == ("g",)


async def test_lag_needs_no_wake_ups_and_is_marked_beyond_the_counted_number(server: AnyServer) -> None:
    async with server.bus(bounds=Bounds(work=WorkBounds(lag_sessions=3))) as bus, bus.consumer("g", "c") as consumer:
        status = await bus.group_status("g")
        assert (status.consumers, status.lag, status.pending, status.retries, status.dead) == ((), 0, 0, 0, 0)
        assert await bus.groups() == ()
        await wake(bus, "a", "b")
        await consumer.ack(*await take_all(consumer, 2))
        await wake(bus, "a", "b")
        for name in ("a", "b"):
            server.do("DEL", Keys().wake_ups(Keys().bucket(name)))
        assert (await bus.group_status("g")).lag == 2
        await consumer.ack(*await take_all(consumer, 2))
        bucket = Keys().bucket("a")
        await wake(bus, *[name for number in range(2_000) if Keys().bucket(name := f"s{number}") == bucket][:4])
        status = await bus.group_status("g")
        assert (status.lag, status.is_lag_more) == (3, True)


async def test_a_group_without_consumers_for_a_week_is_reported_as_away(bus: Bus, server: AnyServer) -> None:
    await _meet(bus, "c")
    status = await bus.group_status("g")
    assert status.seen is not None
    assert not status.is_away
    server.do("HSET", Keys().consumers("g"), ":seen", "1")
    assert (await bus.group_status("g")).is_away


async def test_work_that_was_fetched_again_is_pending_and_not_a_retry(bus: Bus, consumer: Consumer) -> None:
    await wake(bus, "a")
    await consumer.nack(await take_one(consumer), delay=0)
    await take_one(consumer)
    status = await bus.group_status("g")
    assert (status.retries, status.next_retry) == (0, None)
    assert status.consumers[0].sessions == ("a",)


async def test_a_silent_consumer_is_reported_as_not_alive_and_its_work_is_claimed(bus: Bus) -> None:
    dead, alive = bus.consumer("g", "dead", heartbeat=0.5), bus.consumer("g", "alive", heartbeat=0.5)
    async with dead, alive:
        await wake(bus, "a")
        await take_one(dead)
        await dead.close()
        assert (await take_one(alive)).attempt == 2

        async def is_shown() -> bool:
            await alive.heartbeat()  # on a slow machine its sign of life is soon too old
            shown = {each.name: each.is_alive for each in (await bus.group_status("g")).consumers}
            return shown == {"dead": False, "alive": True}

        await until(is_shown)


async def test_work_of_many_consumers_is_found_as_they_fall_silent(server: AnyServer) -> None:
    """Not only at the next sweep of all buckets. The bench measures how soon."""
    names = [f"s{number}" for number in range(100)]
    async with server.bus(bounds=Bounds(work=WorkBounds(sweep_seconds=3_600.0))) as bus:
        async with bus.consumer("g", "dead", heartbeat=1) as dead:
            await wake(bus, *names)
            await take_all(dead, 40)
        heard: set[str] = set()

        async def serve(name: str) -> None:
            async with bus.consumer("g", name, heartbeat=1) as consumer:
                while True:
                    heard.update(work.session for work in await consumer.fetch(4))

        async with background() as tasks:
            tasks.start_soon(serve, "c1")
            tasks.start_soon(serve, "c2")
            await eventually(lambda: heard == set(names))


async def test_a_waiting_consumer_writes_only_its_heartbeats(bus: Bus, consumer: Consumer, server: AnyServer) -> None:
    await wake(bus, "a")
    await consumer.ack(await take_one(consumer))
    before = _keys(server)
    with anyio.move_on_after(0.6):
        await consumer.fetch(1)
    async with shortly():
        assert set(_keys(server)) == set(before)


async def test_old_heartbeats_are_forgotten(bus: Bus, server: AnyServer) -> None:
    await _meet(bus, "old")
    server.do("HSET", Keys().consumers("g"), "old", "7 1 15000 0")
    await _meet(bus, "new")
    assert server.do("HKEYS", Keys().consumers("g")) == [":seen", "new"]


async def _meet(bus: Bus, name: str) -> None:
    async with bus.consumer("g", name) as consumer:
        await consumer.heartbeat()


def _keys(server: AnyServer) -> list[str]:
    with server.talk() as say:
        names = [Keys().consumers("g")]
        names += [name for bucket in range(Keys().buckets) for name in Keys().group_work(bucket, "agent", "g")]
        return [name for name in names if say("EXISTS", name)]


async def test_a_first_reading_counts_and_names_no_sessions(bus: Bus, server: AnyServer) -> None:
    empty = await bus.activity()
    assert (empty.published, empty.named, empty.sessions) == (0, 0, {})
    for _ in range(5):
        await bus.session("a").publish(told("1"))
    server.do("XTRIM", Keys().index(Keys().bucket("a")), "MAXLEN", "1")
    first = await bus.activity()
    assert (first.published, first.sessions) == (5, {})
    with server.talk() as say:
        for session, position in (("a b", "1"), ("a", "one"), ("", "")):
            say("XADD", Keys().index(Keys().bucket("a")), "*", "s", session, "z", position)
    assert (await bus.activity(first)).sessions == {}, "foreign pointers name none"


@pytest.mark.cluster("smoke test of activity")
@pytest.mark.sentinel("smoke test of activity")
async def test_a_reading_names_the_sessions_published_to_since_the_previous_one(bus: Bus) -> None:
    await bus.session("old").publish(UserMessage.text("1"))
    before = await bus.activity()
    await bus.session("a").publish(UserMessage.text("1"), told("2"))
    await bus.session("a").publish(told("3"))
    await bus.session("b").publish(told("1"))
    now = await bus.activity(before)
    assert now.sessions == {"a": (2, 3, 2), "b": (1, 1, 1)}
    assert (now.published - before.published, now.named) == (3, 3)
    assert now.time >= before.time
    assert (await bus.activity(now)).sessions == {}


@pytest.mark.cluster("the counts of several nodes are added up")
async def test_publishes_beyond_the_bound_are_counted_and_the_next_reading_begins_after_them(server: AnyServer) -> None:
    server.bounds = replace(server.bounds or Bounds(), activity=ActivityBounds(publishes=3))
    async with server.bus() as bus:
        await bus.session("a").publish(told("1"))
        before = await bus.activity()
        with server.talk() as say:
            for _ in range(8):
                say("XADD", Keys().index(Keys().bucket("a")), "*", "s", "a", "z", "1", "w", "")
        now = await bus.activity(before)
        assert (now.published - before.published, now.named) == (8, 3)
        assert (await bus.activity(now)).named == 0


@pytest.mark.cluster("smoke test of lease_status")
@pytest.mark.sentinel("smoke test of lease_status")
async def test_the_status_of_a_lease_has_its_owner_and_the_time_left(bus: Bus) -> None:
    a = bus.session("a")
    await a.publish(told("1"))
    lease = await held_lease(a, "w1.token", 30)
    await bus.session("b").publish(told("1"))
    held, free, none = await bus.lease_status(["a", "b", "none"])
    assert (held.session, held.owner, held.epoch, held.position) == ("a", "w1.token", lease.epoch, 1)
    assert held.seconds_left is not None
    assert 20 < held.seconds_left <= 30
    assert (free.owner, free.epoch, free.seconds_left, free.position) == (None, 0, None, 1)
    assert (none.owner, none.position) == (None, 0)
    await a.release_lease(lease)
    (given_back,) = await bus.lease_status(["a"])
    assert (given_back.owner, given_back.epoch, given_back.seconds_left) == (None, lease.epoch, None)


async def test_the_status_of_an_expired_lease_has_no_time_left(bus: Bus, server: AnyServer) -> None:
    await bus.session("a").acquire_lease("w1", 30)
    server.do("HSET", Keys().head("a"), "lease_until", "1")
    (lease,) = await bus.lease_status(["a"])
    assert lease.owner == "w1"
    assert lease.seconds_left is not None
    assert lease.seconds_left < 0


@pytest.mark.cluster("its sessions are on several nodes")
async def test_leases_of_many_sessions_come_in_the_requested_order(bus: Bus) -> None:
    names = [f"s{number}" for number in range(40)]
    assert [lease.session for lease in await bus.lease_status(names)] == names
    assert await bus.lease_status([]) == []
    with pytest.raises(InvalidSessionId):
        await bus.lease_status(["a b"])


async def test_monitoring_writes_nothing(bus: Bus) -> None:
    names = [name async for page in bus.inspector.key_names() for name in page]
    await bus.activity(await bus.activity())
    await bus.lease_status(["a"])
    assert sorted([name async for page in bus.inspector.key_names() for name in page]) == sorted(names)
