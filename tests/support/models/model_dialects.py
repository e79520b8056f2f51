"""The same answer in each provider's API, and a model of each provider that calls a local server."""

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, Unpack

from pydantic import JsonValue

from lanebus.handlers.agent.models.provider_model import (
    AnthropicModel,
    GeminiModel,
    ModelOptions,
    OpenAIChatModel,
    OpenAIResponsesModel,
    ProviderModel,
)
from tests.support.models import messages_api
from tests.support.models.model_api import Json, Status

__all__ = ("DIALECTS", "Call", "Dialect", "Said", "Taken", "Text")

Stop = Literal["stop", "length", "filter", "tools"]


class Text(NamedTuple):
    """A text or a thought, in pieces."""

    pieces: Sequence[str]
    kind: Literal["text", "thinking"] = "text"


class Call(NamedTuple):
    """A tool call, with its arguments in fragments."""

    id: str
    name: str
    fragments: Sequence[str]


class Taken(NamedTuple):
    """Token counts as lanebus counts them."""

    input: int = 100
    cached: int = 40
    output: int = 7


@dataclass(frozen=True)
class Said:
    """An answer."""

    blocks: Sequence[Text | Call] = (Text(("Hel", "lo")),)
    stop: Stop = "stop"
    taken: Taken = field(default_factory=Taken)


class _Make(Protocol):
    def __call__(
        self, url: str, *, retries: int = 0, **options: Unpack[ModelOptions]
    ) -> AbstractAsyncContextManager[ProviderModel]: ...


@dataclass(frozen=True)
class Dialect:
    """The format of one API."""

    form: str
    """name of the form whose rules check the requests"""
    target: str
    """method and path of the request"""
    frame: Callable[[Json], bytes]
    stream: Callable[[Said], list[Json]]
    end: bytes
    """bytes that end a stream"""
    make: _Make
    fault: Json
    """event that reports a failure in the middle of a stream"""
    refusal: Callable[[int, str, str], Json]
    """returns the body of an HTTP error from its status, code and text"""
    overloaded: tuple[int, str]
    """status and code of an overloaded server"""

    def status(self, code: int, word: str, text: str, **headers: str) -> Status:
        """Return an HTTP error."""
        return Status(code, self.refusal(code, word, text), **headers)


def _data(event: Json) -> bytes:
    return f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


# --- Anthropic ------------------------------------------------------------------------------------------------------

_ANTHROPIC_STOP = {"stop": "end_turn", "length": "max_tokens", "filter": "refusal", "tools": "tool_use"}


def _anthropic(said: Said) -> list[Json]:
    taken = said.taken
    events: list[Json] = [
        messages_api.start(input_tokens=taken.input, cache_read_input_tokens=taken.cached),
        {"type": "ping"},
    ]
    for index, block in enumerate(said.blocks):
        match block:
            case Text(pieces=pieces, kind="text"):
                begun: Json = {"type": "text", "text": ""}
                told = [messages_api.delta(index, "text_delta", text=piece) for piece in pieces]
            case Text(pieces=pieces):
                begun = {"type": "thinking", "thinking": "", "signature": ""}
                told = [messages_api.delta(index, "thinking_delta", thinking=piece) for piece in pieces]
                told.append(messages_api.delta(index, "signature_delta", signature="c2ln"))
            case Call(id=call_id, name=name, fragments=fragments):
                begun = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
                told = [messages_api.delta(index, "input_json_delta", partial_json=piece) for piece in fragments]
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        events += told
        events.append({"type": "content_block_stop", "index": index})
    events.append(messages_api.stop(_ANTHROPIC_STOP[said.stop], output_tokens=taken.output))
    return [*events, {"type": "message_stop"}]


@asynccontextmanager
async def _anthropic_model(
    url: str, *, retries: int = 0, **options: Unpack[ModelOptions]
) -> AsyncGenerator[ProviderModel, None]:
    from anthropic import AsyncAnthropic

    async with AsyncAnthropic(api_key="none", base_url=url, max_retries=retries) as client:
        yield AnthropicModel("claude-test", client=client, **options)


# --- OpenAI ---------------------------------------------------------------------------------------------------------

_CHAT_STOP = {"stop": "stop", "length": "length", "filter": "content_filter", "tools": "tool_calls"}


def _chunk(*choices: Json, **more: JsonValue) -> Json:
    """the fields that all chunks share"""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "gpt-test-2099",
        "choices": [*choices],
        **more,
    }


