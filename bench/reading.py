"""Measure reads: the time from a publish to the decoded message, loading a history, and the next turn's context."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing
from itertools import count
from statistics import median

from bench.plain import Plain
from bench.rounds import ROUNDS, Compared, Spread, compare, spread
from lanebus import Bus, Lane, LlmMessage, Session
from lanebus.bus.messages import LlmLaneMessage, read_llm
from lanebus.context import WarmContext

__all__ = ("delivery", "loading", "next_context")

DELIVERIES = 1_000
HISTORY = 10_000

_fresh = count()


async def delivery(bus: Bus, plain: Plain, messages: Sequence[LlmMessage]) -> Compared:
    """Measure the median time from the start of a publish until the reader has the decoded message. One message is sent
    at a time."""
    sent = messages[:DELIVERIES]

    async def by_hand() -> float:
        stream, came = f"bench:{next(_fresh)}", asyncio.Event()
        times: list[float] = []

        async def read() -> None:
            last = b"0"
            while len(times) < len(sent):
                for entry_id, fields in await plain.xread(stream, last):
                    read_llm(fields[b"m"])
                    last = entry_id
                    came.set()

        reader = asyncio.create_task(read())
        for message in sent:
            began = time.perf_counter()
            came.clear()
            await plain.xadd(stream, message)
            await came.wait()
            times.append(time.perf_counter() - began)
        await plain.xadd(stream, sent[0])  # redis-py may swallow a cancellation; a last message ends the reader instead
        await reader
        return median(times) * 1e6

    async def followed() -> float:
        session, came = bus.session(f"bench-{next(_fresh)}-delivery"), asyncio.Event()
        times: list[float] = []

        async def read() -> None:
            async with aclosing(session.follow()) as envelopes:
                async for _ in envelopes:
                    came.set()

        reader = asyncio.create_task(read())
        for message in sent:
            began = time.perf_counter()
            came.clear()
            await session.publish(message)
            await came.wait()
            times.append(time.perf_counter() - began)
        reader.cancel()
        await asyncio.wait({reader})
        return median(times) * 1e6

    return await compare("publish to decoded delivery, p50, to XREAD BLOCK", "µs", "≤ 1.6", by_hand, followed)


async def loading(bus: Bus, plain: Plain, messages: Sequence[LlmMessage]) -> Compared:
    """Measure how many entries a second are read and decoded when a whole history is loaded."""
    session = bus.session("bench-history")
    for message in messages[:HISTORY]:
        await plain.xadd("bench:history", message)
    await _fill(session, messages)

    async def by_hand() -> float:
        began = time.perf_counter()
        entries = await plain.xrange("bench:history")
        loaded: list[LlmLaneMessage] = [read_llm(fields[b"m"]) for _, fields in entries]
        return len(loaded) / (time.perf_counter() - began)

    async def ours() -> float:
        began = time.perf_counter()
        loaded = [envelope async for envelope in session.read(lanes={Lane.LLM})]
        return len(loaded) / (time.perf_counter() - began)

    return await compare(f"load and decode {HISTORY:,}, to XRANGE and validate", "1/s", "≥ 1.0", by_hand, ours)


async def next_context(bus: Bus, messages: Sequence[LlmMessage]) -> Spread:
    """Return the milliseconds from a receipt to a context that contains the entry, after `HISTORY` entries."""
    session = bus.session("bench-history")
    await _fill(session, messages)
    warm = WarmContext(session)
    await warm.refresh()
    medians: list[float] = []
    for _ in range(ROUNDS):
        times: list[float] = []
        for message in messages[:50]:
            await session.publish(message)
            began = time.perf_counter()
            context = await warm.refresh()
            _ = context.messages
            times.append(time.perf_counter() - began)
        medians.append(median(times) * 1e3)
    return spread(medians)


async def _fill(session: Session, messages: Sequence[LlmMessage]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for message in messages[:HISTORY]:
            tasks.create_task(session.publish(message))
