"""Answers of each provider, whole and streamed, and the parts that their tests build others from."""

import json
from typing import ClassVar, NamedTuple, cast

from pydantic import JsonValue

from lanebus.bus.messages import MediaRef

__all__ = (
    "CALLED",
    "CITED",
    "HIDDEN",
    "REASONED",
    "SAID",
    "SAMPLES",
    "Chat",
    "Gemini",
    "Responses",
    "Sample",
    "anthropic_block",
)
Json = dict[str, JsonValue]


class Sample(NamedTuple):
    """One answer, whole and as the events that stream it."""

    model: str
    """the model that was asked"""
    whole: Json
    stream: list[Json]
    names: dict[str, str]
    """tools by their names on the wire"""


# --- Anthropic ----------------------------------------------------------------------------------------------------

CITED: Json = {
    "type": "web_search_result_location",
    "url": "https://example.com/a",
    "title": "A",
    "encrypted_index": "eA==",
    "cited_text": "so",
}
_RESULT: Json = {"type": "web_search_result", "url": "https://example.com/a", "title": "A", "encrypted_content": "eA=="}
_BLOCKS: list[Json] = [
    {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"},
    {"type": "redacted_thinking", "data": "xx"},
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "ü"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [_RESULT]},
    {"type": "text", "text": "It is so.", "citations": [CITED]},
    {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a", "n": [1, 2.5, None]}},
]
_ANTHROPIC: Json = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-5-5-20990101",
    "content": [*_BLOCKS],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {
        "input_tokens": 25,
        "output_tokens": 40,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "cache_creation": {"ephemeral_5m_input_tokens": 15, "ephemeral_1h_input_tokens": 5},
    },
}


def anthropic_block(kind: str, index: int = 0, **fields: JsonValue) -> Json:
    return {"type": f"content_block_{kind}", "index": index, **fields}


def _anthropic_stream() -> list[Json]:
    """Each block begins empty and grows in pieces."""
    usage = {**cast("Json", _ANTHROPIC["usage"]), "output_tokens": 1}
    first: Json = {**_ANTHROPIC, "content": [], "stop_reason": None, "usage": usage}
    events: list[Json] = [{"type": "message_start", "message": first}, {"type": "ping"}]
    for index, block in enumerate(_BLOCKS):
        begun, deltas = _in_pieces(block)
        events.append(anthropic_block("start", index, content_block=begun))
        events += [anthropic_block("delta", index, delta=delta) for delta in deltas]
        events.append(anthropic_block("stop", index))
    ending: Json = {"stop_reason": "tool_use", "stop_sequence": None}
    return [
        *events,
        {"type": "message_delta", "delta": ending, "usage": {"output_tokens": 40}},
        {"type": "message_stop"},
    ]


def _in_pieces(block: Json) -> tuple[Json, list[Json]]:
    match block:
        case {"type": "thinking", "thinking": str(text), "signature": str(signature)}:
            deltas: list[Json] = [{"type": "thinking_delta", "thinking": piece} for piece in (text[:4], text[4:])]
            deltas.append({"type": "signature_delta", "signature": signature})
            return {"type": "thinking", "thinking": "", "signature": ""}, deltas
        case {"type": "text", "text": str(text)}:
            deltas = [{"type": "text_delta", "text": piece} for piece in (text[:3], text[3:])]
            deltas.insert(1, {"type": "citations_delta", "citation": CITED})
            return {"type": "text", "text": "", "citations": None}, deltas
        case {"type": "tool_use" | "server_tool_use", "input": dict(arguments)}:
            told = json.dumps(arguments)
            pieces = ["", told[:5], told[5:]]
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        case _:
            return block, []


# --- Gemini -------------------------------------------------------------------------------------------------------


class Gemini:
    """Parts of Gemini's answers."""

    model = "gemini-3-pro"
    signature = "c2+/"
    png = MediaRef.from_bytes(b"\x89PNG\r\n\x1a\n\xff\xfe\xfd")
    usage: ClassVar[Json] = {
        "promptTokenCount": 100,
        "toolUsePromptTokenCount": 7,
        "cachedContentTokenCount": 40,
        "candidatesTokenCount": 20,
        "thoughtsTokenCount": 5,
        "totalTokenCount": 132,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 70}, {"modality": "IMAGE", "tokenCount": 30}],
    }

    @staticmethod
    def response(*parts: Json, finish: str | None = "STOP", **fields: JsonValue) -> Json:
        candidate: Json = {"index": 0}
        if parts:
            candidate["content"] = {"role": "model", "parts": [*parts]}
        if finish:
            candidate["finishReason"] = finish
        return {"candidates": [candidate], "modelVersion": f"{Gemini.model}-001", "responseId": "r1", **fields}

    @staticmethod
    def call(name: str, call_id: str | None = None, **arguments: JsonValue) -> Json:
        return {"functionCall": {"name": name, "args": arguments, **({"id": call_id} if call_id else {})}}


