"""Measure the checkpointer beside those of SQLite and plain Redis: a growing conversation, and a thread of 10,000."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# The others' markers of types do not count in a namespace package, and the parameters of some methods are not typed.

import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, ChannelVersions, Checkpoint, empty_checkpoint
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph_checkpoint_plainredis import AsyncRedisSaver
from redis.asyncio import Redis

from bench.embedded import opened_server
from lanebus import Bus
from lanebus.langgraph import LanebusSaver

__all__ = ("main",)

Saver = BaseCheckpointSaver[Any]
MANY = 10_000
Opened = tuple[Saver, Callable[[], Awaitable[int]]]
"""A checkpointer, and what returns the bytes that it has stored."""


async def main() -> None:
    """Print the time and the bytes of one hundred checkpoints, and the time to load the newest."""
    print(f"{'checkpointer':34} {'put, median':>12} {'all':>8} {'load':>9} {'stored':>12}")
    for name, opened in (
        ("LanebusSaver", _lanebus(messages="messages")),
        ("LanebusSaver, nothing shown", _lanebus(messages=None)),
        ("AsyncSqliteSaver", _sqlite()),
        ("plainredis, on the same server", _plain_redis()),
    ):
        async with opened as (saver, stored):
            puts, load = await _conversation(saver)
            figures = f"{statistics.median(puts) * 1e3:9.2f} ms {sum(puts):6.2f} s {load * 1e3:6.2f} ms"
            print(f"{name:34} {figures} {await stored():10,} B")
    print(f"\n{'one thread, a small state':34} {'checkpoints':>12} {'put, median':>12} {'get, median':>12}")
    for name, opened in (
        ("LanebusSaver", _lanebus(messages=None)),
        ("AsyncSqliteSaver", _sqlite()),
        ("plainredis, on the same server", _plain_redis()),
    ):
        async with opened as (saver, _):
            config: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
            for begin, end in ((0, 100), (100, MANY)):
                config, puts, gets = await _thread(saver, config, begin, end)
                put, get = statistics.median(puts) * 1e3, statistics.median(gets) * 1e3
                print(f"{name:34} {end:12,} {put:9.2f} ms {get:9.2f} ms")


async def _conversation(saver: Saver, *, checkpoints: int = 100) -> tuple[list[float], float]:
    """Return the seconds of each put, and of loading the newest checkpoint."""
    config: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    messages, version, puts = list[AnyMessage](), None, list[float]()
    for number in range(checkpoints):
        usage = UsageMetadata(input_tokens=100 * number, output_tokens=50, total_tokens=100 * number + 50)
        answer = AIMessage(f"Answer {number}. " + "word " * 60, id=f"a{number}", usage_metadata=usage)
        messages = [*messages, HumanMessage(f"Question {number}. " + "word " * 20, id=f"q{number}"), answer]
        version = saver.get_next_version(version, None)
        made: Checkpoint = {
            **empty_checkpoint(),
            "channel_values": {"messages": messages},
            "channel_versions": {"messages": version},
        }
        begun = time.perf_counter()
        config = await saver.aput(
            config, made, {"source": "loop", "step": number, "parents": {}}, {"messages": version}
        )
        await saver.aput_writes(config, [("messages", [answer])], f"task-{number}")
        puts.append(time.perf_counter() - begun)
    begun = time.perf_counter()
    found = await saver.aget_tuple({"configurable": {"thread_id": "t", "checkpoint_ns": ""}})
    load = time.perf_counter() - begun
    if found is None or found.checkpoint["channel_values"]["messages"] != messages:
        raise RuntimeError("the checkpointer returned something else than it stored")
    return puts, load


async def _thread(
    saver: Saver, config: RunnableConfig, begin: int, end: int
) -> tuple[RunnableConfig, list[float], list[float]]:
    """Put checkpoints of a small state. Return the newest config, the seconds of the last 100 puts and gets."""
    newest: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    puts, gets = list[float](), list[float]()
    for number in range(begin, end):
        version = f"{number + 1:032}.0"
        made: Checkpoint = {
            **empty_checkpoint(),
            "channel_values": {"counter": number, "text": "word " * 60},
            "channel_versions": {"counter": version, "text": f"{1:032}.0"},
        }
        new: ChannelVersions = {"counter": version} if number else made["channel_versions"]
        begun = time.perf_counter()
        config = await saver.aput(config, made, {"source": "loop", "step": number, "parents": {}}, new)
        puts.append(time.perf_counter() - begun)
        if number >= end - 100:
            begun = time.perf_counter()
            found = await saver.aget_tuple(newest)
            gets.append(time.perf_counter() - begun)
            if found is None or found.checkpoint["channel_values"]["counter"] != number:
                raise RuntimeError("the checkpointer returned something else than it stored")
    return config, puts[-100:], gets


@asynccontextmanager
async def _lanebus(*, messages: str | None) -> AsyncGenerator[Opened]:
    async with opened_server() as (url, client), Bus.open(url) as bus:
        yield LanebusSaver(bus, messages=messages), lambda: _memory(client)


@asynccontextmanager
async def _plain_redis() -> AsyncGenerator[Opened]:
    async with opened_server() as (_, client):
        yield AsyncRedisSaver(client), lambda: _memory(client)


@asynccontextmanager
async def _sqlite() -> AsyncGenerator[Opened]:
    with tempfile.TemporaryDirectory() as directory:

        async def stored() -> int:
            return sum([(await each.stat()).st_size async for each in anyio.Path(directory).iterdir()])

        async with AsyncSqliteSaver.from_conn_string(f"{directory}/log.db") as saver:
            yield saver, stored


async def _memory(client: Redis) -> int:
    """Return the memory of all keys, as the server counts it."""
    keys = cast("AsyncIterator[bytes]", client.scan_iter())
    total = 0
    async for key in keys:
        total += await client.memory_usage(cast("str", key), samples=0) or 0
    return total
