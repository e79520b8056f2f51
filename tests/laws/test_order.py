"""The publishes of one bus to one session are in the log in the order of the calls, whichever task runs next."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random

import anyio
import pytest

from lanebus import Bounds, Bus, BusError, ExtensionMessage, ImageBlock, MediaRef, Session, UserMessage
from lanebus.bus.messages import Publishable
from tests.support.laws.tiny import LAW_TINY, is_tiny
from tests.support.log.said import read
from tests.support.servers.proxy import Proxy, proxy
from tests.support.servers.real import RealServer
from tests.support.suite.scale import count, randomness

ROUNDS = range(count(8, least=2))

CALLS = 600
"""publishes of a round"""

MOST = 20
"""number of rounds after which a planted fault counts as not found; every second round finds one"""

INLINE_LIMIT_BYTES = 150
"""media from this size on are stored before the publish is queued"""

QUEUE_BYTES = (1, 400, 2_000, 5_000)
"""bounds of the queue; a publish has about 150 bytes"""


@dataclass
class Caller:
    """Publishes numbered messages to one session from many tasks, and knows which of them were acknowledged."""

    session: Session
    random: Random
    called: int = 0
    acknowledged: set[int] = field(default_factory=set[int])

    async def call(self) -> None:
        """Publish once, in one of the ways that wait at different places. The number is taken as the call begins."""
        draw, random, session = self.random.random(), self.random, self.session
        self.called += 1
        number, message = self.called, self._message(self.called)
        # Some callers give up while they wait: at their limit, or cancelled between two steps of other tasks.
        seconds = random.choice((0.001, 0.01)) if draw < 0.1 else 30.0
        with anyio.CancelScope() as scope, suppress(BusError):
            if 0.1 <= draw < 0.2:
                self._cancel_soon(scope, random.randrange(6))
            if draw > 0.9:
                outcome = await session.try_publish(message, expected=random.randrange(self.called), wake=False)
                if isinstance(outcome, BusError):
                    return
            else:
                key = f"k{number}" if draw > 0.7 else None
                await session.publish(message, key=key, wake=False, seconds=seconds)
            self.acknowledged.add(number)

    def _message(self, number: int) -> Publishable:
        if self.random.random() < 0.1:
            data = MediaRef.from_bytes(self.random.randbytes(INLINE_LIMIT_BYTES), mime_type="image/png")
            return UserMessage.of(str(number), ImageBlock(media=data))
        return ExtensionMessage.of("number", {"number": number, "pad": "x" * 100})

    def _cancel_soon(self, scope: anyio.CancelScope, steps: int) -> None:
        if steps:
            asyncio.get_running_loop().call_soon(self._cancel_soon, scope, steps - 1)
        else:
            scope.cancel()


async def _numbers(session: Session) -> list[int]:
    found: list[int] = []
    for entry in await read(session):
        match entry.message:
            case ExtensionMessage(data={"number": int(number)}):
                found.append(number)
            case UserMessage() as message:
                found.append(int(message.text_content()))
            case _:
                raise AssertionError(entry)
    return found


@asynccontextmanager
async def _refused(server: RealServer) -> AsyncGenerator[None, None]:
    server.do("CONFIG", "SET", "maxmemory", "1")
    try:
        yield
    finally:
        server.do("CONFIG", "SET", "maxmemory", "0")


async def _disturb(server: RealServer, way: Proxy, random: Random) -> None:
    """Cut a connection, lose an answer, or let the server refuse for some steps of the event loop."""
    match random.randrange(3):
        case 0:
            way.cut()
        case 1:
            way.lose = 1
        case _:
            async with _refused(server):
                for _ in range(random.randrange(20)):
                    await asyncio.sleep(0)


async def _check_round(server: RealServer, number: int, *, faults: float) -> None:
    """Publish from many tasks that begin at random steps of the event loop, then compare the log with the calls."""
    random = randomness("order", number)
    bounds = LAW_TINY if is_tiny(number) else Bounds()
    queue_bytes = QUEUE_BYTES[number // 2 % len(QUEUE_BYTES)]
    bounds = replace(bounds, publish=replace(bounds.publish, queue_bytes=queue_bytes))
    async with proxy(server.socket) as way:
        async with Bus.open(way.url, bounds=bounds, inline_limit_bytes=INLINE_LIMIT_BYTES) as bus:
            caller = Caller(bus.session("s"), random)
            while caller.called < CALLS:
                async with anyio.create_task_group() as tasks:
                    for _ in range(random.randrange(20, 90)):
                        tasks.start_soon(caller.call)
                        if random.random() < 0.8:
                            await asyncio.sleep(0)
                        if random.random() < faults:
                            await _disturb(server, way, random)
        async with server.bus() as bus:
            numbers = await _numbers(bus.session("s"))
    assert [(before, after) for before, after in pairwise(numbers) if before >= after] == [], "not in order"
    assert caller.acknowledged <= set(numbers), "lost"


@pytest.mark.parametrize("number", ROUNDS)
async def test_publishes_over_a_small_queue_are_in_the_order_of_the_calls(valkey: RealServer, number: int) -> None:
    await _check_round(valkey, number, faults=0)


@pytest.mark.parametrize("number", ROUNDS)
async def test_publishes_stay_in_order_over_cuts_lost_answers_and_refusals(valkey: RealServer, number: int) -> None:
    await _check_round(valkey, number, faults=0.02)


def _lets_newcomers_pass(patch: pytest.MonkeyPatch) -> None:
    """Callers that wait, or were admitted and whose tasks have not run yet, are passed by a later call."""
    queued = property(lambda queue: queue._size_bytes + queue._parked_bytes > queue._limit_bytes)
    patch.setattr("lanebus.bus.publishing.publisher.PublishQueue.is_full", queued)


def _passes_media(patch: pytest.MonkeyPatch) -> None:
    """A publish is queued while the media of an earlier one are still being stored."""

    def passes(offload: object, session: str) -> nullcontext[None]:
        del offload, session
        return nullcontext()

    patch.setattr("lanebus.bus.media.store.Offload.turn", passes)


def _admits_the_last(patch: pytest.MonkeyPatch) -> None:
    """The caller that waits the shortest is admitted first."""
    patch.setattr("lanebus.bus.publishing.publisher.OrderedDict", _Reversed)


class _Reversed(OrderedDict[object, None]):
    def popitem(self, last: bool = True) -> tuple[object, None]:
        return super().popitem(not last)


@pytest.mark.full
@pytest.mark.parametrize("plant", [_lets_newcomers_pass, _passes_media, _admits_the_last])
async def test_a_fault_in_the_order_is_found(
    valkey: RealServer, plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="not in order"):  # noqa: PT012  one of the rounds finds it
        for number in range(MOST):
            await _check_round(valkey, number, faults=0)
            valkey.do("FLUSHALL")