def _choice(finish: str | None = None, **delta: JsonValue) -> Json:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def _chat(said: Said) -> list[Json]:
    chunks = [_chunk(_choice(role="assistant", content=""))]
    calls = 0
    for block in said.blocks:
        if isinstance(block, Text):
            name = "content" if block.kind == "text" else "reasoning_content"
            chunks += [_chunk(_choice(**{name: piece})) for piece in block.pieces]
            continue
        function: Json = {"name": block.name, "arguments": ""}
        call: Json = {"index": calls, "id": block.id, "type": "function", "function": function}
        chunks.append(_chunk(_choice(tool_calls=[call])))
        chunks += [
            _chunk(_choice(tool_calls=[{"index": calls, "function": {"arguments": piece}}]))
            for piece in block.fragments
        ]
        calls += 1
    taken = said.taken
    usage: Json = {
        "prompt_tokens": taken.input + taken.cached,
        "completion_tokens": taken.output,
        "total_tokens": sum(taken),
        "prompt_tokens_details": {"cached_tokens": taken.cached},
    }
    return [*chunks, _chunk(_choice(_CHAT_STOP[said.stop])), _chunk(usage=usage)]


def _responses(said: Said) -> list[Json]:
    events: list[Json] = [
        {"type": "response.created", "response": _response("in_progress")},
        {"type": "response.in_progress", "response": _response("in_progress")},
    ]
    items: list[JsonValue] = []
    for index, block in enumerate(said.blocks):
        at: Json = {"output_index": index, "item_id": f"item_{index}"}
        begun, grown, whole = _item(index, block)
        events.append({"type": "response.output_item.added", "output_index": index, "item": begun})
        events += [{**event, **at} for event in grown]
        events.append({"type": "response.output_item.done", "output_index": index, "item": whole})
        items.append(whole)
    taken = said.taken
    usage: Json = {
        "input_tokens": taken.input + taken.cached,
        "input_tokens_details": {"cached_tokens": taken.cached},
        "output_tokens": taken.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": sum(taken),
    }
    reasons = {"length": "max_output_tokens", "filter": "content_filter"}
    status = "incomplete" if said.stop in reasons else "completed"
    ended = _response(status, output=items, usage=usage)
    if said.stop in reasons:
        ended["incomplete_details"] = {"reason": reasons[said.stop]}
    events.append({"type": f"response.{status}", "response": ended})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _response(status: str, **more: JsonValue) -> Json:
    told: Json = {"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-test-2099", "status": status}
    return {**told, "output": [], "error": None, "incomplete_details": None, "usage": None, **more}


def _item(index: int, block: Text | Call) -> tuple[Json, list[Json], Json]:
    """Return an item's first form, its deltas, and its complete form."""
    item_id = f"item_{index}"
    match block:
        case Text(pieces=pieces, kind="text"):
            item: Json = {"id": item_id, "type": "message", "role": "assistant", "status": "completed"}
            text: Json = {"type": "output_text", "text": "".join(pieces), "annotations": []}
            kind = "response.output_text.delta"
            grown: list[Json] = [{"type": kind, "content_index": 0, "delta": piece} for piece in pieces]
            return {**item, "status": "in_progress", "content": []}, grown, {**item, "content": [text]}
        case Text(pieces=pieces):
            item = {"id": item_id, "type": "reasoning", "summary": []}
            kind = "response.reasoning_summary_text.delta"
            grown = [{"type": kind, "summary_index": 0, "delta": piece} for piece in pieces]
            return item, grown, {**item, "summary": [{"type": "summary_text", "text": "".join(pieces)}]}
        case Call(id=call_id, name=name, fragments=fragments):
            item = {"id": item_id, "type": "function_call", "call_id": call_id, "name": name, "arguments": ""}
            kind = "response.function_call_arguments.delta"
            grown = [{"type": kind, "delta": piece} for piece in fragments]
            return item, grown, {**item, "arguments": "".join(fragments), "status": "completed"}


def _event(event: Json) -> bytes:
    return f"event: {event['type']}\n".encode() + _data(event)


@asynccontextmanager
async def _chat_model(
    url: str, *, retries: int = 0, **options: Unpack[ModelOptions]
) -> AsyncGenerator[ProviderModel, None]:
    from openai import AsyncOpenAI

    async with AsyncOpenAI(api_key="none", base_url=f"{url}/v1", max_retries=retries) as client:
        yield OpenAIChatModel("gpt-test", client=client, **options)


