"""A group that lost its state starts from the beginning, and one that lost wake-ups finds its work. No work is lost."""

import anyio
import pytest

from lanebus import Bus
from lanebus.bus.wire import Keys
from lanebus.groups import Consumer
from tests.support.log.groups import pending, take_all, take_one, wake
from tests.support.servers.real import AnyServer, eventually

BUCKET = Keys().bucket("a")
WAKE_UPS, GROUPS = Keys().wake_ups(BUCKET), Keys().groups(BUCKET)


async def nothing_comes(consumer: Consumer) -> None:
    """Check that no work comes, with a fetch that is long enough for a full sweep."""
    with anyio.move_on_after(0.3) as scope:
        found = await consumer.fetch(100)
        raise AssertionError(found)
    assert scope.cancelled_caught


async def handled(bus: Bus, count: int) -> None:
    """Make a group that has handled `count` entries of one session."""
    async with bus.consumer("g", "first") as consumer:
        await wake(bus, *["a"] * count)
        await consumer.ack(await take_one(consumer))
    async with bus.consumer("g", "second") as consumer:
        await nothing_comes(consumer)


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_a_group_whose_keys_were_deleted_starts_from_the_beginning(server: AnyServer) -> None:
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        await handled(bus, 5)
        server.do("DEL", *Keys().group_work(BUCKET, "agent", "g")[3:])
        work = await take_one(consumer)
        assert (work.session, work.position) == ("a", 5)


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_work_pending_when_a_groups_keys_were_deleted_is_delivered_again(bus: Bus, server: AnyServer) -> None:
    async with bus.consumer("g", "dead") as dead:
        await wake(bus, "a", "b", "c")
        await take_all(dead, 3)
        async with bus.consumer("g", "c") as consumer:
            await nothing_comes(consumer)
            for bucket in range(Keys().buckets):
                server.do("DEL", *Keys().group_work(bucket, "agent", "g")[3:])
            assert sorted(work.session for work in await take_all(consumer, 3)) == ["a", "b", "c"]


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_a_group_deleted_under_a_waiting_consumer_is_created_again(server: AnyServer) -> None:
    async with server.bus() as bus, bus.consumer("g", "c") as consumer, anyio.create_task_group() as tasks:
        await handled(bus, 2)
        found: list[int] = []

        async def serve() -> None:
            found.extend([(await take_one(consumer)).position])

        tasks.start_soon(serve)
        await anyio.wait_all_tasks_blocked()
        server.do("DEL", GROUPS)
        await wake(bus, "a")
        await eventually(lambda: bool(found))
        assert found[0] in {2, 3}


@pytest.mark.parametrize("place", ["9999999999999999 0", "none", "-1 0"])
@pytest.mark.cluster("each bucket has a connection of its own")
async def test_a_group_with_an_invalid_position_starts_from_the_beginning(server: AnyServer, place: str) -> None:
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        await handled(bus, 3)
        server.do("HSET", GROUPS, "agent:g", place)
        assert (await take_one(consumer)).position == 3


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_after_the_order_of_work_was_deleted_later_wake_ups_are_delivered(server: AnyServer) -> None:
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        await handled(bus, 5)
        server.do("DEL", *Keys().work(BUCKET, "agent"))
        await wake(bus, "a")
        assert (await take_one(consumer)).position == 6


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_a_server_that_was_emptied_is_worked_on_from_the_beginning(server: AnyServer) -> None:
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        await handled(bus, 5)
        server.do("FLUSHALL")
        await wake(bus, "b", "c")
        assert sorted(work.session for work in await take_all(consumer, 2)) == ["b", "c"]


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_work_of_a_consumer_without_a_stored_heartbeat_is_claimed(bus: Bus, server: AnyServer) -> None:
    """A server may lose the heartbeats of a consumer that then dies."""
    async with bus.consumer("g", "dead", heartbeat=0.05) as dead:
        await wake(bus, "a")
        await take_one(dead)
    server.do("DEL", Keys().consumers("g"))
    async with bus.consumer("g", "alive", heartbeat=0.05) as alive:
        work = await take_one(alive)
        assert (work.session, work.attempt) == ("a", 2)
        assert pending(server) == [("a", "alive")]
