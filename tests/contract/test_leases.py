"""Leases of many sessions, on every server: one round trip, a rest, and a wake-up on release."""

import anyio
import pytest

from lanebus import Bus, Cursor, ExtensionMessage, Session, UserMessage
from lanebus.bus import FirstPage
from lanebus.bus.log.head import read_head
from lanebus.bus.messages import Abort
from lanebus.errors import SessionErased
from tests.support.log.said import said, told
from tests.support.servers.real import RealServer, shortly

__all__ = ()


async def woken(bus: Bus, count: int) -> list[str]:
    """Return the sessions of the next works of a new group, acknowledged."""
    found: list[str] = []
    async with bus.consumer("g", "c") as consumer, shortly():
        while len(found) < count:
            works = await consumer.fetch(100)
            await consumer.ack(*works)
            found += [work.session for work in works]
    return sorted(found)


async def test_a_worker_that_finds_a_session_leased_gets_the_time_left(bus: Bus) -> None:
    assert (await bus.leases.take("s", "me", 60)).lease is not None
    taking = await bus.leases.take("s", "you", 60)
    assert taking.lease is None
    assert 50 < taking.held_seconds <= 60
    assert taking.rests_seconds == 0


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_a_release_wakes_once_for_workers_that_found_the_session_leased(bus: Bus) -> None:
    quiet, asked = bus.session("quiet"), bus.session("asked")
    for session in (quiet, asked):
        await session.publish(told("x"))
        mine = await session.acquire_lease("me", 60)
        assert mine is not None
        if session is asked:
            assert await session.acquire_lease("you", 60) is None
            assert await session.acquire_lease("you", 60) is None
        await session.release_lease(mine)
        await session.release_lease(mine)
    await bus.session("last").publish(said("x"))
    assert await woken(bus, 2) == ["asked", "last"]


async def test_a_worker_that_takes_over_a_session_sees_all_entries_so_the_release_wakes_no_other(
    bus: Bus, session: Session
) -> None:
    await session.publish(told("x"))
    assert await session.acquire_lease("dead", 60) is not None
    assert await session.acquire_lease("me", 60) is None
    again = await session.acquire_lease("dead", 60)  # the one that the wake was meant for is gone
    assert again is not None
    await session.release_lease(again)
    await bus.session("last").publish(said("x"))
    assert await woken(bus, 1) == ["last"]


async def test_a_resting_session_is_taken_only_if_asked_for(bus: Bus) -> None:
    lease = (await bus.leases.take("s", "me", 60)).lease
    assert lease is not None
    await bus.leases.release((lease,), rest=60)
    resting = await bus.leases.take("s", "you", 60, also_resting=False)
    assert resting.lease is None
    assert 50 < resting.rests_seconds <= 60
    assert (await bus.leases.take("s", "you", 60)).lease is not None
    taken = (await bus.leases.take("s", "you", 60, also_resting=False)).lease
    assert taken is not None, "its rest ended with that"


@pytest.mark.cluster("its sessions are on several nodes")
@pytest.mark.sentinel("smoke test of renewing leases")
async def test_many_leases_are_renewed_at_once_and_the_lost_ones_are_returned(bus: Bus) -> None:
    takings = [await bus.leases.take(f"s{number}", "me", 60) for number in range(100)]
    leases = [taking.lease for taking in takings if taking.lease is not None]
    assert len(leases) == 100
    await bus.leases.release(leases[10:20])
    await bus.session("s5").publish(said("x"))
    await bus.session("s5").erase()
    assert await bus.leases.renew(leases, 60) == [leases[5], *leases[10:20]]


async def test_a_release_with_wake_set_always_wakes_a_worker(bus: Bus) -> None:
    await bus.session("s").publish(told("x"))
    lease = (await bus.leases.take("s", "me", 60)).lease
    assert lease is not None
    await bus.leases.release((lease,), wake=True)
    assert await woken(bus, 1) == ["s"]


async def test_the_lease_of_an_erased_session_raises(bus: Bus) -> None:
    await bus.session("s").publish(said("x"))
    await bus.session("s").erase()
    with pytest.raises(SessionErased):
        await bus.leases.take("s", "me", 60)