@asynccontextmanager
async def _responses_model(
    url: str, *, retries: int = 0, **options: Unpack[ModelOptions]
) -> AsyncGenerator[ProviderModel, None]:
    from openai import AsyncOpenAI

    async with AsyncOpenAI(api_key="none", base_url=f"{url}/v1", max_retries=retries) as client:
        yield OpenAIResponsesModel("gpt-test", client=client, **options)


def _openai_refusal(_: int, code: str, text: str) -> Json:
    return {"error": {"message": text, "type": "some_error", "param": None, "code": code}}


# --- Gemini ---------------------------------------------------------------------------------------------------------

_GEMINI_STOP = {"stop": "STOP", "length": "MAX_TOKENS", "filter": "SAFETY", "tools": "STOP"}


def _gemini(said: Said) -> list[Json]:
    parts: list[Json] = []
    for block in said.blocks:
        if isinstance(block, Call):
            arguments = json.loads("".join(block.fragments) or "{}")
            parts.append({"functionCall": {"id": block.id, "name": block.name, "args": arguments}})
        elif block.kind == "text":
            parts.extend({"text": piece} for piece in block.pieces)
        else:
            parts.extend({"text": piece, "thought": True} for piece in block.pieces)
    taken = said.taken
    so_far: Json = {"promptTokenCount": taken.input + taken.cached, "cachedContentTokenCount": taken.cached}
    usage: Json = {**so_far, "candidatesTokenCount": taken.output, "totalTokenCount": sum(taken)}
    chunks = [_candidates({"content": {"role": "model", "parts": [part]}, "index": 0}, so_far) for part in parts]
    last: Json = {"content": {"role": "model", "parts": []}, "finishReason": _GEMINI_STOP[said.stop], "index": 0}
    return [*chunks, _candidates(last, usage)]


def _candidates(candidate: Json, usage: Json) -> Json:
    ids: Json = {"modelVersion": "gemini-test-001", "responseId": "gem_1"}
    return {"candidates": [candidate], "usageMetadata": usage, **ids}


def _gemini_frame(event: Json) -> bytes:
    return _data(event).replace(b"\n\n", b"\r\n\r\n")


@asynccontextmanager
async def _gemini_model(
    url: str, *, retries: int = 0, **options: Unpack[ModelOptions]
) -> AsyncGenerator[ProviderModel, None]:
    from google import genai
    from google.genai import types

    retry = types.HttpRetryOptions(attempts=retries + 1, initial_delay=0.001, max_delay=0.002)
    client = genai.Client(api_key="none", http_options=types.HttpOptions(base_url=url, retry_options=retry))
    try:
        yield GeminiModel("gemini-test", client=client, **options)
    finally:
        await client.aio.aclose()
        client.close()


def _gemini_refusal(status: int, code: str, text: str) -> Json:
    return {"error": {"code": status, "message": text, "status": code}}


DIALECTS = {
    "anthropic": Dialect(
        form="anthropic",
        target="POST /v1/messages",
        frame=messages_api.frame,
        stream=_anthropic,
        end=b"",
        make=_anthropic_model,
        fault=messages_api.error("overloaded_error", "Overloaded"),
        refusal=lambda _, code, text: messages_api.error(code, text),
        overloaded=(529, "overloaded_error"),
    ),
    "openai-responses": Dialect(
        form="openai_responses",
        target="POST /v1/responses",
        frame=_event,
        stream=_responses,
        end=b"",
        make=_responses_model,
        fault={"type": "error", "code": "server_error", "message": "Overloaded", "param": None, "sequence_number": 9},
        refusal=_openai_refusal,
        overloaded=(500, "server_error"),
    ),
    "openai-chat": Dialect(
        form="openai_chat",
        target="POST /v1/chat/completions",
        frame=_data,
        stream=_chat,
        end=b"data: [DONE]\n\n",
        make=_chat_model,
        fault=_openai_refusal(500, "server_error", "Overloaded"),
        refusal=_openai_refusal,
        overloaded=(500, "server_error"),
    ),
    "gemini": Dialect(
        form="gemini",
        target="POST /v1/models/gemini-test:streamGenerateContent?alt=sse",
        frame=_gemini_frame,
        stream=_gemini,
        end=b"",
        make=_gemini_model,
        fault=_gemini_refusal(503, "UNAVAILABLE", "Overloaded"),
        refusal=_gemini_refusal,
        overloaded=(503, "UNAVAILABLE"),
    ),
}
"""name of the API in `PROVIDERS` → dialect"""
