"""A consumer fetches as much as it has room for, and acknowledges it."""

from collections.abc import Awaitable, Callable
from typing import cast

import anyio
import pytest

from lanebus import Bus, SetupError
from lanebus.bus.groups.group_log import Fetched, GroupLog
from lanebus.bus.wire import AgentBucket, Keys
from lanebus.errors import InvalidName, Unavailable
from lanebus.groups import Consumer, Work
from tests.support.log.groups import pending, take_all, take_one, wake
from tests.support.log.said import said
from tests.support.servers.real import AnyServer, shortly

SLOTS = 7


def in_buckets(count: int) -> list[str]:
    """Return sessions in different buckets."""
    found: dict[int, str] = {}
    for number in range(10_000):
        found.setdefault(Keys().bucket(f"s{number}"), f"s{number}")
    return list(found.values())[:count]


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_fetch_returns_no_more_than_there_is_room_for(server: AnyServer) -> None:
    names = in_buckets(40)
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        await wake(bus, *names, *names)
        done: list[str] = []
        works: list[Work] = []
        while len(done) < 40:
            async with shortly():
                works += await consumer.fetch(SLOTS - len(works))
            assert not any(work.is_retry for work in works)  # none had to be handed back
            assert len(works) <= SLOTS
            assert len(pending(server)) <= SLOTS
            if len(works) == SLOTS or len(done) + len(works) == 40:
                finished = works[:4]
                done += [work.session for work in finished]
                await consumer.ack(*finished)
                works = works[4:]
            if len(done) + len(works) == 40:
                done += [work.session for work in works]
        assert sorted(done) == sorted(names)


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_sessions_woken_in_one_step_are_fetched_one_by_one(server: AnyServer) -> None:
    names = in_buckets(12)
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        taken: list[str] = []

        async def take() -> None:
            for _ in names:
                work = await take_one(consumer)
                assert len(pending(server)) <= 1
                taken.append(work.session)
                await consumer.ack(work)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take)
            for name in names:  # they wait at the same time, and share a round trip
                tasks.start_soon(wake, bus, name)
        assert sorted(taken) == sorted(names)
        assert pending(server) == []


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_without_a_fetch_nothing_becomes_pending(bus: Bus, server: AnyServer) -> None:
    async with bus.consumer("g", "c") as busy, bus.consumer("g", "other") as other:
        await wake(bus, "a")
        work = await take_one(busy)
        await wake(bus, "b", "c", "d")
        assert sorted(each.session for each in await take_all(other, 3)) == ["b", "c", "d"]
        assert (work.session, "c") in pending(server)
        assert len(pending(server)) == 4


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_a_fetch_cancelled_anywhere_loses_nothing(server: AnyServer) -> None:
    names = [f"s{number}" for number in range(60)]
    heard: list[str] = []
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        await wake(bus, *names)
        cuts = 0
        async with shortly():
            while len(heard) < len(names):
                cuts += 1
                with anyio.move_on_after(0.0005 * (cuts % 8) if cuts % 10 else 5):
                    heard += [work.session for work in await consumer.fetch(5)]
        assert sorted(heard) == sorted(names)


