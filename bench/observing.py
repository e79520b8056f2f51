"""Measure what logs, metrics and tracing without an exporter add to a publish, in CPU time of its process."""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, redirect_stderr
from io import StringIO
from itertools import count
from pathlib import Path

import anyio
import httpx2

from bench.rounds import Compared, Measure, compare
from lanebus import Bus, LlmMessage
from lanebus.handlers.agent import ServerHealth, watch_server
from lanebus.handlers.cli.log_options import logging_to_stderr
from lanebus.handlers.serve import DEFAULT_MONITOR_BOUNDS, Observed, ServerReader
from lanebus.handlers.serve.monitor import create_monitor
from lanebus.telemetry import otel_tracing

__all__ = ("observing",)

PUBLISHES = 2_000
"""publishes of one measurement, one at a time"""

SCRAPE_SECONDS = 1.0
"""pause between two scrapes. Prometheus scrapes every 15 to 60 s, which costs that much less"""

_fresh = count()


async def observing(bus: Bus, data_dir: Path, messages: Sequence[LlmMessage]) -> list[Compared]:
    """Compare a publish with one of a process that logs, is scraped, or traces. Baseline: the same bus without."""
    plain = _publishing(bus, messages)
    watched = await compare("… with logs, scraped each second", "µs CPU", "≤ 1.1", plain, _watched(bus, messages))
    async with Bus.open(data_dir=data_dir, tracing=otel_tracing()) as traced:
        tracing = _publishing(traced, messages)
        return [watched, await compare("… with tracing, no exporter", "µs CPU", "≤ 1.02", plain, tracing)]


def _publishing(bus: Bus, messages: Sequence[LlmMessage]) -> Measure:
    async def measure() -> float:
        session = bus.session(f"observed-{next(_fresh)}")
        began = time.process_time()
        for message in messages[:PUBLISHES]:
            await session.publish(message)
        return (time.process_time() - began) / PUBLISHES * 1e6

    return measure


def _watched(bus: Bus, messages: Sequence[LlmMessage]) -> Measure:
    publish = _publishing(bus, messages)

    async def measure() -> float:
        async with _scraped(bus):
            return await publish()

    return measure


@asynccontextmanager
async def _scraped(bus: Bus) -> AsyncGenerator[None]:
    """Log as JSON and scrape the metrics during the block."""
    health = ServerHealth()
    reader = ServerReader(bus, (), DEFAULT_MONITOR_BOUNDS)

    async def observe() -> Observed:
        reading = await reader.read()
        return Observed(bus.log.keys.namespace, bus.monitor.counts(), reading, health, health.reason is None)

    app = create_monitor(observe, lambda: health.reason)
    client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://localhost")

    async def scrape() -> None:
        while True:
            (await client.get("/metrics")).raise_for_status()
            await anyio.sleep(SCRAPE_SECONDS)

    async def watch() -> None:
        await watch_server(bus, health, pause=1.0, seconds=3.0)

    with redirect_stderr(StringIO()), logging_to_stderr("info", "json"):
        async with client, anyio.create_task_group() as tasks:
            tasks.start_soon(scrape)
            tasks.start_soon(watch)
            yield
            tasks.cancel_scope.cancel()
