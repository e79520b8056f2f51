"""What the tests of consumer groups share: bells to ring, and what the server holds of them."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import cast

import anyio

from bus import Bus, Consumer, Work
from bus.keys import Keys
from tests.support.log.said import said
from tests.support.servers.real import AnyServer, shortly
from tests.support.servers.resp import Reply

__all__ = ("number_of", "pending", "ring", "take_all", "take_one", "taking_nothing", "works", "write_old")


async def ring(bus: Bus, *names: str) -> None:
    """One bell of each session."""
    for name in names:
        await bus.session(name).publish(said("x"))


async def take_one(consumer: Consumer) -> Work:
    """The next work, which must come soon."""
    async with shortly():
        (work,) = await consumer.take(1)
    return work


async def take_all(consumer: Consumer, count: int) -> list[Work]:
    """So many works, which must come soon."""
    works: list[Work] = []
    async with shortly():
        while len(works) < count:
            works += await consumer.take(count - len(works))
    return works


@asynccontextmanager
async def taking_nothing(consumer: Consumer) -> AsyncGenerator[None, None]:
    """Let a consumer wait for work while the block runs; fail if it is given any."""

    async def take() -> None:
        raise AssertionError(await consumer.take(100))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take)
        yield
        tasks.cancel_scope.cancel()


async def works(consumer: Consumer) -> AsyncGenerator[Work, None]:
    """All works one by one; it never ends. Some are taken ahead."""
    try:
        while True:
            for work in await consumer.take(64):
                yield work
    finally:
        await consumer.close()


def pending(server: AnyServer, group: str = "g") -> list[tuple[str, str]]:
    """Pointer and consumer of all that is pending in a group."""
    found: list[tuple[str, str]] = []
    keys = Keys()
    for bucket in range(keys.buckets):
        if server.do("EXISTS", keys.index(bucket)):
            reply: Reply = server.do("XPENDING", keys.index(bucket), group, "-", "+", "999")
            found += [(item[0], item[1]) for item in cast("list[Sequence[str]]", reply)]
    return found


def write_old(server: AnyServer, index: str, group: str, work: Work, consumer: str) -> None:
    """Make a pending pointer an hour old."""
    server.do("XCLAIM", index, group, consumer, "0", work.pointer, "IDLE", "3600000", "JUSTID")


def number_of(entry_id: str) -> int:
    """Return a stream id as a number that can be compared."""
    ms, _, number = entry_id.partition("-")
    return int(ms) * 2**64 + int(number)
