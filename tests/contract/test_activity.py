"""Monitoring: the activity of a bus and the status of leases."""

from dataclasses import replace

import pytest

from lanebus import Bounds, Bus, UserMessage
from lanebus.bounds import ActivityBounds
from lanebus.bus.groups.status import Span
from lanebus.bus.wire import Keys
from lanebus.errors import InvalidSessionId
from tests.support.log.said import told
from tests.support.servers.real import AnyServer


async def test_a_first_reading_counts_and_names_no_sessions(bus: Bus) -> None:
    empty = await bus.activity()
    assert (empty.published, empty.named, empty.sessions) == (0, 0, {})
    await bus.session("a").publish(UserMessage.text("1"))
    assert (await bus.activity()).sessions == {}
    assert (await bus.activity()).published == 1


@pytest.mark.cluster("smoke test of activity")
@pytest.mark.sentinel("smoke test of activity")
async def test_a_reading_names_the_sessions_published_to_since_the_previous_one(bus: Bus) -> None:
    await bus.session("old").publish(UserMessage.text("1"))
    before = await bus.activity()
    await bus.session("a").publish(UserMessage.text("1"), told("2"))
    await bus.session("a").publish(told("3"))
    await bus.session("b").publish(told("1"))
    now = await bus.activity(before)
    assert now.sessions == {"a": Span(2, 3, 2), "b": Span(1, 1, 1)}
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


async def test_publishes_are_counted_even_if_the_index_was_trimmed(bus: Bus, server: AnyServer) -> None:
    for _ in range(5):
        await bus.session("a").publish(told("x"))
    server.do("XTRIM", Keys().index(Keys().bucket("a")), "MAXLEN", "1")
    assert (await bus.activity()).published == 5


async def test_a_foreign_pointer_names_no_session(bus: Bus, server: AnyServer) -> None:
    await bus.session("a").publish(told("1"))
    before = await bus.activity()
    with server.talk() as say:
        for session, position in (("a b", "1"), ("a", "one"), ("", "")):
            say("XADD", Keys().index(Keys().bucket("a")), "*", "s", session, "z", position)
    assert (await bus.activity(before)).sessions == {}


@pytest.mark.cluster("smoke test of lease_status")
@pytest.mark.sentinel("smoke test of lease_status")
async def test_the_status_of_a_lease_has_its_owner_and_the_time_left(bus: Bus) -> None:
    a = bus.session("a")
    await a.publish(told("1"))
    lease = await a.acquire_lease("w1.token", 30)
    assert lease is not None
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
