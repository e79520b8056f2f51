"""Shared by the tests of consumer groups: wake-ups, and the group's state on the server."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import anyio

from lanebus.bounds import WorkBounds
from lanebus.bus import Bounds, Bus, Consumer, Lease, Session, Work
from lanebus.bus.wire import Keys
from tests.support.log.said import said
from tests.support.servers.real import AnyServer, eventually, shortly

TINY = Bounds(work=WorkBounds(wake_ups=4, notices=4, sweep_seconds=0.2))
"""streams of wake-ups that keep almost nothing"""


async def wake(bus: Bus, *names: str) -> None:
    """Send one wake-up for each session."""
    for name in names:
        await bus.session(name).publish(said("x"))


async def held_lease(session: Session, owner: str, seconds: float = 60) -> Lease:
    """Acquire the lease of a session that no other owner has."""
    lease = await session.acquire_lease(owner, seconds)
    assert lease is not None
    return lease


async def take_one(consumer: Consumer) -> Work:
    """Return the next work. It must arrive soon."""
    async with shortly():
        (work,) = await consumer.fetch(1)
    return work


async def take_all(consumer: Consumer, count: int) -> list[Work]:
    """Return the next `count` works. They must arrive soon."""
    works: list[Work] = []
    async with shortly():
        while len(works) < count:
            works += await consumer.fetch(count - len(works))
    return works


@asynccontextmanager
async def taking_nothing(consumer: Consumer) -> AsyncGenerator[None, None]:
    """Let a consumer wait for work during the block. Fail if it receives any."""

    async def take() -> None:
        raise AssertionError(await consumer.fetch(100))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take)
        yield
        tasks.cancel_scope.cancel()


async def begin(server: AnyServer, consumer: Consumer, group: str) -> None:
    """Start a new group at the present end of all buckets, so that its consumer receives nothing."""
    keys = Keys()

    def has_begun() -> bool:
        with server.talk() as say:
            return all(say("HEXISTS", keys.groups(bucket), f"agent:{group}") for bucket in range(keys.buckets))

    async with taking_nothing(consumer):
        await eventually(has_begun)


async def works(consumer: Consumer) -> AsyncGenerator[Work, None]:
    """Yield all works one by one, for ever. Some are fetched ahead."""
    try:
        while True:
            for work in await consumer.fetch(64):
                yield work
    finally:
        await consumer.close()


def pending(server: AnyServer, group: str = "g", agent: str = "agent") -> list[tuple[str, str]]:
    """Return the session and consumer of all pending work of a group."""
    found: list[tuple[str, str]] = []
    keys = Keys()
    for bucket in range(keys.buckets):
        reply = cast("list[str]", server.do("HGETALL", keys.open(bucket, agent, group)))
        works = dict(zip(reply[::2], reply[1::2], strict=True))
        found += [(session, work.split(" ")[0]) for session, work in works.items() if not work.startswith(" ")]
    return found
