"""The promises of leases, projections and cancelled calls, on every server."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any

import pytest

from lanebus import Bus, Cursor, Delta, Fenced
from lanebus.bus import Checkpoint
from lanebus.bus.servers.connection import ConnectionPool
from lanebus.groups import Lease
from tests.support.log.groups import works
from tests.support.log.said import assert_gap_free, read, said, told, words
from tests.support.servers.proxy import proxy
from tests.support.servers.real import AnyServer, RealServer, eventually, shortly


@pytest.mark.cluster("smoke test of leases")
@pytest.mark.sentinel("smoke test of leases")
async def test_a_lease_has_one_owner_until_it_is_released(server: AnyServer) -> None:
    async with server.bus() as bus:
        session = bus.session("s")
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


async def test_an_expired_lease_is_taken_over_and_its_old_owner_is_fenced(server: AnyServer) -> None:
    async with server.bus() as bus:
        session = bus.session("s")
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


async def test_an_expired_lease_may_append_until_it_is_taken_over(server: AnyServer) -> None:
    async with server.bus() as bus:
        session = bus.session("s")
        mine = await session.acquire_lease("me", 0.001)
        assert mine is not None
        assert (
            await session.publish(said("a"), epoch=mine.epoch)
        ).position == 1  # an expired lease may be taken over, and is valid until then


async def test_one_of_many_concurrent_workers_gets_a_lease(server: AnyServer) -> None:
    async with server.bus() as bus:
        taken = await asyncio.gather(*[bus.session("s").acquire_lease(f"w{index}", 60) for index in range(20)])
        assert len([lease for lease in taken if lease]) == 1


@pytest.mark.cluster("smoke test of projections")
@pytest.mark.sentinel("smoke test of projections")
async def test_a_projection_moves_only_from_where_it_was_folded(server: AnyServer) -> None:
    async with server.bus() as bus:
        session = bus.session("s")
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


class _CancelAt:
    """Awaits a coroutine and cancels its task at the k-th suspension."""

    def __init__(self, awaitable: Awaitable[object], k: int) -> None:
        self._awaitable, self._k = awaitable, k
        self.suspensions = 0

    def __await__(self) -> Generator[Any, Any, None]:  # the event loop's own protocol has no narrower type
        inner = self._awaitable.__await__()
        try:
            waited = next(inner)
            while True:
                if self.suspensions == self._k:
                    task = asyncio.current_task()
                    assert task is not None
                    task.cancel()
                self.suspensions += 1
                try:
                    sent = yield waited
                except BaseException as error:  # noqa: BLE001  passed on to who awaits
                    waited = inner.throw(error)
                else:
                    waited = inner.send(sent)
        except StopIteration:
            return


async def _read(bus: Bus) -> None:
    assert_gap_free(await read(bus.session("s")))


async def _follow(bus: Bus) -> None:
    stream = bus.session("s").follow(after=Cursor(1), live=True)
    try:
        await anext(stream)
        await bus.session("s").publish(told("next"))
        await anext(stream)
        await anext(stream)
    finally:
        await stream.aclose()


async def _lease(bus: Bus) -> None:
    lease = await bus.session("s").acquire_lease("me", 60)
    assert lease is not None
    await bus.session("s").renew_lease(lease, 60)
    await bus.session("s").release_lease(lease)


async def _work(bus: Bus) -> None:
    consumer = bus.consumer("g", "c")
    work = works(consumer)
    try:
        await consumer.ack(await anext(work))
    finally:
        await work.aclose()


async def _publish(bus: Bus) -> None:
    await bus.session("s").publish(said("x"), told("y"), wake=True)


async def _head(bus: Bus) -> None:
    await bus.session("s").head()


async def _sessions(bus: Bus) -> None:
    await bus.sessions()


async def _preview(bus: Bus) -> None:
    await bus.session("s").preview(Delta(kind="text", message_id="m", delta="x"))


def is_at_rest(bus: Bus) -> bool:
    """Return whether nothing is followed, no connection is in use, and the idle ones work."""
    hub, pool = bus._shards.of("s").hub, bus._pool  # pyright: ignore[reportPrivateUsage]  # a leak shows nowhere else
    assert isinstance(pool, ConnectionPool)
    return hub.followed == {} and pool.borrowed == 0 and not any(connection.is_broken for connection in pool.idle)


@pytest.mark.full
@pytest.mark.parametrize("is_warm", [True, False])
@pytest.mark.parametrize("call", [_publish, _read, _follow, _head, _sessions, _lease, _work, _preview])
async def test_a_call_cancelled_at_any_suspension_leaves_nothing(
    valkey: RealServer, call: Callable[[Bus], Awaitable[None]], is_warm: bool
) -> None:
    async with valkey.bus() as setup:
        await setup.session("s").publish(said("a"), told("b"))
    k = 0
    while True:
        async with valkey.bus() as bus:
            await bus.session("s").publish(said("wake"))
            if is_warm:
                await call(bus)
                await bus.session("s").publish(said("wake"))
            step = _CancelAt(call(bus), k)

            async def run(step: _CancelAt = step) -> None:
                await step

            task = asyncio.create_task(run())
            async with shortly():
                await asyncio.wait({task})
            await eventually(partial(is_at_rest, bus))
            async with shortly():
                await bus.session("s").publish(said("wake"))
                await call(bus)
                assert_gap_free(await read(bus.session("s")))
            if step.suspensions <= k:
                assert task.exception() is None
                break
            assert task.cancelled()
        k += 1
    assert k >= 1
    clients = valkey.do("CLIENT", "LIST")
    assert isinstance(clients, str)
    await eventually(lambda: str(valkey.do("CLIENT", "LIST")).count("\n") <= 1)
