"""The promises of a consumer group to workers."""

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import chain
from typing import cast

import anyio
import pytest

from lanebus.bus import Bus, Consumer, Work
from lanebus.bus.groups.group_log import Fetched, GroupLog
from lanebus.bus.wire import AgentBucket, Keys
from lanebus.errors import InvalidName, SetupError, Unavailable
from tests.support.log.following import serve
from tests.support.log.groups import pending, take_all, take_one, wake, works
from tests.support.log.said import said, told
from tests.support.servers.proxy import proxy
from tests.support.servers.real import AnyServer, RealServer, background, eventually, shortly
from tests.support.suite.scale import count

pytestmark = pytest.mark.cluster("each bucket has a connection of its own")


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


async def test_a_user_message_wakes_workers_and_other_messages_do_not_by_default(bus: Bus) -> None:
    await bus.session("quiet").publish(told("x"))
    await bus.session("hushed").publish(said("x"), wake=False)
    await bus.session("woken").publish(told("x"), wake=True)
    await wake(bus, "user")
    assert sorted(await take(bus.consumer("g", "c"), 2)) == ["user", "woken"]


async def test_each_session_goes_to_one_consumer(bus: Bus) -> None:
    names = [f"s{index}" for index in range(40)]
    async with background() as tasks:
        heard = [serve(bus.consumer("g", f"c{index}"), tasks) for index in range(3)]
        await wake(bus, *names)
        await eventually(lambda: sum(map(len, heard)) >= len(names))
        assert sorted(chain.from_iterable(heard)) == sorted(names)


async def test_own_unfinished_work_comes_before_new_work_however_much_it_is(bus: Bus) -> None:
    names = [f"s{number}" for number in range(150)]
    await wake(bus, *names)
    await take(bus.consumer("g", "c"), 150, ack=False)
    await wake(bus, "new")
    found = await take(bus.consumer("g", "c"), 151)
    assert (sorted(found[:-1]), found[-1]) == (sorted(names), "new")


@pytest.mark.full
async def test_work_of_a_dead_consumer_is_found_among_much_pending_work(bus: Bus, server: AnyServer) -> None:
    names = [f"s{number}" for number in range(700)]
    async with bus.consumer("g", "other", heartbeat=600) as other:
        await wake(bus, *names)
        await take_all(other, len(names))
        await other.heartbeat()
        await wake(bus, "left")
        assert await take(bus.consumer("g", "dead", heartbeat=0.05), 1, ack=False) == ["left"]
        assert await take(bus.consumer("g", "alive", heartbeat=0.05), 1) == ["left"]
        assert len(pending(server)) == len(names)


async def test_work_of_a_dead_consumer_is_claimed_while_new_work_never_ends(bus: Bus) -> None:
    await wake(bus, "left")
    await take(bus.consumer("g", "dead", heartbeat=0.05), 1, ack=False)

    async def speak() -> None:
        while True:
            await wake(bus, "busy")

    async with background() as tasks:
        heard = serve(bus.consumer("g", "alive", heartbeat=0.05), tasks)
        tasks.start_soon(speak)
        await eventually(lambda: "left" in heard)


@pytest.mark.sentinel("a failover may lose a group")
async def test_a_deleted_group_is_created_again(bus: Bus, server: AnyServer) -> None:
    async with background() as tasks:
        heard = serve(bus.consumer("g", "c"), tasks)
        await wake(bus, "a")
        await eventually(lambda: heard == ["a"])
        server.do("FLUSHALL")
        await wake(bus, "b")
        await eventually(lambda: "b" in heard)
        server.do("DEL", *Keys().group_work(Keys().bucket("c"), "agent", "g"))
        await wake(bus, "c")
        await eventually(lambda: "c" in heard)


async def test_a_consumer_waits_for_a_lost_server(process: RealServer) -> None:
    async with proxy(process.socket) as way, Bus.open(way.url) as bus, background() as tasks:
        heard = serve(bus.consumer("g", "c"), tasks)
        for round_ in range(4):
            await wake(bus, f"s{round_}")
            await eventually(partial(heard.__contains__, f"s{round_}"))
            process.kill()
            process.start()
            way.cut()


async def test_heartbeats_are_sent_while_another_task_fetches(bus: Bus, consumer: Consumer) -> None:
    await bus.session("s").publish(said("x"))
    with anyio.fail_after(120):
        await consumer.ack(await take_one(consumer))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consumer.fetch, 100)
            for _ in range(20):
                await consumer.heartbeat()
            await bus.session("s").publish(said("y"))


SLOTS = 7


def in_buckets(count: int) -> list[str]:
    """Return sessions in different buckets."""
    found: dict[int, str] = {}
    for number in range(10_000):
        found.setdefault(Keys().bucket(f"s{number}"), f"s{number}")
    return list(found.values())[:count]


async def test_fetch_returns_no_more_than_there_is_room_for(bus: Bus, consumer: Consumer, server: AnyServer) -> None:
    names = in_buckets(40)
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


async def test_sessions_woken_in_one_step_are_fetched_singly(bus: Bus, consumer: Consumer, server: AnyServer) -> None:
    names = in_buckets(12)
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


async def test_without_a_fetch_nothing_becomes_pending(bus: Bus, server: AnyServer) -> None:
    async with bus.consumer("g", "c") as busy, bus.consumer("g", "other") as other:
        await wake(bus, "a")
        work = await take_one(busy)
        await wake(bus, "b", "c", "d")
        assert sorted(each.session for each in await take_all(other, 3)) == ["b", "c", "d"]
        assert (work.session, "c") in pending(server)
        assert len(pending(server)) == 4


