"""Send one entry to a thousand SSE subscribers over real sockets, beside a bare Starlette and a bare asyncio server.

The client of all three is this process. A subscriber's time begins before the publish, and ends with the last byte.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import cast

from pydantic import JsonValue

from bench.rounds import ROUNDS, Spread, spread
from bench.sse_servers import TOKEN, allow_files
from lanebus import Bus, Delta, ExtensionMessage

__all__ = ("Figure", "Served", "fan_out", "served")

SUBSCRIBERS = 1_000
ENTRIES = 5
"""number of entries in each round"""

TOKENS = 20
IDLE_SECONDS = 5.0
SESSION = "bench-sse"
PATHS = {"lanebus": f"/api/sessions/{SESSION}/events?lanes=all", "starlette": "/events", "bare": "/events"}

Figure = tuple[str, Spread]
"""A description with unit and goal, and the measured values."""


class Subscriber(asyncio.Protocol):
    """Reads one event stream and records when the last frame has arrived."""

    def __init__(self, request: bytes, ready: bytes) -> None:
        self._request, self._ready = request, ready
        self.frames, self.arrived, self.bytes = 0, 0.0, b""
        """number of frames, when the last one ended, and the last bytes"""
        self.is_ready = False
        """whether the stream has begun, and shows what was published before"""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        cast("asyncio.WriteTransport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        """Count the frames that have ended."""
        self.bytes = data
        if not self.is_ready:
            self.is_ready = self._ready in data
        ended = data.count(b"\n\n") - data.count(b": hb\n\n")
        if ended:
            self.frames += ended
            self.arrived = time.perf_counter()


class Served:
    """A server in a process of its own, and its subscribers."""

    def __init__(self, kind: str, pid: int, port: int) -> None:
        self.kind, self._pid, self.port = kind, pid, port
        self.subscribers: list[Subscriber] = []
        self.idle_bytes = 0.0
        """memory of the server for each idle subscriber"""

    async def subscribe(self, count: int) -> None:
        """Open the streams, and measure what they cost."""
        before = self.resident()
        lines = (
            f"GET {PATHS[self.kind]} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        )
        loop, ready = asyncio.get_running_loop(), b"event: caughtup" if self.kind == "lanebus" else b"HTTP/1.1 200 "
        for _ in range(count):
            _, protocol = await loop.create_connection(
                lambda: Subscriber(lines.encode(), ready), "127.0.0.1", self.port
            )
            self.subscribers.append(protocol)
        await _eventually(lambda: all(each.is_ready for each in self.subscribers))
        await asyncio.sleep(1)
        self.idle_bytes = (self.resident() - before) / count

    async def arrivals(self, say: Callable[[], Awaitable[None]]) -> list[float]:
        """Return the milliseconds from the call of `say` to the arrival at each subscriber, in order."""
        wanted = [each.frames + 1 for each in self.subscribers]
        began = time.perf_counter()
        await say()
        await _eventually(
            lambda: all(each.frames >= count for each, count in zip(self.subscribers, wanted, strict=True))
        )
        return sorted((each.arrived - began) * 1e3 for each in self.subscribers)

    async def cpu(self, seconds: float) -> float:
        """Return the share of a core that the server takes now, in percent."""
        before = self._ticks()
        await asyncio.sleep(seconds)
        return (self._ticks() - before) / os.sysconf("SC_CLK_TCK") / seconds * 100

    def resident(self) -> int:
        """Return the memory of the server, in bytes."""
        return int(Path(f"/proc/{self._pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def _ticks(self) -> int:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])


async def fan_out(bus: Bus, data_dir: Path) -> list[Figure]:
    """Measure the three servers in turn, round by round. Linux only: the memory comes from /proc."""
    allow_files()
    session, number = bus.session(SESSION), 0
    async with AsyncExitStack() as stack:
        servers = {kind: await stack.enter_async_context(served(kind, data_dir)) for kind in PATHS}
        await session.publish(ExtensionMessage.of("tick", _data(number)))
        idle_one, frame = 0.0, b""
        for each in servers.values():
            if each.kind == "lanebus":
                await each.subscribe(1)
                idle_one = await each.cpu(IDLE_SECONDS)
            await each.subscribe(SUBSCRIBERS - len(each.subscribers))
        idle_all = await servers["lanebus"].cpu(IDLE_SECONDS)

        async def publish() -> None:
            nonlocal number
            number += 1
            await session.publish(ExtensionMessage.of("tick", _data(number)))

        async def preview(delta: Delta) -> None:
            await session.preview(delta)

        async def post(port: int) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            head = f"POST /say HTTP/1.1\r\nHost: x\r\nContent-Length: {len(frame)}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode() + frame)
            await reader.read()
            writer.close()

        times: dict[str, list[list[float]]] = {kind: [] for kind in PATHS}
        for round_ in range(ROUNDS + 1):
            for _ in range(ENTRIES):
                for kind, each in servers.items():
                    if kind == "lanebus":
                        taken = await each.arrivals(publish)
                        frame = each.subscribers[0].bytes.partition(b"\r\n")[2].removesuffix(b"\r\n")
                    else:
                        taken = await each.arrivals(partial(post, each.port))
                    if round_:  # the first round warms up
                        times[kind].append(taken)
        tokens = list[float]()
        for number in range(TOKENS):
            delta = Delta(kind="text", message_id="m1", delta=f"word {number} ")
            taken = await servers["lanebus"].arrivals(partial(preview, delta))
            tokens.append(taken[int(len(taken) * 0.95)])
    figures = list[Figure]()
    for kind in PATHS:
        for what, share in (("p50", 0.5), ("p99", 0.99)):
            found = [taken[int(len(taken) * share)] for taken in times[kind]]
            figures.append((f"{SUBSCRIBERS:,} SSE subscribers, {kind}, entry to last byte, ms, {what}", spread(found)))
    ratios = [
        ours[int(len(ours) * 0.99)] / theirs[int(len(theirs) * 0.99)]
        for ours, theirs in zip(times["lanebus"], times["starlette"], strict=True)
    ]
    figures.append(("    lanebus to Starlette, p99, goal ≤ 1.0", spread(ratios)))
    figures.append((f"{SUBSCRIBERS:,} SSE subscribers, a token to 95 % of them, ms, goal ≤ 150", spread(tokens)))
    for kind, each in servers.items():
        figures.append((f"an idle SSE subscriber, {kind}, KB, goal ≤ 30", spread([each.idle_bytes / 1_000])))
    figures.append(("one open stream, idle, % of a core, goal < 0.5", spread([idle_one])))
    figures.append((f"{SUBSCRIBERS:,} open streams, idle, % of a core", spread([idle_all])))
    return figures


async def _eventually(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_true():  # noqa: ASYNC110  # an event for each frame would slow down the client
            await asyncio.sleep(0.02)


def _data(number: int) -> JsonValue:
    return {"number": number, "text": "x" * 300}


@asynccontextmanager
async def served(kind: str, data_dir: Path, page: Path | None = None) -> AsyncGenerator[Served]:
    """Run one of the servers of `bench.sse_servers` during the block.

    Args:
        kind: which one.
        data_dir: the data of lanebus.
        page: folder of the bundled page; None means that lanebus serves the files that it has.
    """
    arguments = [kind, *map(str, [data_dir, *([page] if page else [])] if kind == "lanebus" else [])]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.sse_servers", *arguments), stdout=asyncio.subprocess.PIPE
    )
    try:
        url = (await cast("asyncio.StreamReader", process.stdout).readline()).decode()
        yield Served(kind, process.pid, int(url.partition("//")[2].partition("/")[0].rpartition(":")[2]))
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
