"""Streams as OpenAI's server sends them, read by the SDK's client and returned as plain JSON."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

import httpx2

from lanebus.agent import ModelEvent, Piece
from lanebus.bus.messages import AssistantMessage
from lanebus.handlers.providers import Json
from lanebus.providers import Answer

if TYPE_CHECKING:
    import openai

__all__ = ("chat_chunks", "folded", "responses_events", "spoken", "untimed")


async def chat_chunks(chunks: Sequence[Json]) -> list[Json]:
    """Return the chunks of Chat Completions as the SDK yields them."""
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    async with _client(body) as client:
        stream = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "x"}], stream=True
        )
        return [cast("Json", chunk.to_dict()) async for chunk in stream]


async def responses_events(events: Sequence[Json]) -> list[Json]:
    """Return the events of Responses as the SDK yields them. Each gets its sequence number."""
    body = "".join(
        f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': number})}\n\n"
        for number, event in enumerate(events)
    )
    async with _client(body) as client:
        stream = await client.responses.create(model="m", input="x", stream=True)
        return [cast("Json", event.to_dict()) async for event in stream]


def folded(answer: Answer, events: Sequence[Json]) -> list[ModelEvent]:
    """Return everything that the answer yields for these events."""
    return [told for event in events for told in answer.take(event)]


def spoken(told: Sequence[ModelEvent]) -> dict[int, str]:
    """Return the text of the deltas, by block."""
    texts: dict[int, str] = {}
    for piece in told:
        if isinstance(piece, Piece):
            texts[piece.block] = texts.get(piece.block, "") + piece.text
    return texts


def untimed(message: AssistantMessage) -> AssistantMessage:
    """Return the message without its timestamp."""
    assert message.timestamp is not None
    return message.model_copy(update={"timestamp": None})


@asynccontextmanager
async def _client(body: str) -> "AsyncGenerator[openai.AsyncOpenAI, None]":
    import openai

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body.encode())

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as transport:
        yield openai.AsyncOpenAI(api_key="none", http_client=transport, max_retries=0)
