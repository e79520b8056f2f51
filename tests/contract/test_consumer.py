"""The promises of a consumer group to workers, on every server."""

from contextlib import suppress
from functools import partial

import anyio
import pytest

from lanebus import Bus, Unavailable
from lanebus.bus.wire import Keys
from lanebus.groups import Consumer
from tests.support.log.groups import pending, take_all, take_one, works
from tests.support.log.said import said, told
from tests.support.servers.proxy import proxy
from tests.support.servers.real import AnyServer, RealServer, eventually, shortly


async def take(consumer: Consumer, count: int, *, ack: bool = True) -> list[str]:
    """Return the sessions fetched next, within a bounded time."""
    sessions: list[str] = []
    work = works(consumer)
    async with shortly():
        async for item in work:
            sessions.append(item.session)
            if ack:
                await consumer.ack(item)
            if len(sessions) == count:
                break
    await work.aclose()
    return sessions


async def wake(bus: Bus, *names: str) -> None:
    for name in names:
        await bus.session(name).publish(said("x"))


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_a_user_message_wakes_workers_and_other_messages_do_not_by_default(bus: Bus) -> None:
    await bus.session("quiet").publish(told("x"))
    await bus.session("hushed").publish(said("x"), wake=False)
    await bus.session("woken").publish(told("x"), wake=True)
    await wake(bus, "user")
    assert sorted(await take(bus.consumer("g", "c"), 2)) == ["user", "woken"]


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_each_session_goes_to_one_consumer(server: AnyServer) -> None:
    names = [f"s{index}" for index in range(40)]
    heard: list[str] = []

    async def serve(consumer: Consumer) -> None:
        async for item in works(consumer):
            heard.append(item.session)
            await consumer.ack(item)

    async with server.bus() as bus, anyio.create_task_group() as tasks:
        for index in range(3):
            tasks.start_soon(serve, bus.consumer("g", f"c{index}"))
        await wake(bus, *names)
        await eventually(lambda: len(heard) >= len(names))
        assert sorted(heard) == sorted(names)
        tasks.cancel_scope.cancel()


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_own_unfinished_work_comes_before_new_work_however_much_it_is(bus: Bus) -> None:
    names = [f"s{number}" for number in range(150)]
    await wake(bus, *names)
    await take(bus.consumer("g", "c"), 150, ack=False)
    await wake(bus, "new")
    found = await take(bus.consumer("g", "c"), 151)
    assert (sorted(found[:-1]), found[-1]) == (sorted(names), "new")


@pytest.mark.full
@pytest.mark.cluster("each bucket has a connection of its own")
async def test_work_of_a_dead_consumer_is_found_among_much_pending_work(server: AnyServer) -> None:
    names = [f"s{number}" for number in range(700)]
    async with server.bus() as bus, bus.consumer("g", "other", heartbeat=600) as other:
        await wake(bus, *names)
        await take_all(other, len(names))
        await other.heartbeat()
        await wake(bus, "left")
        assert await take(bus.consumer("g", "dead", heartbeat=0.05), 1, ack=False) == ["left"]
        assert await take(bus.consumer("g", "alive", heartbeat=0.05), 1) == ["left"]
        assert len(pending(server)) == len(names)


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_work_of_a_dead_consumer_is_claimed_while_new_work_never_ends(bus: Bus) -> None:
    await wake(bus, "left")
    await take(bus.consumer("g", "dead", heartbeat=0.05), 1, ack=False)
    heard: list[str] = []

    async def serve() -> None:
        consumer = bus.consumer("g", "alive", heartbeat=0.05)
        async for item in works(consumer):
            heard.append(item.session)
            await consumer.ack(item)

    async def speak() -> None:
        while True:
            await wake(bus, "busy")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        tasks.start_soon(speak)
        await eventually(lambda: "left" in heard)
        tasks.cancel_scope.cancel()


@pytest.mark.cluster("each bucket has a connection of its own")
@pytest.mark.sentinel("a failover may lose a group")
async def test_a_deleted_group_is_created_again(server: AnyServer) -> None:
    heard: list[str] = []

    async def serve(bus: Bus) -> None:
        consumer = bus.consumer("g", "c")
        async for item in works(consumer):
            heard.append(item.session)
            await consumer.ack(item)

    async with anyio.create_task_group() as tasks, server.bus() as bus:
        tasks.start_soon(serve, bus)
        await wake(bus, "a")
        await eventually(lambda: heard == ["a"])
        server.do("FLUSHALL")
        await wake(bus, "b")
        await eventually(lambda: "b" in heard)
        server.do("DEL", *Keys().group_work(Keys().bucket("c"), "agent", "g"))
        await wake(bus, "c")
        await eventually(lambda: "c" in heard)
        tasks.cancel_scope.cancel()


async def test_a_consumer_waits_for_a_lost_server(process: RealServer) -> None:
    heard: list[str] = []

    async def serve(bus: Bus) -> None:
        consumer = bus.consumer("g", "c")
        async for item in works(consumer):
            heard.append(item.session)
            with suppress(Unavailable):  # it comes again
                await consumer.ack(item)

    async with proxy(process.socket) as way, Bus.open(way.url) as bus, anyio.create_task_group() as tasks:
        tasks.start_soon(serve, bus)
        for round_ in range(4):
            await wake(bus, f"s{round_}")
            await eventually(partial(heard.__contains__, f"s{round_}"))
            process.kill()
            process.start()
            way.cut()
        tasks.cancel_scope.cancel()


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_heartbeats_are_sent_while_another_task_fetches(bus: Bus, consumer: Consumer) -> None:
    await bus.session("s").publish(said("x"))
    with anyio.fail_after(120):
        await consumer.ack(await take_one(consumer))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consumer.fetch, 100)
            for _ in range(20):
                await consumer.heartbeat()
            await bus.session("s").publish(said("y"))
