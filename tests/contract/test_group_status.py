"""The status of groups, and which consumers count as silent."""

import anyio
import pytest

from lanebus import Bus
from lanebus.bounds import WorkBounds
from lanebus.bus import Bounds
from lanebus.bus.wire import Keys
from lanebus.groups import Consumer
from tests.support.agent.agents import until
from tests.support.log.groups import take_all, take_one, wake
from tests.support.log.said import told
from tests.support.servers.real import AnyServer, eventually, shortly


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_a_group_that_does_not_exist_is_all_zeros(bus: Bus) -> None:
    status = await bus.group_status("none")
    assert (status.consumers, status.lag, status.pending, status.retries, status.dead) == ((), 0, 0, 0, 0)
    assert await bus.groups() == ()


@pytest.mark.cluster("smoke test of group_status")
@pytest.mark.sentinel("smoke test of group_status")
async def test_the_status_of_a_group_has_its_consumers_their_sessions_and_waiting_work(server: AnyServer) -> None:
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
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


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_lag_is_correct_even_if_wake_ups_were_deleted(bus: Bus, consumer: Consumer, server: AnyServer) -> None:
    await wake(bus, "a", "b")
    await consumer.ack(*await take_all(consumer, 2))
    await wake(bus, "a", "b")
    for name in ("a", "b"):
        server.do("DEL", Keys().wake_ups(Keys().bucket(name)))
    assert (await bus.group_status("g")).lag == 2


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_a_lag_beyond_the_counted_number_is_marked_as_higher(server: AnyServer) -> None:
    async with server.bus(bounds=Bounds(work=WorkBounds(lag_sessions=3))) as bus, bus.consumer("g", "c") as consumer:
        await wake(bus, "a")
        await consumer.ack(await take_one(consumer))
        bucket = Keys().bucket("a")
        names = [name for number in range(2_000) if Keys().bucket(name := f"s{number}") == bucket]
        await wake(bus, *names[:4])
        status = await bus.group_status("g")
        assert (status.lag, status.is_lag_more) == (3, True)


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_a_group_without_consumers_for_a_week_is_reported_as_away(bus: Bus, server: AnyServer) -> None:
    await _meet(bus, "c")
    status = await bus.group_status("g")
    assert status.seen is not None
    assert not status.is_away
    server.do("HSET", Keys().consumers("g"), ":seen", "1")
    assert (await bus.group_status("g")).is_away


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_work_that_was_fetched_again_is_pending_and_not_a_retry(bus: Bus, consumer: Consumer) -> None:
    await wake(bus, "a")
    await consumer.nack(await take_one(consumer), delay=0)
    await take_one(consumer)
    status = await bus.group_status("g")
    assert (status.retries, status.next_retry) == (0, None)
    assert status.consumers[0].sessions == ("a",)


@pytest.mark.cluster("each bucket has a connection of its own")
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


@pytest.mark.cluster("each bucket has a connection of its own")
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

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve, "c1")
            tasks.start_soon(serve, "c2")
            await eventually(lambda: heard == set(names))
            tasks.cancel_scope.cancel()


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_a_waiting_consumer_writes_only_its_heartbeats(bus: Bus, consumer: Consumer, server: AnyServer) -> None:
    await wake(bus, "a")
    await consumer.ack(await take_one(consumer))
    before = _keys(server)
    with anyio.move_on_after(0.6):
        await consumer.fetch(1)
    async with shortly():
        assert set(_keys(server)) == set(before)


@pytest.mark.cluster("each bucket has a connection of its own")
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