_CALLED = Gemini.call("f", "g1", path="ü", snake_case=None)
_IMAGE: Json = {"inlineData": {"mimeType": "image/png", "data": Gemini.png.data}}
_SIGNED: Json = {"text": " so.", "thoughtSignature": Gemini.signature}
_GEMINI = Gemini.response(
    {"text": "Let me see.", "thought": True}, {"text": "It is"}, _SIGNED, _CALLED, _IMAGE, usageMetadata=Gemini.usage
)
_GEMINI_STREAM = [
    Gemini.response({"text": "Let me ", "thought": True}, finish=None, usageMetadata={"promptTokenCount": 9}),
    Gemini.response({"text": "see.", "thought": True}, finish=None),
    Gemini.response({"text": "It "}, finish=None),
    Gemini.response({"text": "is"}, _SIGNED, finish=None),
    Gemini.response(_CALLED, _IMAGE, finish=None),
    Gemini.response({"text": ""}, usageMetadata=Gemini.usage),
]


# --- Chat Completions ---------------------------------------------------------------------------------------------


class Chat:
    """Parts of the answers of Chat Completions."""

    head: ClassVar[Json] = {"id": "chatcmpl-1", "created": 1, "model": "gpt-5.2-2026-01-01"}
    usage: ClassVar[Json] = {
        "prompt_tokens": 100,
        "completion_tokens": 30,
        "total_tokens": 130,
        "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10, "audio_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 20, "audio_tokens": 2},
    }

    @staticmethod
    def call(call_id: str, name: str, arguments: str) -> Json:
        return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}

    @staticmethod
    def response(message: Json, finish: JsonValue = "stop", **fields: JsonValue) -> Json:
        choice: Json = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
        return {**Chat.head, "object": "chat.completion", "choices": [choice], **fields}

    @staticmethod
    def chunk(delta: Json | None = None, finish: JsonValue = None, **fields: JsonValue) -> Json:
        choice: Json = {"index": 0, "delta": delta or {}, "finish_reason": finish}
        return {**Chat.head, "object": "chat.completion.chunk", "choices": [choice], "usage": None, **fields}

    @staticmethod
    def begins(index: int, call_id: str, name: str) -> Json:
        return Chat.chunk({"tool_calls": [{"index": index, **Chat.call(call_id, name, "")}]})

    @staticmethod
    def grows(index: int, fragment: str) -> Json:
        return Chat.chunk({"tool_calls": [{"index": index, "function": {"arguments": fragment}}]})


_CHAT = Chat.response(
    {
        "content": "Let me see.",
        "tool_calls": [Chat.call("call_1", "fs_read", '{"path": "a"}'), Chat.call("call_2", "add", '{"a": 1')],
    },
    "tool_calls",
    usage=Chat.usage,
)
_CHAT_STREAM: list[Json] = [
    Chat.chunk({"role": "assistant", "content": "", "refusal": None}),
    Chat.chunk({"content": "Let me"}),
    Chat.chunk({"content": " see."}),
    Chat.begins(0, "call_1", "fs_read"),
    Chat.grows(0, '{"path"'),
    Chat.begins(1, "call_2", "add"),
    Chat.grows(0, ': "a"}'),
    Chat.grows(1, '{"a": 1'),
    Chat.chunk(finish="tool_calls"),
    {**Chat.head, "object": "chat.completion.chunk", "choices": [], "usage": Chat.usage},
]


# --- Responses ----------------------------------------------------------------------------------------------------


class Responses:
    """Parts of the answers of the Responses API."""

    usage: ClassVar[Json] = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
        "output_tokens": 30,
        "output_tokens_details": {"reasoning_tokens": 20},
        "total_tokens": 130,
    }
    citation: ClassVar[Json] = {
        "type": "url_citation",
        "url": "https://example.com",
        "title": "E",
        "start_index": 0,
        "end_index": 1,
    }

    @staticmethod
    def reasoning(item_id: str, *texts: str, **fields: JsonValue) -> Json:
        summary: list[JsonValue] = [{"type": "summary_text", "text": text} for text in texts]
        return {"type": "reasoning", "id": item_id, "summary": summary, **fields}

    @staticmethod
    def message(item_id: str, *parts: Json, status: str = "completed") -> Json:
        return {"type": "message", "id": item_id, "role": "assistant", "status": status, "content": [*parts]}

    @staticmethod
    def text(words: str, *annotations: Json) -> Json:
        return {"type": "output_text", "text": words, "annotations": [*annotations]}

    @staticmethod
    def call(item_id: str, call_id: str, name: str, arguments: str, status: str = "completed") -> Json:
        called: Json = {"type": "function_call", "id": item_id, "call_id": call_id, "name": name}
        return {**called, "arguments": arguments, "status": status}

    @staticmethod
    def response(*output: Json, status: str = "completed", **fields: JsonValue) -> Json:
        head: Json = {"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-5.2-2026-01-01"}
        tools: Json = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
        return {**head, "status": status, "output": [*output], **tools, **fields}

    @staticmethod
    def event(kind: str, index: int, **fields: JsonValue) -> Json:
        return {"type": f"response.{kind}", "output_index": index, "item_id": "x", **fields}

    @staticmethod
    def ended(final: Json) -> Json:
        return {"type": f"response.{final['status']}", "response": final}


