"""An iteration whose `anext` was cancelled goes on: nothing is lost, and nothing comes twice."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import anyio
import pytest

from lanebus import Bus, Delta, Envelope, Session
from lanebus.bus.concurrency import Resumable
from lanebus.bus.wire import Notice
from lanebus.projections import TURNS
from lanebus.projections import follow as follow_projection
from tests.support.log.said import said
from tests.support.servers.real import RealServer, eventually

__all__ = ()

PATIENCE = (0.0, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03)
"""time limits of one `anext`, in seconds; the shortest end within each of its steps"""


async def polled(items: AsyncGenerator[Envelope, None], count: int) -> list[int]:
    """Return the positions of `count` items, each of them asked for with ever other time limits."""
    found: list[int] = []
    asked = 0
    while len(found) < count:
        asked += 1
        with anyio.move_on_after(PATIENCE[asked % len(PATIENCE)]):
            found.append((await anext(items)).position)
        await asyncio.sleep(0)
    return found


async def filled(session: Session, count: int) -> None:
    for number in range(count):
        await session.publish(said(str(number)))


async def test_a_follower_with_a_time_limit_gets_each_entry_once(session: Session) -> None:
    await filled(session, 30)
    async with aclosing(session.follow()) as envelopes:
        assert await polled(envelopes, 30) == [*range(1, 31)]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(envelopes), 0.01)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(filled, session, 30)
            assert await polled(envelopes, 30) == [*range(31, 61)]


async def test_a_read_with_a_time_limit_gets_each_entry_once(bus: Bus) -> None:
    await filled(bus.session("s"), 30)
    async with aclosing(bus.session("s").read()) as envelopes:
        assert await polled(envelopes, 30) == [*range(1, 31)]
        assert [envelope async for envelope in envelopes] == []


async def test_notices_and_live_deltas_come_once_after_a_time_limit(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
        session = bus.session("s")
        await filled(session, 2)
        seen: list[str] = []
        async with aclosing(session.subscribe(live=True)) as items:
            for text in ("a", "b", "c"):
                await session.preview(Delta(message_id="m", kind="text", delta=text))
                while not seen or seen[-1] != text:
                    with anyio.move_on_after(0.001):
                        item = await anext(items)
                        seen.append(item.kind if isinstance(item, Notice) else words_of(item))
        assert "".join(each for each in seen if each in "abc") == "abc"
        assert seen.count("caughtUp") == 1


def words_of(envelope: Envelope) -> str:
    message = envelope.message
    return message.delta if isinstance(message, Delta) else "entry"


@pytest.mark.parametrize("begin", [Session.follow, Session.subscribe, Session.read, Session.pages])
async def test_closing_an_iterator_that_timed_out_ends_it(
    shared_valkey: RealServer, begin: Callable[[Session], AsyncGenerator[object, None]]
) -> None:
    async with shared_valkey.bus() as bus:
        hub = bus._shards.of("s").hub  # pyright: ignore[reportPrivateUsage]  # whether it forgets shows nowhere else
        await filled(bus.session("s"), 1)
        for patience in PATIENCE:
            items = begin(bus.session("s"))
            with anyio.move_on_after(patience):
                await anext(items)
            await items.aclose()
            assert [item async for item in items] == []
        assert hub.followed == {}


async def test_an_abandoned_iterator_that_timed_out_leaves_no_subscription(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
        hub = bus._shards.of("s").hub  # pyright: ignore[reportPrivateUsage]  # whether it forgets shows nowhere else
        await filled(bus.session("s"), 1)
        for patience in PATIENCE:
            items = bus.session("s").follow()
            with anyio.move_on_after(patience):
                await anext(items)
                await anext(items)
            del items
        await eventually(lambda: hub.followed == {})


async def test_two_tasks_cannot_iterate_at_once(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus, aclosing(bus.session("s").follow()) as items:
        first = asyncio.ensure_future(anext(items))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="already running"):
            await anext(items)
        await filled(bus.session("s"), 1)
        assert (await first).position == 1


async def test_a_follower_fails_once_and_then_ends(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
        await filled(bus.session("s"), 1)
        items = bus.session("s").follow()
        await anext(items)
        waiting = asyncio.ensure_future(anext(items))
        await bus.session("s").erase()
        with pytest.raises(Exception, match="erased"):
            await waiting
        assert [item async for item in items] == []


async def test_the_states_of_a_projection_go_on_after_a_time_limit(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
        session = bus.session("s")
        await filled(session, 3)
        positions: list[int] = []
        async with aclosing(follow_projection(session, TURNS)) as states:
            for count in (3, 4, 5):
                while not positions or positions[-1] < count:
                    with anyio.move_on_after(0.001):
                        positions.append((await anext(states)).position)
                await filled(session, 1)
        assert positions == [3, 4, 5]


async def test_dead_letters_are_read_on_after_a_time_limit(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
        await filled(bus.session("s"), 1)
        async with bus.consumer("g", "c") as consumer:
            for number in range(3):
                await bus.session(f"s{number}").publish(said("a"))
                for work in await consumer.fetch(8):
                    await consumer.dead_letter(work, reason="broken")
        letters = bus.dead_letters("g").read()
        found: list[object] = []
        expected = await bus.dead_letters("g").count()
        while len(found) < expected:
            with anyio.move_on_after(0.0005):
                found.append(await anext(letters))
        assert [letter async for letter in letters] == []
        assert len({*map(str, found)}) == expected > 0


async def test_an_iterator_whose_task_was_cancelled_says_that_it_is_closed() -> None:
    async def endless() -> AsyncGenerator[int, None]:
        await asyncio.Event().wait()
        yield 1

    items = Resumable(endless())
    with anyio.move_on_after(0.01):
        await anext(items)
    (task,) = asyncio.all_tasks() - {asyncio.current_task()}
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await anext(items)
    with pytest.raises(Exception, match="the iterator is closed"):
        await anext(items)