async def test_work_is_not_lost_if_the_server_fails_right_after_the_last_recovered_work_was_fetched(
    server: AnyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = cast("Callable[..., Awaitable[dict[AgentBucket, Fetched]]]", GroupLog.fetch)
    has_claimed, failures = False, ["sweep"]

    async def failing(*args: object, mode: str = "", **rest: object) -> dict[AgentBucket, Fetched]:
        nonlocal has_claimed
        if has_claimed and mode in failures:
            failures.remove(mode)
            raise Unavailable("the sweep after the recovery")
        found = await fetch(*args, mode=mode, **rest)
        has_claimed = has_claimed or any(each.works for each in found.values())
        return found

    async with server.bus() as bus:
        await wake(bus, "a", "b")
        async with bus.consumer("g", "c") as consumer:
            await take_all(consumer, 2)
        monkeypatch.setattr(GroupLog, "fetch", failing)
        async with bus.consumer("g", "c") as restarted:
            assert sorted(work.session for work in await take_all(restarted, 2)) == ["a", "b"]
            await wake(bus, "c")
            assert (await take_one(restarted)).session == "c"
    assert not failures


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_held_work_is_not_delivered_again(bus: Bus, consumer: Consumer) -> None:
    await wake(bus, "a", "b")
    works = await take_all(consumer, 2)
    await consumer.close()  # like a lost connection: the pending work is checked once more
    await wake(bus, "c")
    assert (await take_one(consumer)).session == "c"
    await consumer.nack(*works)
    assert {work.attempt for work in await take_all(consumer, 2)} == {1}, "it would seem to have been tried"


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_a_session_is_delivered_once_for_all_its_wake_ups(bus: Bus, consumer: Consumer) -> None:
    for _ in range(30):
        await bus.session("s").publish(said("x"))
    work = await take_one(consumer)
    assert work.position == 30
    await consumer.ack(work)
    await wake(bus, "other")
    assert (await take_one(consumer)).session == "other"


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_entries_that_wake_a_held_session_are_delivered_after_its_ack(bus: Bus, server: AnyServer) -> None:
    async with bus.consumer("g", "c") as one, bus.consumer("g", "other") as other:
        await wake(bus, "s")
        work = await take_one(one)
        await wake(bus, "s", "t")
        assert (await take_one(other)).session == "t"
        assert ("s", "c") in pending(server)
        await one.ack(work)
        again = await take_one(other)
        assert (again.session, again.position, again.attempt) == ("s", 2, 1)


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_entries_reported_as_seen_by_an_ack_are_not_delivered_again(bus: Bus) -> None:
    """Whether the new wake-up was read by then or not."""
    async with bus.consumer("g", "c") as one, bus.consumer("g", "other") as other:
        for is_passed in (False, True):
            await wake(bus, "s")
            work = await take_one(one)
            position = (await bus.session("s").publish(said("y"))).position
            if is_passed:
                await wake(bus, "t")
                await other.ack(await take_one(other))
            await one.ack(work, seen={"s": position})
            await wake(bus, "last")
            last = await take_one(one)
            assert last.session == "last"
            await one.ack(last)
        assert (await bus.group_status("g")).lag == 0


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_a_silent_consumer_does_not_get_its_claimed_work_back(bus: Bus, server: AnyServer) -> None:
    quiet, alive = bus.consumer("g", "quiet", heartbeat=0.2), bus.consumer("g", "alive", heartbeat=0.2)
    async with quiet, alive:
        await wake(bus, "a")
        work = await take_one(quiet)
        assert await quiet.heartbeat() == []
        taken = await take_one(alive)
        assert (taken.session, taken.attempt) == ("a", 2)
        assert await quiet.heartbeat(work) == [work]
        assert await quiet.heartbeat() == []
        assert pending(server) == [("a", "alive")]
        await quiet.nack(work, delay=0)
        await quiet.dead_letter(work, reason="late")
        assert pending(server) == [("a", "alive")]
        assert await bus.dead_letters("g").count() == 0


@pytest.mark.cluster("smoke test of leave")
@pytest.mark.sentinel("smoke test of leave")
async def test_a_deregistered_consumer_gives_back_its_work_and_is_forgotten(bus: Bus) -> None:
    leaving, staying = bus.consumer("g", "leaving"), bus.consumer("g", "staying")
    async with leaving, staying:
        await wake(bus, *(f"s{number}" for number in range(30)))
        works = await take_all(leaving, 30)
        await leaving.nack(works[0], delay=0)
        again = await take_one(leaving)
        assert again.attempt == 2
        assert await leaving.deregister() == 30
        taken = await take_all(staying, 30)
        assert sorted(work.session for work in taken) == sorted(work.session for work in works)
        assert {work.attempt for work in taken} == {1, 2}
        assert [each.name for each in (await bus.group_status("g")).consumers] == ["staying"]
        assert await leaving.deregister() == 0


@pytest.mark.cluster("smoke test of nack")
@pytest.mark.sentinel("smoke test of nack")
async def test_work_given_back_without_delay_is_delivered_at_once_and_not_counted(bus: Bus, server: AnyServer) -> None:
    async with bus.consumer("g", "full") as full, bus.consumer("g", "free") as free:
        await wake(bus, "a")
        await full.nack(await take_one(full))
        again = await take_one(free)
        assert (again.session, again.attempt) == ("a", 1)
        await free.ack(again)
        assert pending(server) == []
        assert (await bus.group_status("g")).retries == 0


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_invalid_names_and_numbers_are_refused(bus: Bus) -> None:
    for group, name in (("", "c"), ("a:b", "c"), ("g" * 65, "c"), ("g", ""), ("g", "a b"), ("g", "ü"), ("g", "\n")):
        with pytest.raises(InvalidName):
            bus.consumer(group, name)
    async with bus.consumer("g", "c") as consumer:
        with pytest.raises(SetupError):
            await consumer.fetch(0)
        await wake(bus, "a")
        work = await take_one(consumer)
        for number in (-1.0, float("nan"), float("inf")):
            with pytest.raises(SetupError):
                await consumer.nack(work, delay=number)
            with pytest.raises(SetupError):
                bus.consumer("g", "c", heartbeat=number)
