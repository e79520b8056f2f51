"""`read_ahead` closes its source, down to the innermost generator, when it is closed or cancelled."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import anyio
import pytest

from lanebus.handlers.agent.models.provider_model import read_ahead
from tests.support.servers.real import background

AHEAD = 2


class Source:
    """A generator inside another one. A reference cycle keeps it alive."""

    def __init__(self, *items: int, fault: Exception | None = None, waits: bool = True) -> None:
        self._items, self._fault, self._waits = items, fault, waits
        self.is_closed = False
        self.read = 0
        self._inner = self._numbers()

    async def numbers(self) -> AsyncGenerator[int, None]:
        async for number in self._inner:
            yield number

    async def _numbers(self) -> AsyncGenerator[int, None]:
        try:
            for item in self._items:
                self.read += 1
                yield item
            if self._fault is not None:
                raise self._fault
            if self._waits:
                await anyio.sleep_forever()
        finally:
            self.is_closed = True


async def test_items_keep_their_order_and_an_error_comes_after_those_before_it() -> None:
    source = Source(1, 2, 3, waits=False)
    assert [number async for number in read_ahead(source.numbers(), AHEAD)] == [1, 2, 3]
    assert source.is_closed
    numbers = read_ahead(Source(1, 2, fault=ValueError("broken")).numbers(), AHEAD)
    assert [await anext(numbers), await anext(numbers)] == [1, 2]
    with pytest.raises(ValueError, match="broken"):
        await anext(numbers)


@pytest.mark.parametrize("taken", [1, 2, 3])
async def test_closing_after_any_item_closes_the_source(taken: int) -> None:
    source = Source(1, 2, 3)
    async with aclosing(read_ahead(source.numbers(), AHEAD)) as numbers:
        assert [await anext(numbers) for _ in range(taken)] == [1, 2, 3][:taken]
    assert source.is_closed


@pytest.mark.parametrize("waits_for_room", [False, True])
async def test_cancelling_during_any_wait_closes_the_source(waits_for_room: bool) -> None:
    source = Source(*range(10 if waits_for_room else 1))

    async def listen() -> None:
        async with aclosing(read_ahead(source.numbers(), AHEAD)) as numbers:
            async for _ in numbers:
                if waits_for_room:
                    await anyio.sleep_forever()

    async with background() as tasks:
        tasks.start_soon(listen)
        await anyio.wait_all_tasks_blocked()
    assert source.is_closed


async def test_reading_ahead_stops_at_the_limit() -> None:
    source = Source(*range(20), waits=False)
    async with aclosing(read_ahead(source.numbers(), AHEAD)) as numbers:
        assert await anext(numbers) == 0
        await anyio.wait_all_tasks_blocked()
        assert source.read == 1 + AHEAD + 1  # taken, in the buffer, and one that waits for room
        assert [number async for number in numbers] == list(range(1, 20))


async def test_closing_while_an_item_waits_for_room_closes_the_source_and_at_once_reads_nothing() -> None:
    source, unread = Source(*range(10)), Source(1)
    async with aclosing(read_ahead(source.numbers(), AHEAD)) as numbers:
        assert await anext(numbers) == 0
        await anyio.wait_all_tasks_blocked()
    assert source.is_closed
    await read_ahead(unread.numbers(), AHEAD).aclose()
    assert not unread.is_closed
