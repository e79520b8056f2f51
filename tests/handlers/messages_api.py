"""A local server that speaks the streaming Messages API as a test tells it to."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio
from anthropic import AsyncAnthropic
from pydantic import JsonValue

from tests.handlers.agents import Pause

__all__ = ("Cut", "MessagesApi", "Status", "block", "delta", "error", "finish", "serve", "start", "stop")

Json = dict[str, JsonValue]


class Cut:
    """The connection breaks in the middle of the body."""


class Status:
    """An answer that is no stream."""

    def __init__(self, code: int, body: Json) -> None:
        self.code, self.body = code, body


Step = Json | Pause | Cut | Status


class MessagesApi:
    """Answers each request with the next script; keeps the requests' bodies and tells when a client went away."""

    def __init__(self, *scripts: Sequence[Step]) -> None:
        self._scripts = list(scripts)
        self.requests: list[Json] = []
        self.gone = anyio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next(int(line[15:]) for line in head.splitlines() if line.lower().startswith("content-length:"))
            self.requests.append(json.loads(await reader.readexactly(length)))
            await self._play(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.gone.set()
        finally:
            writer.close()

    async def _play(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script = self._scripts.pop(0)
        if script and isinstance(refusal := script[0], Status):
            body = json.dumps(refusal.body).encode()
            head = f"HTTP/1.1 {refusal.code} No\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
            writer.write(head.encode() + b"connection: close\r\n\r\n" + body)
            await writer.drain()
            return
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for step in script:
            if isinstance(step, Pause):
                await writer.drain()
                step.reached.set()
                # A client that lets go of its stream closes the connection, which ends the read.
                if not await reader.read(1):
                    self.gone.set()
                    return
            elif isinstance(step, Cut):
                await writer.drain()
                return
            elif not isinstance(step, Status):
                text = f"event: {step['type']}\ndata: {json.dumps(step)}\n\n".encode()
                writer.write(f"{len(text):x}\r\n".encode() + text + b"\r\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()


@asynccontextmanager
async def serve(*scripts: Sequence[Step]) -> AsyncGenerator[tuple[MessagesApi, AsyncAnthropic], None]:
    """The server, and a real client of the SDK that talks to it and never tries again."""
    api = MessagesApi(*scripts)
    server = await asyncio.start_server(api.answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = AsyncAnthropic(api_key="none", base_url=f"http://127.0.0.1:{port}", max_retries=0)
    try:
        yield api, client
    finally:
        await client.close()
        server.close()
        await server.wait_closed()


def start(**usage: JsonValue) -> Json:
    """How a stream begins."""
    message: Json = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-test-20990101",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 25, "output_tokens": 1, **usage},
    }
    return {"type": "message_start", "message": message}


def block(index: int, content: Json, *deltas: Json) -> list[Step]:
    """A content block from start to stop."""
    return [
        {"type": "content_block_start", "index": index, "content_block": content},
        *deltas,
        {"type": "content_block_stop", "index": index},
    ]


def delta(index: int, kind: str, **fields: JsonValue) -> Json:
    """A piece of a content block."""
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def stop(reason: str, **usage: JsonValue) -> Json:
    """What a stream says of its end, with the usage so far."""
    ending: Json = {"stop_reason": reason, "stop_sequence": None}
    return {"type": "message_delta", "delta": ending, "usage": usage}


def finish(reason: str = "end_turn", **usage: JsonValue) -> list[Step]:
    """The end of a stream."""
    return [stop(reason, **usage), {"type": "message_stop"}]


def error(kind: str, text: str) -> Json:
    """An error in the middle of a stream."""
    return {"type": "error", "error": {"type": kind, "message": text}}
