"""Streams as the providers' servers send them, read by the SDKs' clients and returned as plain JSON."""

import json
from collections.abc import Sequence
from typing import cast

import httpx2

from lanebus.agent import ModelEvent, Piece
from lanebus.bus.messages import AssistantMessage
from lanebus.handlers.providers import Json
from lanebus.providers import Answer

__all__ = ("folded", "spoken", "through_sdk", "untimed")


async def through_sdk(name: str, events: Sequence[Json], *, by_alias: bool = True) -> list[Json]:
    """Return the events of a stream as the SDK yields them.

    Args:
        name: the provider's form.
        events: what its server sends.
        by_alias: whether Gemini's SDK writes camelCase.
    """
    import anthropic
    import openai
    from google import genai
    from google.genai import types

    def answer(_: httpx2.Request) -> httpx2.Response:
        body = "".join(_line(name, number, event) for number, event in enumerate(events))
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body.encode())

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as transport:
        ours = openai.AsyncOpenAI(api_key="none", http_client=transport, max_retries=0)
        match name:
            case "anthropic":
                theirs = anthropic.AsyncAnthropic(api_key="none", http_client=transport, max_retries=0)
                told = await theirs.messages.create(
                    model="m", max_tokens=9, messages=[{"role": "user", "content": "x"}], stream=True
                )
                return [cast("Json", event.to_dict()) async for event in told]
            case "gemini":
                client = genai.Client(api_key="none", http_options=types.HttpOptions(httpx_async_client=transport))
                found = await client.aio.models.generate_content_stream(model="m", contents="x")
                return [event.model_dump(mode="json", by_alias=by_alias) async for event in found]
            case "openai_chat":
                chunks = await ours.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": "x"}], stream=True
                )
                return [cast("Json", chunk.to_dict()) async for chunk in chunks]
            case _:
                stream = await ours.responses.create(model="m", input="x", stream=True)
                return [cast("Json", event.to_dict()) async for event in stream]


def _line(name: str, number: int, event: Json) -> str:
    numbered = {**event, "sequence_number": number} if name == "openai_responses" else event
    named = f"event: {event['type']}\n" if name in {"anthropic", "openai_responses"} else ""
    return f"{named}data: {json.dumps(numbered)}\n\n"


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
