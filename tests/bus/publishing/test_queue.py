"""Waiting callers expire on time and enter in order, at a cost that does not depend on their number."""

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest

from lanebus.bus.errors import Closed, Unavailable
from lanebus.bus.publishing.encoding import EncodedPublish, PendingPublish
from lanebus.bus.publishing.publisher import Deadlines, PublishQueue
from tests.support.servers.real import eventually


class Caller:
    """A caller that counts how often `is_over` is read."""

    def __init__(self, asked: Callable[[], None] = lambda: None) -> None:
        self._asked, self.is_expired, self.is_answered = asked, False, False

    @property
    def is_over(self) -> bool:
        self._asked()
        return self.is_answered or self.is_expired

    def expire(self) -> None:
        self.is_expired = True


def publish(size_bytes: int) -> PendingPublish:
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    return PendingPublish("s", EncodedPublish("l", [b"{}"], size_bytes), future, 10, 10)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # nobody answers it


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_deadlines_that_pass_one_by_one_examine_each_caller_a_few_times() -> None:
    looks = 0

    def asked() -> None:
        nonlocal looks
        looks += 1

    count, now = 2_000, asyncio.get_running_loop().time()
    callers = [Caller(asked) for _ in range(count)]
    deadlines = Deadlines(64)
    for at, caller in enumerate(callers):
        deadlines.note(now + at / 100_000, caller)
    await eventually(lambda: all(caller.is_expired for caller in callers))
    assert looks < 10 * count


async def test_deadlines_that_pass_together_expire_over_several_turns_of_the_loop() -> None:
    now = asyncio.get_running_loop().time()
    callers = [Caller() for _ in range(100)]
    deadlines = Deadlines(10)
    for caller in callers:
        deadlines.note(now, caller)
    told = [0]
    while told[-1] < len(callers):
        await asyncio.sleep(0)
        told.append(sum(caller.is_expired for caller in callers))
    assert max(after - before for before, after in pairwise(told)) <= 10


async def test_a_deadline_does_not_keep_an_answered_caller_alive() -> None:
    deadlines, far = Deadlines(4), asyncio.get_running_loop().time() + 3_600
    callers = [Caller() for _ in range(3)]
    for _ in range(1_000):
        deadlines.note(far, Caller())  # answered at once: no reference is left
    for caller in callers:
        deadlines.note(far, caller)
    assert len(deadlines) <= 8
    deadlines.cancel()


async def test_callers_that_wait_for_room_enter_in_order_and_a_few_at_a_time() -> None:
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(3)
    queue = PublishQueue(100, 3, deadlines)
    queue.put(publish(101))
    came: list[int] = []
    far = loop.time() + 3_600

    async def come(number: int) -> None:
        await queue.wait_room("s", 1, 3_600, far)
        came.append(number)
        queue.put(publish(1))

    tasks = [asyncio.create_task(come(number)) for number in range(20)]
    await turns(3)
    assert not came
    tasks[5].cancel()
    assert len([*queue.take(1, 1)]) == 1
    counts = [0]
    while len(came) < 19:
        await asyncio.sleep(0)
        counts.append(len(came))
    assert came == [number for number in range(20) if number != 5]
    assert max(after - before for before, after in pairwise(counts)) <= 3
    deadlines.cancel()


async def test_a_caller_does_not_pass_one_that_was_admitted_and_has_not_put_its_publish() -> None:
    far = asyncio.get_running_loop().time() + 3_600
    deadlines = Deadlines(2)
    queue = PublishQueue(100, 2, deadlines)
    queue.put(publish(101))
    came: list[str] = []

    async def come(name: str) -> None:
        if queue.is_full:
            await queue.wait_room("s", 1, 3_600, far)
        came.append(name)
        queue.put(publish(1))

    early = [asyncio.create_task(come(name)) for name in "ab"]
    await turns(2)
    assert len([*queue.take(1, 1)]) == 1  # admits both, whose tasks have not run yet
    await come("c")
    await asyncio.gather(*early)
    assert came == ["a", "b", "c"]
    assert not queue.is_full
    deadlines.cancel()


async def test_room_given_to_a_cancelled_caller_goes_to_the_next() -> None:
    far = asyncio.get_running_loop().time() + 3_600
    deadlines = Deadlines(1)
    queue = PublishQueue(100, 1, deadlines)
    queue.put(publish(101))
    first, second = (asyncio.create_task(queue.wait_room("s", 200, 3_600, far)) for _ in range(2))
    await turns(2)
    assert len([*queue.take(1, 1)]) == 1
    first.cancel()  # admitted, but its task has not run yet
    await second
    assert first.cancelled()
    deadlines.cancel()


async def test_a_caller_that_finds_no_room_raises_at_its_deadline_or_at_closing() -> None:
    now = asyncio.get_running_loop().time()
    deadlines = Deadlines(4)
    queue = PublishQueue(100, 4, deadlines)
    queue.put(publish(101))
    with pytest.raises(Unavailable, match="room"):
        await queue.wait_room("s", 1, 0.01, now + 0.01)
    task = asyncio.create_task(queue.wait_room("s", 1, 3_600, now + 3_600))
    await turns(2)
    queue.close()
    with pytest.raises(Closed):
        await task
    deadlines.cancel()
