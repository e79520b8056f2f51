"""Measure other libraries that store an agent's log, with the same messages in one run: `python -m bench --peers`.

`pip install --group peers` installs them. A library that is not installed is left out with a note. Libraries for Redis
use the same server with the same `appendfsync`. eventsourcing writes to SQLite on the same disk, in threads.
LangGraph's savers are not measured: they need a server with the modules JSON and Search.
"""

import asyncio
import json
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from uuid import uuid4

from bench.plain import Plain
from bench.rounds import ROUNDS, Spread, spread
from lanebus import Bus, LlmMessage

__all__ = ("PeerFigures", "peers")

CALLERS, MANY, ONE_BY_ONE, READ = 64, 3_200, 500, 2_000

Item = tuple[LlmMessage, dict[str, object], str]
"""One message in three forms: lanebus's class, a JSON object, and JSON text."""


@dataclass(frozen=True)
class Log:
    """One session, stored by one of the libraries."""

    append: Callable[[Item], Awaitable[object]]
    """stores an item; returns once the library has acknowledged it"""
    read: Callable[[int], Awaitable[int]]
    """takes the expected number of items; reads all items as Python values and returns the number read"""


OpenLog = Callable[[str], Log]
Opened = AbstractAsyncContextManager[OpenLog]


@dataclass(frozen=True, slots=True)
class PeerFigures:
    """The figures of one library."""

    name: str
    alone: Spread
    """microseconds for an append, one at a time"""
    together: Spread
    """appends a second, 64 callers at once"""
    read: Spread
    """entries read a second"""


async def peers(bus: Bus, plain: Plain, socket: Path, messages: Sequence[LlmMessage]) -> list[PeerFigures | str]:
    """Measure each library in turn, round by round. For a library that cannot run here, the result is a text with the
    reason."""
    items = [
        (message, cast("dict[str, object]", json.loads(message.to_json())), message.to_json()) for message in messages
    ]
    opened: dict[str, tuple[Opened, OpenLog]] = {}
    found: list[PeerFigures | str] = []
    for name, opener in {
        "plain redis-py: XADD, XRANGE": lambda: _plain(plain),
        "lanebus": lambda: _lanebus(bus),
        "FastStream: publish to a stream, subscriber": lambda: _faststream(socket),
        "OpenAI Agents: RedisSession": lambda: _agents(socket),
        "eventsourcing: SQLite recorder": _eventsourcing,
        "NATS JetStream: publish, pull": _nats,
    }.items():
        try:
            context: Opened = opener()
            opened[name] = context, await context.__aenter__()
        except (ImportError, OSError) as error:
            found.append(f"{name}: not measured: {error}")
    figures: dict[str, list[tuple[float, float, float]]] = {name: [] for name in opened}
    for _ in range(ROUNDS):
        for name, (_, open_log) in opened.items():
            figures[name].append(await _measure(open_log, items))
    for context, _ in opened.values():
        await context.__aexit__(None, None, None)
    for name, rows in figures.items():
        alone, together, read = zip(*rows, strict=True)
        found.append(PeerFigures(name, spread([*alone]), spread([*together]), spread([*read])))
    return found


async def _measure(open_log: OpenLog, items: Sequence[Item]) -> tuple[float, float, float]:
    one = open_log(f"alone-{uuid4().hex}")
    began = time.perf_counter()
    for item in items[:ONE_BY_ONE]:
        await one.append(item)
    alone = (time.perf_counter() - began) / ONE_BY_ONE * 1e6
    many = open_log(f"many-{uuid4().hex}")
    waiting = iter(items[:MANY])

    async def caller() -> None:
        for item in waiting:
            await many.append(item)

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    together = MANY / (time.perf_counter() - began)
    began = time.perf_counter()
    number = await many.read(MANY)
    if number != MANY:
        raise RuntimeError(f"read {number} of {MANY} entries")
    return alone, together, MANY / (time.perf_counter() - began)


@asynccontextmanager
async def _plain(plain: Plain) -> AsyncGenerator[OpenLog]:
    async def read(stream: str) -> int:
        return len([json.loads(fields[b"m"]) for _, fields in await plain.xrange(stream)])

    yield lambda name: Log(lambda item: plain.xadd(name, item[0]), lambda _: read(name))