async def test_work_survives_a_failure_after_its_recovery(server: AnyServer, monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_held_work_is_not_delivered_again(bus: Bus, consumer: Consumer) -> None:
    await wake(bus, "a", "b")
    works = await take_all(consumer, 2)
    await consumer.close()  # like a lost connection: the pending work is checked once more
    await wake(bus, "c")
    assert (await take_one(consumer)).session == "c"
    await consumer.nack(*works)
    assert {work.attempt for work in await take_all(consumer, 2)} == {1}, "it would seem to have been tried"


async def test_a_session_is_delivered_once_for_all_its_wake_ups(bus: Bus, consumer: Consumer) -> None:
    for _ in range(30):
        await bus.session("s").publish(said("x"))
    work = await take_one(consumer)
    assert work.position == 30
    await consumer.ack(work)
    await wake(bus, "other")
    assert (await take_one(consumer)).session == "other"


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


ROOM, MANY = 32, count(1_500)


async def _fetched_before(consumer: Consumer, held: list[Work], name: str) -> int:
    """Finish one work at a time, and return how many others are fetched before this session."""
    number = 0
    while True:
        async with shortly():
            await consumer.ack(held.pop(0))
            works = await consumer.fetch(ROOM - len(held))
        held += works
        if any(work.session == name for work in works):
            return number
        number += len(works)


async def test_a_single_message_waits_for_at_most_two_rounds_of_a_busy_worker(bus: Bus, consumer: Consumer) -> None:
    await wake(bus, *(f"acme-{number}" for number in range(MANY)))
    held = await take_all(consumer, ROOM)
    await wake(bus, "globex-1")
    assert await _fetched_before(consumer, held, "globex-1") <= 2 * ROOM


async def test_a_fetch_takes_from_each_bucket_in_turn(bus: Bus, consumer: Consumer, one: RealServer) -> None:
    keys = Keys()
    names = {b: [n for n in (f"a-{i}" for i in range(5_000)) if keys.bucket(n) == b][:5] for b in (1, 2, 3)}
    await wake(bus, *chain.from_iterable(names.values()))
    for _ in range(5):
        works = await take_all(consumer, 3)
        assert sorted(work.bucket for work in works) == [1, 2, 3]


async def test_sessions_that_are_passed_over_are_all_fetched_once(server: AnyServer) -> None:
    buckets, names = Keys(), list[str]()
    for tenant in ("acme", "globex", "initech"):
        same = (f"{tenant}-{number}" for number in range(100_000))
        names += [name for name, _ in zip((n for n in same if buckets.bucket(n) == 5), range(12), strict=False)]
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        await wake(bus, *names)
        order: list[str] = []
        while len(order) < len(names):
            (work,) = await take_all(consumer, 1)
            order.append(work.session)
            await consumer.ack(work)
        assert sorted(order) == sorted(names)
        for tenant in ("acme", "globex", "initech"):  # the oldest of each tenant first
            assert [name for name in order if name.startswith(tenant)] == [n for n in names if n.startswith(tenant)]
        status = await bus.group_status("g")
        assert (status.lag, status.pending, status.retries) == (0, 0, 0)


def of_two_tenants(count: int) -> tuple[list[str], str]:
    """Return sessions of one tenant and a session of another, all in one bucket."""
    acme, others = ([n for i in range(5_000) if Keys().bucket(n := f"{t}{i}") == 5] for t in ("acme-", "other_"))
    return acme[:count], others[0]


async def test_the_tenant_with_the_fewest_sessions_in_work_is_next(bus: Bus, consumer: Consumer) -> None:
    acme, other = of_two_tenants(6)
    async with bus.consumer("g", "d") as second:
        await wake(bus, *acme, other)
        (first,) = await take_all(consumer, 1)
        assert first.session == acme[0]
        (next_,) = await take_all(second, 1)  # sees what the first consumer has
        assert next_.session == other
        assert [work.session for work in await take_all(second, 5)] == acme[1:]


async def test_a_session_that_was_passed_over_others_and_nacked_keeps_its_delay(bus: Bus, consumer: Consumer) -> None:
    acme, other = of_two_tenants(3)
    await wake(bus, *acme, other)
    held = [*await take_all(consumer, 1), *await take_all(consumer, 1)]
    assert [work.session for work in held] == [acme[0], other]
    await consumer.nack(held[1], delay=600, error="later")
    status = await bus.group_status("g")
    assert (status.lag, status.retries) == (2, 1)
    assert [work.session for work in await take_all(consumer, 2)] == acme[1:]
    status = await bus.group_status("g")
    assert (status.lag, status.retries, status.pending) == (0, 1, 3)
    await bus.session(other).publish(said("again"))  # a new message ends the delay
    assert [work.session for work in await take_all(consumer, 1)] == [other]


@pytest.mark.parametrize(("name", "tenant"), [("a-1", "a"), ("b_1-2", "b"), ("plain", ""), ("-x", "")])
async def test_the_tenant_is_the_id_up_to_the_separator(bus: Bus, consumer: Consumer, name: str, tenant: str) -> None:
    await wake(bus, name)
    await take_all(consumer, 1)
    held = consumer._in_flight.tenants()  # pyright: ignore[reportPrivateUsage]  # what the script is told
    assert held == f"{tenant}:1"
