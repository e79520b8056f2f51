"""Follow many sessions: ten thousand in one process, and one session with a thousand followers."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from statistics import median

from bench.rounds import ROUNDS, Spread, spread
from lanebus import Bus, Envelope, LlmMessage, Notice, Session

__all__ = ("Figure", "many_followers", "many_sessions_followed")

SESSIONS = 10_000
FOLLOWERS = 1_000
WAKES = 200
"""number of publishes in each round"""

FAN_OUTS = 20
IDLE_SECONDS = 5.0

Figure = tuple[str, Spread]
"""A description with unit and goal, and the measured values."""


async def many_sessions_followed(ours: Bus, theirs: Bus, messages: Sequence[LlmMessage]) -> list[Figure]:
    """Measure the time to start, the time from a publish on another bus to its delivery, and the idle CPU use."""
    names = [f"bench-{number}" for number in range(SESSIONS)]
    began = time.perf_counter()
    async with _followed([ours.session(name) for name in names]) as arrivals:
        joined = time.perf_counter() - began
        cpu, began = time.process_time(), time.perf_counter()
        await asyncio.sleep(IDLE_SECONDS)
        idle = (time.process_time() - cpu) / (time.perf_counter() - began) * 100
        wakes, publishes = list[float](), list[float]()
        for round_ in range(ROUNDS):
            woken, published = list[float](), list[float]()
            for number in range(WAKES):
                session = theirs.session(names[(round_ * WAKES + number) * 37 % SESSIONS])
                began = time.perf_counter()
                await session.publish(messages[number])
                published.append(time.perf_counter() - began)
                woken.append(await arrivals.get() - began)
            wakes.append(median(woken) * 1e3)
            publishes.append(median(published) * 1e3)
    return [
        (f"{SESSIONS:,} sessions followed, seconds to begin, goal < 10", spread([joined])),
        (f"{SESSIONS:,} sessions followed, publish to delivery, ms, p50, goal ≤ 1.5", spread(wakes)),
        ("    of which the publish itself, ms", spread(publishes)),
        (f"{SESSIONS:,} sessions followed, idle, % of a core, goal < 2", spread([idle])),
    ]


async def many_followers(ours: Bus, theirs: Bus, messages: Sequence[LlmMessage]) -> list[Figure]:
    """Measure the time from a publish until the last of the session's many followers has the entry."""
    times = list[float]()
    session = ours.session("bench-fan-out")
    async with _followed([session] * FOLLOWERS) as arrivals:
        for _ in range(ROUNDS):
            fanned = list[float]()
            for message in messages[:FAN_OUTS]:
                began = time.perf_counter()
                await theirs.session(session.id).publish(message)
                last = max([await arrivals.get() for _ in range(FOLLOWERS)])
                fanned.append(last - began)
            times.append(median(fanned) * 1e3)
    return [(f"publish to the last of {FOLLOWERS:,} followers of one session, ms, p50, goal ≤ 60", spread(times))]


@asynccontextmanager
async def _followed(sessions: Sequence[Session]) -> AsyncGenerator[asyncio.Queue[float]]:
    """Follow the sessions during the block, which begins once all have caught up. Yield a queue of the arrival
    times."""
    arrivals, to_catch_up, ready = asyncio.Queue[float](), len(sessions), asyncio.Event()

    async def follow(session: Session) -> None:
        nonlocal to_catch_up
        async with aclosing(session.subscribe()) as items:
            async for item in items:
                match item:
                    case Envelope():
                        arrivals.put_nowait(time.perf_counter())
                    case Notice():
                        to_catch_up -= 1
                        if not to_catch_up:
                            ready.set()

    tasks = [asyncio.create_task(follow(session)) for session in sessions]
    await ready.wait()
    try:
        yield arrivals
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
