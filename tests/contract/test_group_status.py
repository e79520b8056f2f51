"""How groups look to who looks on, and who is taken for dead."""

import anyio
import pytest

from bus import Bus
from bus.keys import Keys
from tests.support.log.groups import ring, take_all, take_one
from tests.support.log.said import told
from tests.support.servers.real import AnyServer, eventually, shortly


async def test_a_group_that_does_not_exist_is_all_zeros(server: AnyServer) -> None:
    async with server.bus() as bus:
        status = await bus.group_status("none")
        assert (status.consumers, status.lag, status.pending, status.retries, status.dead) == ((), 0, 0, 0, 0)
        assert await bus.groups() == ()


@pytest.mark.cluster("smoke test of group_status")
@pytest.mark.sentinel("smoke test of group_status")
async def test_a_group_is_shown_with_who_works_on_what_and_what_waits(server: AnyServer) -> None:
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        await ring(bus, "a", "a", "b")
        works = await take_all(consumer, 3)
        await consumer.retry(works[2], delay=600)
        await ring(bus, "x", "y", "z")
        await bus.session("x").publish(told("rings nobody"))
        dead = await take_one(consumer)
        await consumer.set_aside(dead, reason="r")
        status = await bus.group_status("g")
        assert (status.name, status.lag, status.is_lag_more, status.retries, status.dead) == ("g", 2, False, 1, 1)
        assert status.next_retry is not None
        assert 590 < status.next_retry <= 600
        (shown,) = status.consumers
        assert (shown.name, shown.is_alive, shown.heartbeat) == ("c", True, 15.0)
        assert shown.sessions == tuple(sorted({work.session for work in works[:2]}))
        assert shown.seen is not None
        assert 0 <= shown.seen < 15
        assert await bus.groups() == ("g",)


async def test_lag_is_counted_right_also_where_the_index_was_trimmed(server: AnyServer) -> None:
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        await ring(bus, *["a"] * 10)
        await consumer.ack(*await take_all(consumer, 3))
        server.do("XTRIM", Keys().index(Keys().bucket("a")), "MAXLEN", "2")
        assert (await bus.group_status("g")).lag == 2


async def test_many_that_were_not_given_are_told_to_be_more_than_were_counted(server: AnyServer) -> None:
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        await ring(bus, "a")
        await consumer.ack(await take_one(consumer))
        index = Keys().index(Keys().bucket("a"))
        with server.talk() as say:
            for _ in range(2_001):
                say("XADD", index, "*", "s", "a", "z", "1", "w", "1")
        status = await bus.group_status("g")
        assert (status.lag, status.is_lag_more) == (2_000, True)


async def test_work_that_was_taken_again_is_in_hand_and_waits_no_more(server: AnyServer) -> None:
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        await ring(bus, "a")
        await consumer.retry(await take_one(consumer), delay=0)
        await take_one(consumer)
        status = await bus.group_status("g")
        assert (status.retries, status.next_retry) == (0, None)
        assert status.consumers[0].sessions == ("a",)


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_a_silent_consumer_is_shown_as_such_and_its_work_goes_to_another(server: AnyServer) -> None:
    async with server.bus() as bus:
        dead, alive = bus.consumer("g", "dead", heartbeat=0.5), bus.consumer("g", "alive", heartbeat=0.5)
        async with dead, alive:
            await ring(bus, "a")
            await take_one(dead)
            await dead.close()
            assert (await take_one(alive)).attempt == 2
            shown = {each.name: each.is_alive for each in (await bus.group_status("g")).consumers}
            assert shown == {"dead": False, "alive": True}


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_what_many_left_is_found_as_they_fall_silent(server: AnyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only when all buckets are looked through in their turn. How soon is for the bench."""
    monkeypatch.setattr("bus.leftovers.SWEEP_SECONDS", 3_600.0)
    names = [f"s{number}" for number in range(40)]
    async with server.bus() as bus:
        async with bus.consumer("g", "dead", heartbeat=1) as dead:
            await ring(bus, *names)
            await take_all(dead, 40)
        heard: set[str] = set()

        async def serve(name: str) -> None:
            async with bus.consumer("g", name, heartbeat=1) as consumer:
                while True:
                    heard.update(work.session for work in await consumer.take(4))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve, "c1")
            tasks.start_soon(serve, "c2")
            await eventually(lambda: heard == set(names))
            tasks.cancel_scope.cancel()


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_who_only_waits_writes_nothing_but_its_signs_of_life(server: AnyServer) -> None:
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        await ring(bus, "a")
        await consumer.ack(await take_one(consumer))
        before = _keys(server)
        with anyio.move_on_after(0.6):
            await consumer.take(1)
        async with shortly():
            assert set(_keys(server)) == set(before)


async def test_signs_of_life_of_long_ago_are_forgotten(server: AnyServer) -> None:
    async with server.bus() as bus:
        await _meet(bus, "old")
        server.do("ZADD", Keys().alive("g"), "1", "old")
        await _meet(bus, "new")
        assert server.do("HKEYS", Keys().consumers("g")) == ["new"]


async def _meet(bus: Bus, name: str) -> None:
    async with bus.consumer("g", name) as consumer:
        await consumer.keep()


def _keys(server: AnyServer) -> list[str]:
    with server.talk() as say:
        names = [Keys().alive("g"), Keys().consumers("g")]
        buckets = range(Keys().buckets)
        names += [name for bucket in buckets for name in (Keys().groups(bucket), Keys().retries(bucket))]
        return [name for name in names if say("EXISTS", name)]
