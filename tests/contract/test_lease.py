"""The promises of leases, projections and cancelled calls, on every server."""

import asyncio

import pytest

from lanebus import Bus, Cursor, Delta, Fenced, Session
from lanebus.bus import Checkpoint
from lanebus.groups import Lease
from tests.support.log.said import said, told, words
from tests.support.servers.proxy import proxy
from tests.support.servers.real import RealServer, shortly


@pytest.mark.cluster("smoke test of leases")
@pytest.mark.sentinel("smoke test of leases")
async def test_a_lease_has_one_owner_until_it_is_released(session: Session) -> None:
    mine = await session.acquire_lease("me", 60)
    assert mine is not None
    assert mine == Lease("s", "me", 1)
    assert await session.acquire_lease("you", 60) is None
    assert await session.renew_lease(mine, 60)
    await session.release_lease(mine)
    assert not await session.renew_lease(mine, 60)
    yours = await session.acquire_lease("you", 60)
    assert yours is not None
    assert yours == Lease("s", "you", 2)
    await session.release_lease(mine)  # lost already: nothing happens
    assert await session.renew_lease(yours, 60)


async def test_an_expired_lease_is_taken_over_and_its_old_owner_is_fenced(session: Session) -> None:
    mine = await session.acquire_lease("me", 0.05)
    assert mine is not None
    await session.publish(said("a"), epoch=mine.epoch)
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


async def test_an_expired_lease_may_append_until_it_is_taken_over(session: Session) -> None:
    mine = await session.acquire_lease("me", 0.001)
    assert mine is not None
    assert (
        await session.publish(said("a"), epoch=mine.epoch)
    ).position == 1  # an expired lease may be taken over, and is valid until then


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
        lease = await session.acquire_lease("me", 60)
        assert lease is not None
        assert await session.renew_lease(lease, 60)
        assert way.lost == 2


async def test_a_call_after_a_restart_works_at_once(process: RealServer) -> None:
    async with process.bus() as bus:
        session = bus.session("s")
        await asyncio.gather(*[session.head() for _ in range(30)])  # several idle connections
        process.kill()
        process.start()
        assert (await session.head()).position == 0
        await session.preview(Delta(kind="text", message_id="m", delta="x"))
