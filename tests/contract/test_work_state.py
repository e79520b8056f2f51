"""Work is stored state: it survives lost wake-ups, and is bounded by the number of sessions."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from lanebus import Bus, Cursor
from lanebus.bounds import WorkBounds
from lanebus.bus import Bounds
from lanebus.bus.wire import Keys
from lanebus.groups import Consumer
from tests.support.log.groups import TINY, begin, take_all, take_one, wake
from tests.support.log.said import said, told
from tests.support.servers.real import AnyServer, RealServer, shortly

BUCKET = Keys().bucket("asked")
OTHERS = [name for number in range(10_000) if Keys().bucket(name := f"o{number}") == BUCKET][:20]
"""Sessions of the same bucket."""


async def crowd(bus: Bus, rounds: int = 3) -> None:
    """Append to other sessions of the bucket more entries than its streams keep; half of them wake workers."""
    for _ in range(rounds):
        for name in OTHERS:
            await bus.session(name).publish(said("x"), wake=True)
            await bus.session(name).publish(told("x"))


async def find(consumer: Consumer, session: str = "asked") -> None:
    """Fetch and acknowledge until a session comes, within a bounded time."""
    async with shortly():
        while True:
            works = await consumer.fetch(100)
            await consumer.ack(*works)
            if any(work.session == session for work in works):
                return


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_a_message_that_waits_while_no_worker_is_up_is_given_whatever_else_is_appended(server: AnyServer) -> None:
    async with server.bus(bounds=TINY) as bus:
        await wake(bus, "asked")
        await crowd(bus)
        async with bus.consumer("g", "c") as consumer:
            await find(consumer)


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_work_of_a_dead_consumer_is_given_whatever_else_is_appended(server: AnyServer) -> None:
    async with server.bus(bounds=TINY) as bus:
        await wake(bus, "asked")
        async with bus.consumer("g", "dead", heartbeat=0.1) as dead:
            await take_one(dead)
        await crowd(bus)
        async with bus.consumer("g", "c", heartbeat=0.1) as consumer:
            await find(consumer)


@pytest.mark.full
async def test_twelve_thousand_appends_to_other_sessions_hide_nothing(valkey: RealServer) -> None:
    """With the default bounds, the stream of wake-ups has its longest length."""
    async with valkey.bus() as bus:
        await wake(bus, "asked", "held")
        async with bus.consumer("g", "dead", heartbeat=0.1) as dead:
            works = await take_all(dead, 2)
            await dead.nack(*(work for work in works if work.session == "asked"))
        for _ in range(12):
            async with anyio.create_task_group() as tasks:
                for number in range(1_000):
                    session = bus.session(OTHERS[number % len(OTHERS)])
                    tasks.start_soon(session.publish, told("x") if number % 2 else said("x"))
        found: set[str] = set()
        async with bus.consumer("g", "c", heartbeat=1.0) as consumer, shortly():
            while not {"asked", "held"} <= found:
                works = await consumer.fetch(100)
                found |= {work.session for work in works}
                await consumer.ack(*works)


@pytest.mark.parametrize("part", ["wake-ups", "notices"])
@pytest.mark.cluster("each bucket has a connection of its own")
async def test_waiting_work_is_delivered_even_if_the_wake_ups_were_deleted(server: AnyServer, part: str) -> None:
    async with server.bus(bounds=TINY) as bus:
        await wake(bus, "asked")
        server.do("DEL", Keys().wake_ups(BUCKET) if part == "wake-ups" else Keys().index(BUCKET))
        async with bus.consumer("g", "c") as consumer:
            await find(consumer)


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_a_waiting_consumer_finds_within_a_heartbeat_work_without_a_wake_up(server: AnyServer) -> None:
    lossy = Bounds(work=WorkBounds(wake_ups=0, sweep_seconds=3_600.0))
    async with server.bus(bounds=lossy) as bus, bus.consumer("g", "c", heartbeat=0.5) as consumer:
        await wake(bus, "first")
        await consumer.ack(await take_one(consumer))  # and has swept all buckets
        await wake(bus, "asked")
        assert (await take_one(consumer)).session == "asked"


async def test_a_worker_that_waits_during_its_work_is_woken_even_if_the_wake_up_was_lost(server: AnyServer) -> None:
    lossy = Bounds(work=WorkBounds(wake_ups=0, sweep_seconds=0.2))
    async with server.bus(bounds=lossy) as bus:
        session = bus.session("asked")
        position = (await session.publish(said("x"))).position
        async with shortly(), anyio.create_task_group() as tasks:
            tasks.start_soon(session.wait_for_wake_up, Cursor(position))
            await anyio.wait_all_tasks_blocked()
            await wake(bus, "asked")


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_an_entry_that_wakes_no_worker_writes_nothing_for_workers(bus: Bus, server: AnyServer) -> None:
    await wake(bus, "asked")
    before = state(server)
    for _ in range(5):
        await bus.session("asked").publish(told("x"), said("y"), wake=False)
    assert state(server) == before


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_the_order_of_work_is_bounded_by_the_sessions_there_are(bus: Bus, server: AnyServer) -> None:
    await crowd(bus)
    assert server.do("ZCARD", Keys().order(BUCKET, "agent")) == len(OTHERS)
    assert server.do("HLEN", Keys().woken(BUCKET)) == len(OTHERS) + 2
    for name in OTHERS:
        await bus.session(name).erase()
    assert server.do("ZCARD", Keys().order(BUCKET, "agent")) == 0
    assert server.do("HLEN", Keys().woken(BUCKET)) == 2


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_a_fork_begins_without_work_and_gets_its_own(server: AnyServer) -> None:
    async with server.bus(bounds=TINY) as bus, bus.consumer("g", "c") as consumer:
        await wake(bus, "asked")
        fork = await bus.session("asked").fork(id="fork")
        assert [work.session for work in await take_all(consumer, 1)] == ["asked"]
        async with nothing_more(consumer):
            pass
        await fork.publish(said("and you?"))
        work = await take_one(consumer)
        assert (work.session, work.position) == ("fork", 2)


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_a_new_group_begins_at_the_beginning_or_now(server: AnyServer) -> None:
    async with server.bus(bounds=TINY) as bus:
        await wake(bus, "asked", "b")
        async with bus.consumer("g", "c") as consumer:
            await consumer.ack(*await take_all(consumer, 2))
        async with bus.consumer("late", "c") as consumer:
            assert sorted(work.session for work in await take_all(consumer, 2)) == ["asked", "b"]
        async with bus.consumer("now", "c", start="now") as consumer:
            await begin(server, consumer, "now")
            await wake(bus, "b")
            assert (await take_one(consumer)).session == "b"


async def test_an_acknowledgement_of_a_lost_log_does_not_cover_what_came_instead(process: RealServer) -> None:
    """Positions are reused after a log lost its end; numbers of wake-ups are not."""
    async with process.bus() as bus, bus.consumer("g", "c", heartbeat=600) as consumer:
        await wake(bus, "asked")
        work = await take_one(consumer)
        process.kill()
        process.start()
        await wake(bus, "asked")  # at position 2, where the consumer may have seen another entry
        await consumer.ack(work, seen={"asked": 99})
        again = await take_one(consumer)
        assert (again.session, again.position) == ("asked", 2)
        assert again.order - work.order >= 2**32
        await consumer.ack(again, seen={"asked": 99})
        assert (await bus.group_status("g")).lag == 0


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_a_removed_group_keeps_nothing_and_leaves_the_others_alone(server: AnyServer) -> None:
    async with server.bus(bounds=TINY) as bus:
        await wake(bus, "asked", "b")
        async with bus.consumer("g", "c") as one, bus.consumer("h", "c") as other:
            works = await take_all(one, 2)
            await one.ack(works[0])
            await one.dead_letter(works[1], reason="r")
            await take_all(other, 2)
            await one.deregister()
        await bus.remove_group("g")
        assert await bus.groups() == ("h",)
        assert (await bus.group_status("g")).dead == 0
        assert not [key for key in keys_of(server) if "g" in key.split(":")[-1:] or ":group:{g}" in key]
        assert "g:g" not in str(server.do("HKEYS", Keys().head("asked")))
        assert (await bus.group_status("h")).pending == 2
        async with bus.consumer("g", "c") as consumer:
            assert len(await take_all(consumer, 2)) == 2, "it begins anew"


def keys_of(server: AnyServer) -> list[str]:
    """Return all keys that belong to work."""
    keys = [Keys().consumers(group) for group in ("g", "h")]
    for bucket in range(Keys().buckets):
        for group in ("g", "h"):
            keys += [*Keys().group_work(bucket, "agent", group), Keys().dead(bucket, group)]
    with server.talk() as say:
        return [key for key in dict.fromkeys(keys) if say("EXISTS", key)]


def state(server: AnyServer) -> list[object]:
    """Return what a bucket stores for workers."""
    order, woken, wake_ups = Keys().work(BUCKET, "agent")
    return [
        server.do("ZRANGE", order, "0", "-1", "WITHSCORES"),
        server.do("HGETALL", woken),
        server.do("XRANGE", wake_ups, "-", "+"),
    ]


@asynccontextmanager
async def nothing_more(consumer: Consumer) -> AsyncGenerator[None, None]:
    """Check that no work waits, with a fetch that is long enough for a sweep of all buckets."""
    with anyio.move_on_after(0.5) as scope:
        raise AssertionError(await consumer.fetch(100))
    assert scope.cancelled_caught
    yield
