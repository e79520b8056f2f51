"""A group that went goes on where it was; one that cannot know begins at the beginning. No bell is missed."""

from typing import cast

import anyio
import pytest

from bus import Bus, Consumer, Work
from bus.keys import Keys
from tests.support.log.groups import number_of, pending, ring, take_all, take_one, taking_nothing
from tests.support.servers.clusters import RealCluster
from tests.support.servers.real import AnyServer, RealServer, blocked, eventually

INDEX = Keys().index(Keys().bucket("a"))
GROUPS = Keys().groups(Keys().bucket("a"))


def noted(server: AnyServer) -> tuple[int, int]:
    """The place that is noted of the group: an id as a number, and the entries that the index had by then."""
    found = server.do("HGET", GROUPS, "g")
    place, _, entries = str(found).partition(" ")
    return (number_of(place), int(entries)) if found else (-1, 0)


async def handled(bus: Bus, server: AnyServer, *, bells: int) -> None:
    """A group that has done all there was, and whose place is noted as the last entry: not as it was in between."""
    async with bus.consumer("g", "first") as consumer:
        await ring(bus, *["a"] * bells)
        works = await take_all(consumer, bells)
        await consumer.ack(*works)
    async with bus.consumer("g", "second") as consumer, taking_nothing(consumer):
        await eventually(lambda: noted(server) == (number_of(works[-1].pointer), bells))


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_a_group_that_was_destroyed_goes_on_where_it_was(server: AnyServer) -> None:
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        await handled(bus, server, bells=5)
        server.do("XGROUP", "DESTROY", INDEX, "g")
        await ring(bus, "a")
        assert (await take_one(consumer)).position == 6
        await ring(bus, "a")
        assert (await take_one(consumer)).position == 7  # and nothing of before comes between


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_what_was_pending_as_a_group_was_destroyed_comes_again(server: AnyServer) -> None:
    async with server.bus() as bus, bus.consumer("g", "dead") as dead:
        await handled(bus, server, bells=3)
        await ring(bus, "a", "a", "a")
        works = await take_all(dead, 3)
        await dead.ack(works[0], works[2])
        async with bus.consumer("g", "c") as consumer:
            async with taking_nothing(consumer):
                await eventually(lambda: noted(server) == (number_of(works[1].pointer) - 1, 6))
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
        waiting = Keys().buckets if isinstance(server, RealCluster) else 1
        await eventually(lambda: blocked(server) >= waiting)  # woken by what follows
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
            async with taking_nothing(other):
                await eventually(lambda: noted(server)[0] == number_of(first_pending(works, server)) - 1)


def first_pending(works: list[Work], server: AnyServer) -> str:
    """The first of a consumer's pointers that are pending."""
    return next(work.pointer for work in works if (work.pointer, "c") in pending(server))


# --- consumers that are gone --------------------------------------------------------------------------------------


def consumers(server: AnyServer) -> list[str]:
    found = cast("list[list[str]]", server.do("XINFO", "CONSUMERS", INDEX, "g"))
    return sorted(each[1] for each in found)


def idle_seconds(server: AnyServer, name: str) -> float:
    """How long a consumer has read nothing."""
    for each in cast("list[list[str | int]]", server.do("XINFO", "CONSUMERS", INDEX, "g")):
        fields = dict(zip(each[::2], each[1::2], strict=True))
        if fields["name"] == name:
            return int(fields["idle"]) / 1000
    raise AssertionError(name)


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
        await eventually(lambda: idle_seconds(server, "gone") > 0.1)
        async with bus.consumer("g", "alive") as alive:
            async with taking_nothing(alive):
                await eventually(lambda: "alive" in consumers(server) or noted(server)[1] == 2)
            assert "gone" in consumers(server)  # it still has one
            async with bus.consumer("g", "heir", heartbeat=0.05) as heir:
                assert (await take_one(heir)).position == 2
                await heir.keep()
                await alive.close()
                async with taking_nothing(alive):
                    await eventually(lambda: "gone" not in consumers(server))
                assert [name for _, name in pending(server)] == ["heir"]


async def test_a_consumer_that_is_removed_while_it_waits_is_given_what_comes(
    one: RealServer, monkeypatch: pytest.MonkeyPatch
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

    async with one.bus() as bus, anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(serve, bus.consumer("g", f"c{number}"))
        for _ in range(200):
            await ring(bus, "a")
        await eventually(lambda: len(heard) >= 200)
        assert sorted(heard) == list(range(1, 201))
        tasks.cancel_scope.cancel()
