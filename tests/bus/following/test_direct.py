"""A receiver that takes items in the hub's task gets each item once and in order, together with those it refused."""

from contextlib import aclosing

import anyio
import anyio.lowlevel

from lanebus import Envelope, ExtensionMessage, Notice
from tests.support.page.serving import temporary_bus
from tests.support.servers.real import eventually
from tests.support.suite.scale import randomness


class Moody:
    """Receives some items, refuses some, and fails at some."""

    def __init__(self) -> None:
        self.chance, self.items = randomness("moods"), list[Envelope | Notice]()
        self.direct = 0

    def can_receive(self, item: Envelope | Notice) -> bool:
        del item
        if self.chance.random() < 0.1:
            raise RuntimeError("the caller meets this error, and not the hub")
        return self.chance.random() < 0.6

    def receive(self, item: Envelope | Notice) -> None:
        self.direct += 1
        self.items.append(item)


async def test_items_that_a_direct_receiver_takes_or_refuses_arrive_once_and_in_order() -> None:
    moody, count = Moody(), 300
    async with temporary_bus() as bus, anyio.create_task_group() as tasks:
        session, caught_up = bus.session("s"), anyio.Event()

        async def follow() -> None:
            async with aclosing(session.subscribe(direct=moody)) as items:
                async for item in items:
                    moody.items.append(item)
                    caught_up.set()
                    if moody.chance.random() < 0.1:
                        await anyio.lowlevel.checkpoint()

        tasks.start_soon(follow)
        with anyio.fail_after(120):
            await caught_up.wait()
            for number in range(count):
                await session.publish(ExtensionMessage.of("tick", number))
            await eventually(lambda: len(moody.items) > count)
        tasks.cancel_scope.cancel()
    assert [item.position for item in moody.items if isinstance(item, Envelope)] == [*range(1, count + 1)]
    assert 0 < moody.direct < count
