"""Leases: one owner, many sessions at once, and a lease as a resource; stored projections."""

import asyncio

import anyio
import pytest

from lanebus import Bus, Cursor, Delta, ExtensionMessage, Fenced, Session, UserMessage
from lanebus.bus import Checkpoint, FirstPage, Lease, SessionLease
from lanebus.errors import LeaseHeld, LeaseNotHeld
from lanebus.messages import Abort
from tests.support.agent.agents import fresh_bus
from tests.support.laws.cancelling import Moment, cut
from tests.support.log.groups import held_lease
from tests.support.log.said import said, told, words
from tests.support.servers.proxy import proxy
from tests.support.servers.real import RealServer, shortly


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
        mine = await held_lease(session, "me", 60)
        if session is asked:
            assert await session.acquire_lease("you", 60) is None
            assert await session.acquire_lease("you", 60) is None
        await session.release_lease(mine)
        await session.release_lease(mine)
    await bus.session("last").publish(said("x"))
    assert await woken(bus, 2) == ["asked", "last"]


async def test_a_release_wakes_nobody_if_the_lease_was_taken_over_since(bus: Bus, session: Session) -> None:
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


@pytest.mark.cluster("smoke test of waiting for a session")
@pytest.mark.sentinel("smoke test of waiting for a session")
@pytest.mark.parametrize("word", [UserMessage.text("stop"), Abort().as_extension()], ids=["user", "command"])
async def test_a_waiting_worker_gets_the_wake_up(bus: Bus, other: Bus, word: UserMessage | ExtensionMessage) -> None:
    session = bus.session("s")
    position = (await session.publish(said("x"), told("y"))).position
    async with shortly():
        await session.wait_for_wake_up(Cursor(0))  # it ends at once
    told_of: list[int] = []

    async def wait() -> None:
        await session.wait_for_wake_up(Cursor(position))
        told_of.append((await session.head()).position)

    async with shortly(), anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        await other.session("s").publish(word)
    assert told_of == [position + 1]


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
        await session.publish(said("four"))
        read = [page async for page in session.pages(first=work.page)]
        assert [envelope.position for page in read for envelope in page.envelopes] == [1, 2, 3]
        again = [page async for page in session.pages(first=work.page)]
        assert [envelope.position for page in again for envelope in page.envelopes] == [1, 2, 3, 4]


async def test_a_page_is_read_after_its_lease_was_taken_or_not(bus: Bus, session: Session, one: RealServer) -> None:
    """A server that has forgotten the script grants the lease at the second attempt, after the page was read."""
    await session.publish(said("one"))
    page = session.first_page()
    one.do("SCRIPT", "FLUSH")
    assert (await bus.leases.take("s", "me", 60, page=page)).lease is not None
    assert page.take(0) == []
    assert (await bus.leases.take("s", "me", 60, page=page)).lease is not None
    assert page.take(1) == [], "it begins behind another position"
    assert (await bus.leases.take("s", "me", 60, page=page)).lease is not None
    assert len(page.take(0)) == 4


async def test_of_several_sessions_no_page_is_read_with_their_leases(bus: Bus, one: RealServer) -> None:
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


@pytest.mark.cluster("smoke test of leases")
@pytest.mark.sentinel("smoke test of leases")
async def test_a_lease_has_one_owner_until_it_is_released(session: Session) -> None:
    mine = await held_lease(session, "me", 60)
    assert mine == Lease("s", "me", 1)
    assert await session.acquire_lease("you", 60) is None
    assert await session.renew_lease(mine, 60)
    await session.release_lease(mine)
    assert not await session.renew_lease(mine, 60)
    yours = await held_lease(session, "you", 60)
    assert yours == Lease("s", "you", 2)
    await session.release_lease(mine)  # lost already: nothing happens
    assert await session.renew_lease(yours, 60)


async def test_an_expired_lease_is_taken_over_and_its_old_owner_is_fenced(session: Session) -> None:
    mine = await held_lease(session, "me", 0.001)
    await session.publish(said("a"), epoch=mine.epoch)  # it has expired, and is valid until it is taken over
    yours: Lease | None = None
    async with shortly():
        while yours is None:
            yours = await session.acquire_lease("you", 60)
    assert yours.epoch == mine.epoch + 1
    assert not await session.renew_lease(mine, 60)
    with pytest.raises(Fenced) as caught:
        await session.publish(said("b"), told("c"), epoch=mine.epoch)
    assert (caught.value.session, caught.value.epoch, caught.value.found) == ("s", 1, 2)
    await session.publish(said("d"), epoch=yours.epoch)
    assert await words(session) == ["a", "d"]
    assert (await session.head()).epoch == 2


async def test_one_of_many_concurrent_workers_gets_a_lease(bus: Bus) -> None:
    taken = await asyncio.gather(*[bus.session("s").acquire_lease(f"w{index}", 60) for index in range(20)])
    assert len([lease for lease in taken if lease]) == 1


