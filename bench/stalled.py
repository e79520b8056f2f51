"""Let clients stall on event streams for a minute, and measure the server's memory and what live clients notice."""

import asyncio
import re
import socket
from functools import partial
from pathlib import Path

from bench.rounds import spread
from bench.sse import Figure, served
from bench.sse_servers import TOKEN, allow_files
from lanebus import Bus, ExtensionMessage

__all__ = ("stalled_clients",)

STALLED, LIVE, SECONDS, RESUMED = 200, 10, 60.0, 5
ENTRIES, ENTRY_BYTES = 24, 1_000_000


async def stalled_clients(bus: Bus, data_dir: Path) -> list[Figure]:
    """Stall clients on a session of large entries, while live clients follow a small one. Linux only.

    Raises:
        RuntimeError: a client that resumed did not get every entry once.
    """
    allow_files()
    big, small, number = bus.session("bench-sse-big"), bus.session("bench-sse"), 0
    for _ in range(ENTRIES):
        await big.publish(ExtensionMessage.of("big", "x" * ENTRY_BYTES))
    await small.publish(ExtensionMessage.of("tick", number))
    async with served("lanebus", data_dir) as server:
        await server.subscribe(LIVE)
        before, most, times = server.resident(), 0, list[float]()
        clients = [_stalled(server.port) for _ in range(STALLED)]
        end = asyncio.get_running_loop().time() + SECONDS
        while asyncio.get_running_loop().time() < end:
            number += 1
            taken = await server.arrivals(partial(_publish, bus, number))
            times.append(taken[-1])
            most = max(most, server.resident() - before)
            await asyncio.sleep(0.1)
        for client in clients:
            client.close()
        for _ in range(RESUMED):
            await _resume(server.port)
    times.sort()
    what = f"{LIVE} live clients beside them, entry to the last, ms, p50 of {len(times)}"
    return [
        (f"{STALLED} stalled clients, memory, MB, goal < 64", spread([most / 1_048_576])),
        (what, spread([times[len(times) // 2]])),
        ("    the same, p99", spread([times[int(len(times) * 0.99)]])),
    ]


async def _publish(bus: Bus, number: int) -> None:
    await bus.session("bench-sse").publish(ExtensionMessage.of("tick", number))


def _head(port: int, last: str) -> bytes:
    lines = (
        "GET /api/sessions/bench-sse-big/events HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"Authorization: Bearer {TOKEN}",
        f"Last-Event-ID: {last}",
    )
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _stalled(port: int) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    client.sendall(_head(port, "0"))
    return client


async def _resume(port: int) -> None:
    """Read a third, disconnect, and read the rest."""
    seen, last = list[int](), "0"
    for wanted in (ENTRIES // 3, ENTRIES):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
        writer.write(_head(port, last))
        async with asyncio.timeout(60):
            while len(seen) < wanted:
                line = await reader.readuntil(b"\n")
                if found := re.match(rb"id: ((\d+)-0\S*)\n", line):
                    if not seen or int(found[2]) != seen[-1]:  # a notice has the id of the entry before it
                        seen.append(int(found[2]))
                    last = found[1].decode()
        writer.close()
    if seen != [*range(1, ENTRIES + 1)]:
        raise RuntimeError(f"a client that resumed got the positions {seen}")
