"""Measure the checkpointer beside those of SQLite and plain Redis: a conversation that grows by two messages a time."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# The others' markers of types do not count in a namespace package, and the parameters of some methods are not typed.

import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, empty_checkpoint
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph_checkpoint_plainredis import AsyncRedisSaver
from redis.asyncio import Redis

from lanebus import Bus
from lanebus.bus.embedded.server import open_server, stop_server
from lanebus.langgraph import LanebusSaver

__all__ = ("main",)

Saver = BaseCheckpointSaver[Any]
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


@asynccontextmanager
async def _lanebus(*, messages: str | None) -> AsyncGenerator[Opened]:
    async with _server() as (socket, client), Bus.open(f"unix://{socket}") as bus:
        yield LanebusSaver(bus, messages=messages), lambda: _memory(client)


@asynccontextmanager
async def _plain_redis() -> AsyncGenerator[Opened]:
    async with _server() as (_, client):
        yield AsyncRedisSaver(client), lambda: _memory(client)


@asynccontextmanager
async def _sqlite() -> AsyncGenerator[Opened]:
    with tempfile.TemporaryDirectory() as directory:

        async def stored() -> int:
            return sum([(await each.stat()).st_size async for each in anyio.Path(directory).iterdir()])

        async with AsyncSqliteSaver.from_conn_string(f"{directory}/log.db") as saver:
            yield saver, stored


@asynccontextmanager
async def _server() -> AsyncGenerator[tuple[str, Redis]]:
    """Yield the socket of an embedded server of its own, and a client. It is on disk before it acknowledges."""
    data_dir = Path(tempfile.mkdtemp(prefix="lanebus-bench-"))
    try:
        async with open_server(data_dir) as server, Redis(unix_socket_path=str(server.socket)) as client:
            yield str(server.socket), client
    finally:
        await stop_server(data_dir)  # before the directory is deleted: a running server writes into it
        shutil.rmtree(data_dir)


async def _memory(client: Redis) -> int:
    """Return the memory of all keys, as the server counts it."""
    keys = cast("AsyncIterator[bytes]", client.scan_iter())
    total = 0
    async for key in keys:
        total += await client.memory_usage(cast("str", key), samples=0) or 0
    return total