@asynccontextmanager
async def _lanebus(bus: Bus) -> AsyncGenerator[OpenLog]:
    async def read(name: str) -> int:
        return len([envelope async for envelope in bus.session(name).read()])

    yield lambda name: Log(lambda item: bus.session(name).publish(item[0]), lambda _: read(name))


@asynccontextmanager
async def _faststream(socket: Path) -> AsyncGenerator[OpenLog]:
    redis = import_module("faststream.redis")
    broker = redis.RedisBroker(f"unix://{socket}", logger=None)
    await broker.connect()

    async def read(name: str, wanted: int) -> int:
        # FastStream starts only the subscribers that exist when their broker starts, so each read has its own broker.
        reader = redis.RedisBroker(f"unix://{socket}", logger=None)
        seen, done = count(1), asyncio.Event()

        async def handle(body: dict[str, object]) -> None:
            if body and next(seen) == wanted:
                done.set()

        reader.subscriber(stream=redis.StreamSub(name, last_id="0", batch=False, max_records=100))(handle)
        await reader.start()
        await done.wait()
        await reader.stop()
        return wanted

    yield lambda name: Log(lambda item: broker.publish(item[1], stream=name), lambda wanted: read(name, wanted))
    await broker.stop()


@asynccontextmanager
async def _agents(socket: Path) -> AsyncGenerator[OpenLog]:
    session = import_module("agents.extensions.memory.redis_session").RedisSession
    client = import_module("redis.asyncio").Redis(unix_socket_path=str(socket))

    def open_log(name: str) -> Log:
        log = session(name, redis_client=client)

        async def read(_: int) -> int:
            return len(await log.get_items())

        return Log(lambda item: log.add_items([item[1]]), read)

    yield open_log
    await client.aclose()


@asynccontextmanager
async def _eventsourcing() -> AsyncGenerator[OpenLog]:
    sqlite, persistence = import_module("eventsourcing.sqlite"), import_module("eventsourcing.persistence")
    folder = Path(tempfile.mkdtemp(prefix="lanebus-bench-"))
    recorder = sqlite.SQLiteAggregateRecorder(sqlite.SQLiteDatastore(str(folder / "events.db")))
    recorder.create_table()

    def open_log(_: str) -> Log:
        place = SimpleNamespace(id=uuid4(), version=count())

        async def append(item: Item) -> None:
            event = persistence.StoredEvent(place.id, next(place.version), "message", item[2].encode())
            await asyncio.to_thread(recorder.insert_events, [event])

        async def read(_: int) -> int:
            events = await asyncio.to_thread(recorder.select_events, place.id)
            return len([json.loads(event.state) for event in events])

        return Log(append, read)

    yield open_log
    recorder.datastore.close()
    shutil.rmtree(folder)


@asynccontextmanager
async def _nats() -> AsyncGenerator[OpenLog]:
    nats = import_module("nats")
    binary = shutil.which("nats-server")
    if binary is None:
        raise OSError("needs nats-server on the PATH")
    folder = Path(tempfile.mkdtemp(prefix="lanebus-bench-"))
    settings = folder / "nats.conf"
    settings.write_text(f'port: 42229\njetstream {{ store_dir: "{folder}", sync_interval: always }}\n')
    server = await asyncio.create_subprocess_exec(binary, "-c", str(settings), stderr=asyncio.subprocess.DEVNULL)
    client = await nats.connect("nats://127.0.0.1:42229", max_reconnect_attempts=50, reconnect_time_wait=0.1)
    stream = client.jetstream()

    def open_log(name: str) -> Log:
        made = asyncio.create_task(stream.add_stream(name=name, subjects=[name]))

        async def append(item: Item) -> None:
            await made
            await stream.publish(name, item[2].encode())

        async def read(wanted: int) -> int:
            found = 0
            puller = await stream.pull_subscribe(name)
            while found < wanted:
                for message in await puller.fetch(100):
                    found += bool(json.loads(message.data))
                    await message.ack()
            return found

        return Log(append, read)

    yield open_log
    await client.close()
    server.terminate()
    await server.wait()
    shutil.rmtree(folder)
