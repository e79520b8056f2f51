"""New work is shared among tenants: a tenant with much work does not hold up the others."""

import pytest

from lanebus import Bus
from lanebus.bus.wire import Keys
from lanebus.groups import Consumer, Work
from tests.support.log.groups import take_all
from tests.support.log.said import said
from tests.support.servers.real import AnyServer, RealServer, shortly
from tests.support.suite.scale import count

SLOTS, MANY = 32, count(1_500)


async def _publish(bus: Bus, names: list[str]) -> None:
    for name in names:
        await bus.session(name).publish(said("x"), wake=True)


async def _fetched_before(consumer: Consumer, held: list[Work], name: str) -> int:
    """Finish one work at a time, and return how many others are fetched before this session."""
    number = 0
    while True:
        async with shortly():
            await consumer.ack(held.pop(0))
            works = await consumer.fetch(SLOTS - len(held))
        held += works
        if any(work.session == name for work in works):
            return number
        number += len(works)


async def test_a_single_message_waits_for_at_most_two_rounds_of_a_busy_worker(bus: Bus, consumer: Consumer) -> None:
    await _publish(bus, [f"acme-{number}" for number in range(MANY)])
    held = await take_all(consumer, SLOTS)
    await _publish(bus, ["globex-1"])
    assert await _fetched_before(consumer, held, "globex-1") <= 2 * SLOTS


async def test_a_fetch_takes_from_each_bucket_in_turn(one: RealServer) -> None:
    keys = Keys()
    names = {b: [n for n in (f"a-{i}" for i in range(5_000)) if keys.bucket(n) == b][:5] for b in (1, 2, 3)}
    async with one.bus() as bus, bus.consumer("g", "c") as consumer:
        await _publish(bus, [name for share in names.values() for name in share])
        for _ in range(5):
            works = await take_all(consumer, 3)
            assert sorted(work.bucket for work in works) == [1, 2, 3]


async def test_sessions_that_are_passed_over_are_all_fetched_once(server: AnyServer) -> None:
    buckets, names = Keys(), list[str]()
    for tenant in ("acme", "globex", "initech"):
        same = (f"{tenant}-{number}" for number in range(100_000))
        names += [name for name, _ in zip((n for n in same if buckets.bucket(n) == 5), range(12), strict=False)]
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        await _publish(bus, names)
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


async def test_the_tenant_with_the_fewest_sessions_in_work_is_next(server: AnyServer) -> None:
    buckets = Keys()
    acme = [name for name in (f"acme-{n}" for n in range(5_000)) if buckets.bucket(name) == 5][:6]
    other = next(name for name in (f"other_{n}" for n in range(5_000)) if buckets.bucket(name) == 5)
    async with server.bus() as bus, bus.consumer("g", "c") as consumer, bus.consumer("g", "d") as second:
        await _publish(bus, [*acme, other])
        (first,) = await take_all(consumer, 1)
        assert first.session == acme[0]
        (next_,) = await take_all(second, 1)  # sees what the first consumer has
        assert next_.session == other
        rest = await take_all(second, 5)
        assert [work.session for work in rest] == acme[1:]


async def test_a_session_that_was_passed_over_others_and_nacked_keeps_its_delay(server: AnyServer) -> None:
    buckets = Keys()
    acme = [name for name in (f"acme-{n}" for n in range(5_000)) if buckets.bucket(name) == 5][:3]
    other = next(name for name in (f"other_{n}" for n in range(5_000)) if buckets.bucket(name) == 5)
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        await _publish(bus, [*acme, other])
        held = [*await take_all(consumer, 1), *await take_all(consumer, 1)]
        assert [work.session for work in held] == [acme[0], other]
        await consumer.nack(held[1], delay=600, error="later")
        status = await bus.group_status("g")
        assert (status.lag, status.retries) == (2, 1)
        rest = await take_all(consumer, 2)
        assert [work.session for work in rest] == acme[1:]
        status = await bus.group_status("g")
        assert (status.lag, status.retries, status.pending) == (0, 1, 3)
        await bus.session(other).publish(said("again"))  # a new message ends the delay
        assert [work.session for work in await take_all(consumer, 1)] == [other]


@pytest.mark.parametrize(("name", "tenant"), [("a-1", "a"), ("b_1-2", "b"), ("plain", ""), ("-x", "")])
async def test_the_tenant_of_a_session_is_its_id_up_to_the_first_separator(
    bus: Bus, consumer: Consumer, name: str, tenant: str
) -> None:
    await _publish(bus, [name])
    await take_all(consumer, 1)
    held = consumer._in_flight.tenants()  # pyright: ignore[reportPrivateUsage]  # what the script is told
    assert held == f"{tenant}:1"
