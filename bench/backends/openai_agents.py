"""Measure the session of OpenAI's Agents SDK beside the SDK's own, in SQLite and in Redis."""

import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from agents import Session, SQLiteSession, TResponseInputItem
from agents.extensions.memory import RedisSession

from bench.embedded import opened_server
from lanebus import Bus
from lanebus.openai_agents import LanebusSession

__all__ = ("main",)

Opened = Callable[[], Session]
"""returns an object for the conversation, which has nothing cached"""
SHORT, LONG, LAST = 1_000, 10_000, 100


async def main() -> None:
    """Print the time of an append and of loading all items, at 1,000 and at 10,000 items."""
    print(f"{'session':34} {'items':>7} {'append, median':>15} {'1,000 appends':>14} {'load all':>10}")
    for name, opened in (("LanebusSession", _lanebus), ("SQLiteSession", _sqlite), ("RedisSession", _redis)):
        async with opened() as new:
            session = new()
            for items in (SHORT, LONG):
                took = await _grown(session, items)
                load = await _loaded(new(), items)
                print(
                    f"{name:34} {items:7,} {statistics.median(took[-LAST:]) * 1e3:12.2f} ms "
                    f"{sum(took[-500:]) * 2:12.2f} s {load * 1e3:7.1f} ms"
                )


async def _grown(session: Session, size: int) -> list[float]:
    """Add a question and an answer a time until there are `size` items. Return the seconds of each item."""
    took = list[float]()
    for number in range(len(await session.get_items()), size, 2):
        items: list[TResponseInputItem] = [
            {"role": "user", "content": f"Question {number}. " + "word " * 20},
            {
                "type": "message",
                "id": f"m{number}",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": f"Answer {number}. " + "word " * 60, "annotations": []}],
            },
        ]
        begun = time.perf_counter()
        await session.add_items(items)
        took.append((time.perf_counter() - begun) / 2)
    return took


async def _loaded(session: Session, size: int) -> float:
    begun = time.perf_counter()
    items = await session.get_items()
    took = time.perf_counter() - begun
    if len(items) != size:
        raise RuntimeError(f"the session returned {len(items)} of {size} items")
    return took


@asynccontextmanager
async def _lanebus() -> AsyncGenerator[Opened]:
    async with opened_server() as (url, _), Bus.open(url) as bus:
        yield lambda: LanebusSession("s", bus)


@asynccontextmanager
async def _redis() -> AsyncGenerator[Opened]:
    async with opened_server() as (_, client):
        yield lambda: RedisSession("s", redis_client=client)


@asynccontextmanager
async def _sqlite() -> AsyncGenerator[Opened]:
    with tempfile.TemporaryDirectory() as directory:
        yield lambda: SQLiteSession("s", f"{directory}/log.db")