@pytest.mark.cluster("smoke test of projections")
@pytest.mark.sentinel("smoke test of projections")
async def test_a_projection_moves_only_from_where_it_was_folded(session: Session) -> None:
    assert await session.load_projection("p", 1) is None
    assert await session.save_projection("p", 1, b"\x00one", cursor=Cursor(3), expected=0)
    assert not await session.save_projection("p", 1, b"two", cursor=Cursor(5), expected=0)
    assert await session.load_projection("p", 1) == Checkpoint(b"\x00one", Cursor(3))
    assert await session.save_projection("p", 1, b"two", cursor=Cursor(5), expected=3)
    assert await session.load_projection("p", 1) == Checkpoint(b"two", Cursor(5))
    assert await session.load_projection("p", 2) is None


async def test_a_projection_or_lease_call_repeated_after_a_lost_reply_succeeds(one: RealServer) -> None:
    async with proxy(one.socket) as way, Bus.open(way.url) as bus:
        session = bus.session("s")
        way.lose = 1
        assert await session.save_projection("p", 1, b"one", cursor=Cursor(3), expected=0)
        way.lose = 1
        lease = await held_lease(session, "me", 60)
        assert await session.renew_lease(lease, 60)
        assert way.lost == 2


async def test_a_call_after_a_restart_works_at_once(session: Session, process: RealServer) -> None:
    await asyncio.gather(*[session.head() for _ in range(30)])  # several idle connections
    process.kill()
    process.start()
    assert (await session.head()).position == 0
    await session.preview(Delta(kind="text", message_id="m", delta="x"))


async def is_free(session: Session) -> bool:
    lease = await session.acquire_lease("another", 60)
    if lease is not None:
        await session.release_lease(lease)
    return lease is not None


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_a_block_inside_a_block_re_enters_and_only_the_outermost_releases(session: Session) -> None:
    lease = session.lease("me")
    async with lease:
        epoch = lease.epoch
        async with lease as same:
            assert same is lease
            assert lease.epoch == epoch
        assert lease.is_held
        assert not await is_free(session)
    assert not lease.is_held
    assert await is_free(session)


async def test_a_block_of_another_task_re_enters_and_the_last_one_releases(session: Session) -> None:
    async with anyio.create_task_group() as tasks:
        lease = session.lease("me")
        entered, over = anyio.Event(), anyio.Event()

        async def enter() -> None:
            async with lease:
                entered.set()
                await over.wait()

        async with lease:
            tasks.start_soon(enter)
            await entered.wait()
        assert lease.is_held
        assert not await is_free(session)
        over.set()


async def test_an_object_of_the_same_name_does_not_share_the_lease(session: Session) -> None:
    async with session.lease("me") as lease:
        with pytest.raises(LeaseHeld) as refused:
            await session.lease("me", wait=0).__aenter__()
        assert refused.value.seconds > 0
        await session.publish(UserMessage.text("still mine"), epoch=lease.epoch)


async def test_a_holder_that_waits_gets_the_lease_at_its_release(session: Session) -> None:
    async with anyio.create_task_group() as tasks:
        await session.publish(UserMessage.text("hello"))
        got = anyio.Event()

        async def take_over() -> None:
            async with session.lease("me"):
                got.set()

        async with session.lease("me", seconds=3_000):
            tasks.start_soon(take_over)
            with pytest.raises(TimeoutError), anyio.fail_after(0.1):
                await got.wait()
        async with shortly():
            await got.wait()


async def test_a_lease_is_taken_over_after_its_holder_died(session: Session) -> None:
    dead = await held_lease(session, "dead", 0.2)
    async with shortly(), session.lease("me") as lease:
        assert lease.epoch > dead.epoch


async def test_a_lease_outlasts_its_seconds_as_it_is_renewed() -> None:
    async with fresh_bus() as bus:
        session = bus.session("s")
        async with session.lease("me", seconds=1.5) as lease:
            with pytest.raises(LeaseHeld):
                await session.lease("you", wait=3).__aenter__()
            assert lease.is_held


async def test_a_holder_that_lost_its_lease_is_told_and_fenced(session: Session) -> None:
    async with session.lease("me", seconds=0.5) as lease:
        await session.release_lease(lease.lease)
        assert await session.acquire_lease("thief", 60) is not None
        async with shortly():
            await lease.wait_lost()
        assert lease.is_lost
        with pytest.raises(Fenced):
            await session.publish(UserMessage.text("too late"), epoch=lease.epoch)
        with pytest.raises(Fenced):
            await lease.__aenter__()
    assert not await is_free(session)


async def test_a_lease_that_is_not_held_has_no_epoch() -> None:
    async with fresh_bus() as bus:
        lease = bus.session("s").lease("me")
        with pytest.raises(LeaseNotHeld):
            _ = lease.epoch
        async with lease:
            first = lease.epoch
        async with lease:
            assert lease.epoch > first


@pytest.mark.parametrize("moment", Moment)
async def test_a_block_that_is_cancelled_anywhere_leaves_no_lease(moment: Moment) -> None:
    async with fresh_bus() as bus:
        at, is_cut = 0, True
        while is_cut:
            at += 1
            session = bus.session(f"s{at}")
            lease = session.lease("me")

            async def hold(lease: SessionLease = lease) -> None:
                async with lease, lease:
                    await anyio.lowlevel.checkpoint()

            trial = await cut(hold, at=at, moment=moment)
            assert trial.is_honest
            is_cut = trial.is_cut
            async with shortly(), session.lease("next"):
                assert not lease.is_held
        assert at > 2
