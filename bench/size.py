"""Cost by session size: a publish and a read in sessions of a thousand to a million entries."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from statistics import median

from bench.rounds import ROUNDS, Spread, spread
from lanebus import Bus, Session, UserMessage

__all__ = ("MESSAGE_BYTES", "NEWEST", "SIZES", "CostAt", "by_size", "entry_bytes")

SIZES = (1_000, 10_000, 100_000, 1_000_000)
MESSAGE_BYTES = 300
PUBLISHES = 400
READS = 50
NEWEST = 100
_BATCH = 500


@dataclass(frozen=True, slots=True)
class CostAt:
    """Costs in a session of `size` entries, in microseconds. Each spread covers the medians of all rounds."""

    size: int
    publish: Spread
    """cost of publishing one message"""
    newest: Spread
    """cost of reading the newest `NEWEST` entries"""


async def by_size(bus: Bus) -> tuple[list[CostAt], Spread]:
    """Return the costs at each size, and the ratio of a publish into the largest session to a publish into the
    smallest.

    Each round measures all sizes, so a ratio compares figures of the same round.
    """
    sessions = {size: bus.session(f"size-{size}") for size in SIZES}
    for size, session in sessions.items():
        await fill(session, size)
    found: dict[int, list[tuple[float, float]]] = {size: [] for size in SIZES}
    for number in range(ROUNDS + 1):  # the first round is a warm-up
        for size, session in sessions.items():
            # Publishing makes a small session grow noticeably, so each round uses new small sessions.
            measured = session if size >= SIZES[-2] else bus.session(f"size-{size}-{number}")
            if measured is not session:
                await fill(measured, size)
            costs = (await _publish(measured), await _newest(measured))
            if number:
                found[size].append(costs)
    rows = [
        CostAt(size, *(spread([costs[at] for costs in rounds]) for at in range(2))) for size, rounds in found.items()
    ]
    pairs = zip(found[SIZES[-1]], found[SIZES[0]], strict=True)
    return rows, spread([large[0] / small[0] for large, small in pairs])


async def fill(session: Session, size: int) -> None:
    """Publish messages until the session has `size` entries."""
    message = _message()
    left = size - (await session.head()).position
    while left > 0:
        count = min(left, _BATCH * 16)
        batches = [min(_BATCH, count - at) for at in range(0, count, _BATCH)]
        await asyncio.gather(*(session.publish(*[message] * batch) for batch in batches))
        left -= count


async def entry_bytes(bus: Bus, used: Callable[[], Awaitable[int]]) -> float:
    """Return the server's memory in bytes for one message of `MESSAGE_BYTES` of JSON, the mean over 50,000.

    Args:
        bus: the bus to publish to.
        used: returns the server's memory use in bytes.
    """
    session, message, count = bus.session("entry-bytes"), _message(), 50_000
    await session.publish(message)
    before = await used()
    for _ in range(count // _BATCH):
        await asyncio.gather(*(session.publish(message) for _ in range(_BATCH)))
    await asyncio.sleep(0.2)  # time for the server to free its input buffers
    return (await used() - before) / count


def _message() -> UserMessage:
    """Return a message whose JSON has `MESSAGE_BYTES` bytes."""
    bare = len(UserMessage.text("").to_json().encode())
    return UserMessage.text("x" * (MESSAGE_BYTES - bare))


async def _publish(session: Session) -> float:
    message = _message()
    return await _median(lambda: session.publish(message), PUBLISHES)


async def _newest(session: Session) -> float:
    head = await session.head()
    after = head.cursor_at(head.position - NEWEST)

    async def read() -> int:
        return len([envelope async for envelope in session.read(after=after)])

    return await _median(read, READS)


async def _median(step: Callable[[], Awaitable[object]], count: int) -> float:
    times: list[float] = []
    for _ in range(count):
        began = time.perf_counter()
        await step()
        times.append(time.perf_counter() - began)
    return median(times) * 1e6