REASONED = Responses.reasoning("rs_1", "First.", "Then.", encrypted_content="gAAA")
HIDDEN = Responses.reasoning("rs_2", encrypted_content="gBBB")
SAID = Responses.message("msg_1", Responses.text("Let me see.", Responses.citation))
CALLED = Responses.call("fc_1", "call_1", "fs_read", '{"path": "a"}')
_CALLED_AGAIN = Responses.call("fc_2", "call_2", "add", '{"a": 1')
_RESPONSE = Responses.response(REASONED, SAID, HIDDEN, CALLED, _CALLED_AGAIN, usage=Responses.usage)


def _summary_part(index: int, words: str) -> list[Json]:
    def part(text: str) -> Json:
        return {"type": "summary_text", "text": text}

    return [
        Responses.event("reasoning_summary_part.added", 0, summary_index=index, part=part("")),
        Responses.event("reasoning_summary_text.delta", 0, summary_index=index, delta=words[:2]),
        Responses.event("reasoning_summary_text.delta", 0, summary_index=index, delta=words[2:]),
        Responses.event("reasoning_summary_text.done", 0, summary_index=index, text=words),
        Responses.event("reasoning_summary_part.done", 0, summary_index=index, part=part(words)),
    ]


def _spoken_call(index: int, item: Json) -> list[Json]:
    arguments = cast("str", item["arguments"])
    return [
        Responses.event("output_item.added", index, item={**item, "arguments": "", "status": "in_progress"}),
        Responses.event("function_call_arguments.delta", index, delta=arguments[:5]),
        Responses.event("function_call_arguments.delta", index, delta=arguments[5:]),
        Responses.event("function_call_arguments.done", index, arguments=arguments),
        Responses.event("output_item.done", index, item=item),
    ]


_RESPONSE_STREAM: list[Json] = [
    {"type": "response.created", "response": Responses.response(status="in_progress")},
    {"type": "response.in_progress", "response": Responses.response(status="in_progress")},
    Responses.event("output_item.added", 0, item=Responses.reasoning("rs_1")),
    *_summary_part(0, "First."),
    *_summary_part(1, "Then."),
    Responses.event("output_item.done", 0, item=REASONED),
    Responses.event("output_item.added", 1, item=Responses.message("msg_1", status="in_progress")),
    Responses.event("content_part.added", 1, content_index=0, part=Responses.text("")),
    Responses.event("output_text.delta", 1, content_index=0, delta="Let me", logprobs=[]),
    Responses.event("output_text.delta", 1, content_index=0, delta=" see.", logprobs=[]),
    Responses.event(
        "output_text.annotation.added", 1, content_index=0, annotation_index=0, annotation=Responses.citation
    ),
    Responses.event("output_text.done", 1, content_index=0, text="Let me see.", logprobs=[]),
    Responses.event("content_part.done", 1, content_index=0, part=Responses.text("Let me see.", Responses.citation)),
    Responses.event("output_item.done", 1, item=SAID),
    Responses.event("output_item.added", 2, item=HIDDEN),
    Responses.event("output_item.done", 2, item=HIDDEN),
    *_spoken_call(3, CALLED),
    *_spoken_call(4, _CALLED_AGAIN),
    Responses.ended(_RESPONSE),
]
_NAMES = {"fs_read": "fs.read"}
SAMPLES = {
    "anthropic": Sample("claude-sonnet-5-5", _ANTHROPIC, _anthropic_stream(), {}),
    "gemini": Sample(Gemini.model, _GEMINI, _GEMINI_STREAM, {}),
    "openai_chat": Sample("gpt-5.2", _CHAT, _CHAT_STREAM, _NAMES),
    "openai_responses": Sample("gpt-5.2", _RESPONSE, _RESPONSE_STREAM, _NAMES),
}
