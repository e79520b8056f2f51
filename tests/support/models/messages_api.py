"""A local server for the streaming Messages API that follows a test's script."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pydantic import JsonValue

from tests.support.models.model_api import Cut, Json, ModelApi, Status, Step, serve_api

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

__all__ = ("Cut", "ModelApi", "Status", "Step", "block", "delta", "error", "finish", "frame", "serve", "start", "stop")


def frame(event: Json) -> bytes:
    """Return an event as the stream encodes it."""
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


@asynccontextmanager
async def serve(*scripts: Sequence[Step]) -> "AsyncGenerator[tuple[ModelApi, AsyncAnthropic], None]":
    """Yield the server, and a client of the real SDK that talks to it and never retries."""
    from anthropic import AsyncAnthropic

    async with (
        serve_api(frame, *scripts) as (api, url),
        AsyncAnthropic(api_key="none", base_url=url, max_retries=0) as client,
    ):
        yield api, client


def start(**usage: JsonValue) -> Json:
    """Return the first events of a stream."""
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
    """Return the events of a content block, from start to stop."""
    return [
        {"type": "content_block_start", "index": index, "content_block": content},
        *deltas,
        {"type": "content_block_stop", "index": index},
    ]


def delta(index: int, kind: str, **fields: JsonValue) -> Json:
    """Return a delta of a content block."""
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def stop(reason: str, **usage: JsonValue) -> Json:
    """Return the event that announces the end of a stream, with the usage so far."""
    ending: Json = {"stop_reason": reason, "stop_sequence": None}
    return {"type": "message_delta", "delta": ending, "usage": usage}


def finish(reason: str = "end_turn", **usage: JsonValue) -> list[Step]:
    """Return the last events of a stream."""
    return [stop(reason, **usage), {"type": "message_stop"}]


def error(kind: str, text: str) -> Json:
    """Return an error in the middle of a stream."""
    return {"type": "error", "error": {"type": kind, "message": text}}
