"""Calls with one fault each, which the cancellation tests must find."""

import asyncio

from lanebus import SessionHead
from lanebus.bus.following.subscription import SubscriptionOptions
from lanebus.bus.servers import Connection, Endpoint
from lanebus.bus.wire import Selection
from tests.support.laws.calls import Call, Point
from tests.support.log.said import said

__all__ = ("KEPT", "MUTANTS")

KEPT: list[Connection] = []
"""connections that a mutant leaked, for the test to close"""


async def _swallow(point: Point) -> bool:
    """Takes a cancellation for an answer."""
    try:
        await point.session.head()
    except asyncio.CancelledError:
        return True
    return True


async def _translate(point: Point) -> bool:
    """Turns a cancellation into another error."""
    try:
        await point.session.head()
    except asyncio.CancelledError:
        raise TimeoutError from None
    return True


async def _keep_link(point: Point) -> bool:
    """Closes its connection only on success."""
    link = await Endpoint(point.server.url).connect()
    KEPT.append(link)
    await point.session.head()
    await KEPT.pop().close()
    return True


async def _keep_task(point: Point) -> bool:
    """Ends the task that it started only on success."""
    task = asyncio.create_task(asyncio.Event().wait())
    await point.session.head()
    task.cancel()
    return True


async def _keep_following(point: Point) -> bool:
    """Leaves the hub only on success."""
    hub = point.bus._shards.of("s").hub  # pyright: ignore[reportPrivateUsage]
    subscription = await hub.subscribe("s", SubscriptionOptions(Selection(frozenset())))
    await point.session.head()
    subscription.close()
    return True


async def _forget_key(point: Point) -> bool:
    """Repeats a publish without its key."""
    await point.session.publish(said(point.same_word()))
    return True


class _Mixed:
    """Answers in the order of the requests, even if a caller has stopped waiting for one."""

    def __init__(self) -> None:
        self._answers: list[asyncio.Task[SessionHead]] = []

    async def __call__(self, point: Point) -> bool:
        self._answers.append(asyncio.create_task(point.session.head()))
        head = await asyncio.shield(self._answers[0])
        del self._answers[0]
        return head.session == point.session.id


MUTANTS = {
    "swallows": Call(_swallow),
    "translates": Call(_translate),
    "leaves its link": Call(_keep_link),
    "leaves a task": Call(_keep_task),
    "goes on following": Call(_keep_following),
    "doubles": Call(_forget_key),
    "mixes answers up": Call(_Mixed()),
}
