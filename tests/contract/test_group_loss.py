"""A group that went goes on where it was; one that cannot know begins at the beginning. No bell is missed."""

from typing import cast

import anyio
import pytest

from bus import Bus, Consumer
from bus.keys import Keys
from tests.support.log.groups import pending, ring, take_all, take_one
from tests.support.servers.real import AnyServer, RealServer, eventually

INDEX = Keys().index(Keys().bucket("a"))
GROUPS = Keys().groups(Keys().bucket("a"))


async def nothing_comes(consumer: Consumer) -> None:
    """Look through everything, and note how far the group is."""
    with anyio.move_on_after(0.3) as scope:
        found = await consumer.take(100)
        raise AssertionError(found)
    assert scope.cancelled_caught


async def handled(bus: Bus, server: AnyServer, *, bells: int) -> None:
    """A group that has done all there was, and whose place is noted."""
    async with bus.consumer("g", "first") as consumer:
        await ring(bus, *["a"] * bells)
        await consumer.ack(*await take_all(consumer, bells))
    async with bus.consumer("g", "second") as consumer:
        await nothing_comes(consumer)
    assert str(server.do("HGET", GROUPS, "g")).endswith(f" {bells}")


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_a_group_that_was_destroyed_goes_on_where_it_was(server: AnyServer) -> None:
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        await handled(bus, server, bells=5)
        server.do("XGROUP", "DESTROY", INDEX, "g")
        await ring(bus, "a")
        assert (await take_one(consumer)).position == 6
        await nothing_comes(consumer)


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_what_was_pending_as_a_group_was_destroyed_comes_again(server: AnyServer) -> None:
    async with server.bus() as bus, bus.consumer("g", "dead") as dead:
        await handled(bus, server, bells=3)
        await ring(bus, "a", "a", "a")
        works = await take_all(dead, 3)
        await dead.ack(works[0], works[2])
        async with bus.consumer("g", "c") as consumer:
            await nothing_comes(consumer)
            server.do("XGROUP", "DESTROY", INDEX, "g")
            assert [work.position for work in await take_all(consumer, 2)] == [5, 6]


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_a_group_that_went_under_a_waiting_consumer_is_made_again(server: AnyServer) -> None:
    async with server.bus() as bus, bus.consumer("g", "c") as consumer, anyio.create_task_group() as tasks:
        await handled(bus, server, bells=2)
        found: list[int] = []

        async def serve() -> None:
            found.extend([(await take_one(consumer)).position])

        tasks.start_soon(serve)
        await anyio.sleep(0.1)  # let it block, to be woken by what follows
        server.do("XGROUP", "DESTROY", INDEX, "g")
        await ring(bus, "a")
        await eventually(lambda: bool(found))
        assert found == [3]


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_of_an_index_that_was_deleted_all_that_is_new_comes(server: AnyServer) -> None:
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        await handled(bus, server, bells=5)
        server.do("DEL", INDEX)
        await ring(bus, "a")
        assert (await take_one(consumer)).position == 6


@pytest.mark.parametrize("place", ["9999999999999-0 5", "1-0 999", "none"])
async def test_where_the_index_went_back_the_group_begins_at_the_beginning(server: AnyServer, place: str) -> None:
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        await handled(bus, server, bells=3)
        server.do("HSET", GROUPS, "g", place)
        server.do("XGROUP", "DESTROY", INDEX, "g")
        await ring(bus, "a")
        assert [work.position for work in await take_all(consumer, 4)] == [1, 2, 3, 4]


async def test_an_index_that_was_made_anew_and_grew_is_not_taken_for_the_old_one(server: AnyServer) -> None:
    """Its clock may have gone back, too."""
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        await handled(bus, server, bells=5)
        old = cast("list[list[str]]", server.do("XRANGE", INDEX, "-", "+", "COUNT", "1"))
        server.do("DEL", INDEX)
        server.do("XADD", INDEX, f"{int(old[0][0].split('-')[0]) - 60_000}-0", "s", "a", "z", "5", "w", "1")
        await ring(bus, "a")
        assert [work.position for work in await take_all(consumer, 2)] == [5, 6]


@pytest.mark.cluster("each bucket has a connection of its own")
@pytest.mark.sentinel("a failover may empty the index")
async def test_a_server_that_was_emptied_is_worked_on_from_the_beginning(server: AnyServer) -> None:
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        await handled(bus, server, bells=5)
        server.do("FLUSHALL")
        await ring(bus, "b", "c")
        assert sorted(work.session for work in await take_all(consumer, 2)) == ["b", "c"]


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_the_place_that_is_noted_is_never_behind_what_is_pending(server: AnyServer) -> None:
    async with server.bus() as bus, bus.consumer("g", "c") as consumer, bus.consumer("g", "other") as other:
        await ring(bus, *["a"] * 10)
        works = await take_all(consumer, 10)
        for work in (works[9], works[4], works[0], works[1]):
            await consumer.ack(work)
            await other.close()
            await nothing_comes(other)
            place = str(server.do("HGET", GROUPS, "g")).split(" ")[0]
            first = min(work.pointer for work in works if (work.pointer, "c") in pending(server))
            assert _number(place) < _number(first)
            assert _number(place) >= _number(first) - 1 or first.endswith("-0")


def _number(entry_id: str) -> int:
    ms, _, number = entry_id.partition("-")
    return int(ms) * 2**64 + int(number)


# --- consumers that are gone --------------------------------------------------------------------------------------


def consumers(server: AnyServer) -> list[str]:
    found = cast("list[list[str]]", server.do("XINFO", "CONSUMERS", INDEX, "g"))
    return sorted(each[1] for each in found)


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_a_consumer_that_is_gone_for_good_is_removed_once_nothing_is_pending_with_it(
    server: AnyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bus.leftovers.FORGET_IDLE_SECONDS", 0.05)
    monkeypatch.setattr("bus.leftovers.FORGET_EVERY_SECONDS", 0.0)
    async with server.bus() as bus:
        async with bus.consumer("g", "gone") as gone:
            await ring(bus, "a", "a")
            works = await take_all(gone, 2)
            await gone.ack(works[0])
        await anyio.sleep(0.1)
        async with bus.consumer("g", "alive") as alive:
            await nothing_comes(alive)
            assert "gone" in consumers(server)  # it still has one
            async with bus.consumer("g", "heir", heartbeat=0.05) as heir:
                assert (await take_one(heir)).position == 2
                await heir.keep()
                await alive.close()
                await nothing_comes(alive)
                assert "gone" not in consumers(server)
                assert [name for _, name in pending(server)] == ["heir"]


async def test_a_consumer_that_is_removed_while_it_waits_is_given_what_comes(
    process: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is full for long, or waits where nothing comes, seems to be gone in that bucket."""
    monkeypatch.setattr("bus.leftovers.FORGET_IDLE_SECONDS", 0.0)
    monkeypatch.setattr("bus.leftovers.FORGET_EVERY_SECONDS", 0.0)
    monkeypatch.setattr("bus.leftovers.SWEEP_SECONDS", 0.0)
    heard: list[int] = []

    async def serve(consumer: Consumer) -> None:
        async with consumer:
            while True:
                works = await consumer.take(3)
                heard.extend(work.position for work in works)
                await consumer.ack(*works)

    async with process.bus() as bus, anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(serve, bus.consumer("g", f"c{number}"))
        for _ in range(200):
            await ring(bus, "a")
        await eventually(lambda: len(heard) >= 200)
        assert sorted(heard) == list(range(1, 201))
        tasks.cancel_scope.cancel()
