"""A local HTTP server that streams a model's answers from a test's script, for any API."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import anyio
from pydantic import JsonValue

from tests.support.agent.agents import Pause

__all__ = ("Cut", "Frame", "Json", "ModelApi", "Request", "Status", "Step", "serve_api")

Json = dict[str, JsonValue]


class Cut:
    """The connection breaks in the middle of the body."""


class Status:
    """A response that is not a stream."""

    def __init__(self, code: int, body: Json, **headers: str) -> None:
        self.code, self.body = code, body
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


Step = Json | bytes | Pause | Cut | Status
"""an event, bytes to send unchanged, or a step that pauses or ends the stream"""

Frame = Callable[[Json], bytes]


class Request(NamedTuple):
    """A client's request."""

    target: str
    """method and path"""
    headers: dict[str, str]
    """by header name in lower case"""
    body: Json


class ModelApi:
    """Answers each request with the next script. It keeps the requests, and reports when a client disconnects."""

    def __init__(self, frame: Frame, scripts: Sequence[Sequence[Step]], chunk_bytes: int | None = None) -> None:
        """
        Args:
            chunk_bytes: how the body is cut into HTTP's chunks; None: one an event.
        """
        self._frame, self._scripts, self._chunk_bytes = frame, [*scripts], chunk_bytes
        self.asked: list[Request] = []
        self.gone = anyio.Event()

    @property
    def requests(self) -> list[Json]:
        """The bodies of the requests."""
        return [request.body for request in self.asked]

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection with one request."""
        try:
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            self.asked.append(Request(first.rpartition(" ")[0], headers, json.loads(body or b"{}")))
            await self._play(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.gone.set()
        finally:
            writer.close()

    async def _play(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script = self._scripts.pop(0)
        if script and isinstance(refusal := script[0], Status):
            body = json.dumps(refusal.body).encode()
            headers = {"content-type": "application/json", "content-length": str(len(body)), **refusal.headers}
            writer.write(_head(refusal.code, headers) + body)
            await writer.drain()
            return
        writer.write(_head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"}))
        for step in script:
            if isinstance(step, Pause):
                if not await _wait(step, reader, writer):
                    self.gone.set()
                    return
            elif isinstance(step, Cut):
                await writer.drain()
                return
            elif not isinstance(step, Status):
                self._write(writer, step if isinstance(step, bytes) else self._frame(step))
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        size = self._chunk_bytes or len(data)
        for start in range(0, len(data), size):
            chunk = data[start : start + size]
            writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")


async def _wait(pause: Pause, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Wait for the test or for the client's disconnection. Return whether the client is still connected.

    A client that drops its stream closes the connection, which ends the read.
    """
    await writer.drain()
    pause.reached.set()
    gone, over = asyncio.ensure_future(reader.read(1)), asyncio.ensure_future(pause.over.wait())
    try:
        await asyncio.wait((gone, over), return_when=asyncio.FIRST_COMPLETED)
        return not gone.done()
    finally:
        for task in (gone, over):
            task.cancel()
        await asyncio.gather(gone, over, return_exceptions=True)


def _head(code: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {code} Said", "connection: close", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


@asynccontextmanager
async def serve_api(
    frame: Frame, *scripts: Sequence[Step], chunk_bytes: int | None = None
) -> AsyncGenerator[tuple[ModelApi, str], None]:
    """Run the server during the block. Yield it and its address."""
    api = ModelApi(frame, scripts, chunk_bytes)
    server = await asyncio.start_server(api.answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield api, f"http://127.0.0.1:{port}"
    finally:
        server.close()
        await server.wait_closed()