@pytest.mark.cluster("smoke test of waiting for a session")
@pytest.mark.sentinel("smoke test of waiting for a session")
@pytest.mark.parametrize("word", [UserMessage.text("stop"), Abort().as_extension()], ids=["user", "command"])
async def test_a_waiting_worker_gets_the_wake_up(bus: Bus, other: Bus, word: UserMessage | ExtensionMessage) -> None:
    session = bus.session("s")
    position = (await session.publish(said("x"), told("y"))).position
    told_of: list[int] = []

    async def wait() -> None:
        await session.wait_for_wake_up(Cursor(position))
        told_of.append((await session.head()).position)

    async with shortly(), anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        await other.session("s").publish(word)
    assert told_of == [position + 1]


async def test_an_entry_that_exists_after_the_cursor_ends_the_wait_at_once(session: Session) -> None:
    await session.publish(said("x"))
    async with shortly():
        await session.wait_for_wake_up(Cursor(0))


@pytest.mark.cluster("its sessions are on several nodes")
@pytest.mark.sentinel("one command line has the reads of many sessions")
async def test_many_grouped_sessions_read_what_they_hold(bus: Bus) -> None:
    names = [f"s{number}" for number in range(100)]
    for name in names:
        await bus.session(name).publish(said(name))
    found: dict[str, list[str]] = {}

    async def read(name: str) -> None:
        entries = [entry async for entry in bus.session(name, grouped=True).read()]
        found[name] = [entry.message.text_content() for entry in entries if isinstance(entry.message, UserMessage)]

    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(read, name)
    assert found == {name: [name] for name in names}


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_a_page_read_with_a_lease_holds_all_earlier_entries(bus: Bus, session: Session) -> None:

    def first_page(name: str) -> FirstPage:
        return bus.session(name).first_page()

    async with bus.consumer("g", "c", owner="me", first_page=first_page) as consumer:
        await session.publish(said("one"), said("two"))  # before it listens: no wake-up names it
        (work,) = await consumer.fetch(8)
        await consumer.ack(work)
        assert work.page is None

        await session.publish(said("three"))
        (work,) = await consumer.fetch(8)
        assert work.lease is not None
        assert work.page is not None
        assert read_head("s", work.page.replies[0]).epoch == work.lease.epoch, "it was read before the lease"
        await session.publish(said("four"))
        read = [page async for page in session.pages(first=work.page)]
        assert [envelope.position for page in read for envelope in page.envelopes] == [1, 2, 3]
        again = [page async for page in session.pages(first=work.page)]
        assert [envelope.position for page in again for envelope in page.envelopes] == [1, 2, 3, 4]


async def test_a_page_is_read_after_its_lease_was_acquired_or_not_at_all(one: RealServer) -> None:
    """A server that has forgotten the script grants the lease at the second attempt, after the page was read."""
    async with one.bus() as bus:
        session = bus.session("s")
        await session.publish(said("one"))
        page = session.first_page()
        one.do("SCRIPT", "FLUSH")
        assert (await bus.leases.take("s", "me", 60, page=page)).lease is not None
        assert page.take(0) == []
        assert (await bus.leases.take("s", "me", 60, page=page)).lease is not None
        assert page.take(1) == [], "it begins behind another position"
        assert (await bus.leases.take("s", "me", 60, page=page)).lease is not None
        assert len(page.take(0)) == 4


async def test_of_several_sessions_no_page_is_read_with_their_leases(one: RealServer) -> None:
    async with one.bus() as bus:
        asked: list[str] = []

        def first_page(name: str) -> None:
            asked.append(name)

        async with bus.consumer("g", "c", owner="me", first_page=first_page) as consumer:
            await bus.session("s1").publish(said("x"))
            await consumer.fetch(8)
            asked.clear()
            async with anyio.create_task_group() as tasks:
                for name in ("s2", "s3", "s4"):
                    tasks.start_soon(bus.session(name).publish, said("x"))
            given: list[str] = []
            while len(given) < 3:
                works = await consumer.fetch(8)
                given += [work.session for work in works]
                assert len(works) == 1 or not {work.session for work in works} & {*asked}
