"""A lease as a resource, on every server: held for a block, re-entered by its object, shared with no other one."""

import anyio
import pytest

from lanebus import Fenced, Session, UserMessage
from lanebus.bus import SessionLease
from lanebus.errors import LeaseHeld, LeaseNotHeld
from tests.support.agent.agents import fresh_bus
from tests.support.laws.cancelling import Moment, cut
from tests.support.servers.real import shortly

__all__ = ()


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
    dead = await session.acquire_lease("dead", 0.2)
    assert dead is not None
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
