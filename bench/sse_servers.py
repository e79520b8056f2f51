"""The servers that `bench.sse` measures, each in a process of its own.

python -m bench.sse_servers lanebus DIR [PAGE]    the page's server, over the bus in DIR, with the files in PAGE
python -m bench.sse_servers starlette    StreamingResponse, with a queue for each subscriber
python -m bench.sse_servers bare    an asyncio server that writes to each socket
"""

import asyncio
import resource
import sys
from collections.abc import AsyncGenerator
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from lanebus import Bus
from lanebus.access import AccessBounds
from lanebus.handlers.serve import serve
from lanebus.handlers.serve.bounds import HttpBounds, UiBounds
from lanebus.handlers.serve.http_server import listen

__all__ = ("TOKEN", "allow_files")

TOKEN = "bench-token-of-one-run"  # noqa: S105  # of a server that runs for seconds
CONNECTIONS = 2_000
FILES = 4_096
"""number of open files, of which each connection needs one"""


def allow_files() -> None:
    """Raise the limit of open files of this process."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, most) if most > 0 else FILES, most))


async def _lanebus(data_dir: Path, page: Path | None = None) -> None:
    access = AccessBounds(requests_per_second=CONNECTIONS, burst=CONNECTIONS, streams=CONNECTIONS)
    http = HttpBounds(connections=CONNECTIONS, address_connections=CONNECTIONS)
    bounds = UiBounds(http=http, access=access, queued=CONNECTIONS)
    files = patch("lanebus.handlers.serve.page.page_folder", lambda: page) if page else nullcontext()
    with files:
        async with Bus.open(data_dir=data_dir) as bus:
            await serve(bus, port=0, token=TOKEN, on_ready=_report, bounds=bounds)


async def _starlette() -> None:
    queues = list[asyncio.Queue[bytes]]()

    async def frames(queue: asyncio.Queue[bytes]) -> AsyncGenerator[bytes]:
        while True:
            yield await queue.get()

    async def events(request: Request) -> Response:
        del request
        queues.append(asyncio.Queue())
        return StreamingResponse(frames(queues[-1]), media_type="text/event-stream")

    async def say(request: Request) -> Response:
        frame = await request.body()
        for queue in queues:
            queue.put_nowait(frame)
        return Response()

    app = Starlette(routes=[Route("/events", events), Route("/say", say, methods=["POST"])])
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, http="h11", log_config=None, access_log=False, lifespan="off"))
    _report(f"http://127.0.0.1:{listener.getsockname()[1]}/")
    await server.serve(sockets=[listener])


async def _bare() -> None:
    writers = list[asyncio.StreamWriter]()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            writers.append(writer)
            return
        size = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        frame = await reader.readexactly(size)
        chunk = b"%x\r\n%s\r\n" % (len(frame), frame)
        for each in writers:
            each.write(chunk)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    _report(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    await server.serve_forever()


def _report(url: str) -> None:
    print(url, flush=True)


if __name__ == "__main__":
    allow_files()
    kind, *folder = sys.argv[1:]
    asyncio.run(_lanebus(*map(Path, folder)) if kind == "lanebus" else _starlette() if kind == "starlette" else _bare())
