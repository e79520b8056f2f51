"""An answer of Anthropic's API makes the same message, whole or streamed, with or without the SDK."""

import copy
import json
from decimal import Decimal
from typing import cast

import httpx2
import pytest
from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import (
    AnnotationRef,
    AssistantMessage,
    Rates,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    UnknownBlock,
)
from lanebus.providers import AnthropicAnswer, from_anthropic, to_anthropic
from tests.support.log.entries import asks, context_of, results
from tests.support.providers.anthropic_rules import require_legal

Json = dict[str, JsonValue]
MODEL = "claude-sonnet-5-5"

SEARCH: Json = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "ü"}}
FOUND: Json = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [
        {"type": "web_search_result", "url": "https://example.com/a", "title": "A", "encrypted_content": "eA=="}
    ],
}
CITED: Json = {
    "type": "web_search_result_location",
    "url": "https://example.com/a",
    "title": "A",
    "encrypted_index": "eA==",
    "cited_text": "so",
}
CONTENT: list[JsonValue] = [
    {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"},
    {"type": "redacted_thinking", "data": "xx"},
    SEARCH,
    FOUND,
    {"type": "text", "text": "It is so.", "citations": [CITED]},
    {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a", "n": [1, 2.5, None]}},
]
USAGE: Json = {
    "input_tokens": 25,
    "output_tokens": 40,
    "cache_read_input_tokens": 100,
    "cache_creation_input_tokens": 20,
    "cache_creation": {"ephemeral_5m_input_tokens": 15, "ephemeral_1h_input_tokens": 5},
}
WHOLE: Json = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-5-5-20990101",
    "content": CONTENT,
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": USAGE,
}


def streamed() -> list[Json]:
    """The same as events: each block begins empty and grows in pieces."""
    first: Json = {**WHOLE, "content": [], "stop_reason": None, "usage": {**USAGE, "output_tokens": 1}}
    events: list[Json] = [{"type": "message_start", "message": first}, {"type": "ping"}]
    for index, block in enumerate(CONTENT):
        assert isinstance(block, dict)
        begun, deltas = _in_pieces(block)
        events.append(_event("start", index, content_block=begun))
        events += [_event("delta", index, delta=delta) for delta in deltas]
        events.append(_event("stop", index))
    ending: Json = {"stop_reason": "tool_use", "stop_sequence": None}
    events.append({"type": "message_delta", "delta": ending, "usage": {"output_tokens": 40}})
    return [*events, {"type": "message_stop"}]


def _event(kind: str, index: int, **fields: JsonValue) -> Json:
    return {"type": f"content_block_{kind}", "index": index, **fields}


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


def plain(message: AssistantMessage) -> AssistantMessage:
    """Without what differs by nature: the moment, and keys of the raw usage that the SDK adds."""
    assert message.usage is not None
    return message.model_copy(update={"timestamp": None, "usage": message.usage.model_copy(update={"raw": None})})


def test_a_response_becomes_a_message_with_model_content_and_stop_reason() -> None:
    message = from_anthropic(WHOLE, model=MODEL, rates=Rates(input=Decimal(1), output=Decimal(2)))
    assert message.content == (
        ThinkingBlock(text="Let me see.", signature="c2ln"),
        RedactedThinkingBlock(data="xx"),
        UnknownBlock(raw=SEARCH),
        UnknownBlock(raw=FOUND),
        TextBlock(text="It is so.", annotations=(AnnotationRef(url="https://example.com/a", title="A"),)),
        ToolCallBlock(id="toolu_1", name="read", arguments={"path": "a", "n": [1, 2.5, None]}),
    )
    assert (message.stop_reason, message.raw_stop_reason, message.response_id) == ("toolUse", "tool_use", "msg_1")
    assert (message.provider, message.model) == ("anthropic", MODEL)
    assert message.metadata == {"responseModel": "claude-sonnet-5-5-20990101"}
    usage = message.usage
    assert usage is not None
    assert (usage.input, usage.output, usage.cache_read, usage.cache_write, usage.total_tokens) == (
        25,
        40,
        100,
        20,
        185,
    )
    assert usage.raw == USAGE
    assert usage.cost is not None
    assert usage.cost.total == Decimal(105) / 1_000_000


def test_a_stream_builds_the_same_message_as_the_whole_response() -> None:
    answer = AnthropicAnswer(MODEL)
    for event in streamed():
        answer.take(event)
    assert answer.is_complete
    assert plain(answer.message()) == plain(from_anthropic(WHOLE, model=MODEL))
    usage = answer.message().usage
    assert usage is not None
    assert usage.raw == USAGE


def test_events_are_not_changed() -> None:
    events = streamed()
    before = copy.deepcopy(events)
    answer = AnthropicAnswer(MODEL)
    for event in events:
        answer.take(event)
    assert events == before


async def test_the_real_sdk_gives_the_same_whole_and_streamed() -> None:
    import anthropic

    lines = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in streamed())

    def answering(request: httpx2.Request) -> httpx2.Response:
        if json.loads(request.content).get("stream"):
            return httpx2.Response(200, text=lines, headers={"content-type": "text/event-stream"})
        return httpx2.Response(200, json=WHOLE)

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answering)) as transport:
        client = anthropic.AsyncAnthropic(api_key="none", http_client=transport, max_retries=0)
        whole = await client.messages.create(model=MODEL, max_tokens=9, messages=[{"role": "user", "content": "hi"}])
        events = await client.messages.create(
            model=MODEL, max_tokens=9, messages=[{"role": "user", "content": "hi"}], stream=True
        )
        answer = AnthropicAnswer(MODEL)
        async for event in events:
            answer.take(event.to_dict())  # type: ignore[arg-type]  # plain JSON, which the SDK calls objects
    expected = plain(from_anthropic(WHOLE, model=MODEL))
    assert plain(from_anthropic(whole.to_dict(), model=MODEL)) == expected  # type: ignore[arg-type]  # the same
    assert plain(answer.message()) == expected


def test_an_answer_goes_back_to_its_model_unchanged() -> None:
    context = context_of(asks("a"), from_anthropic(WHOLE, model=MODEL), results("toolu_1", "1"))
    body = to_anthropic(context).body
    require_legal(body)
    blocks = [block for block in CONTENT if isinstance(block, dict)]
    said: list[JsonValue] = [{key: item for key, item in block.items() if key != "citations"} for block in blocks]
    assert cast("list[Json]", body["messages"])[1] == {"role": "assistant", "content": said}


def test_blocks_of_the_providers_own_tools_go_to_no_other_model() -> None:
    request = to_anthropic(context_of(asks("a"), from_anthropic(WHOLE, model=MODEL)), model="claude-opus-4-5")
    assert "srvtoolu_1" not in json.dumps(request.body)
    unknown = "messages.1: unknown left out: assistants cannot send it"
    citations = "messages.1: annotations of a text left out: no request has a field for it"
    assert request.warnings[:-1] == (unknown, unknown, citations)
    assert request.warnings[-1].startswith("messages.1: thinking left out: ")


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"type": "error"}, "type"),
        ({"type": None}, "type"),
        ({"content": "text"}, "type"),
        ({"content": {}}, "type"),
        ({"content": [1]}, "content.0"),
        ({"content": [{"type": "text", "text": "a"}, {}]}, "content.1"),
        ({"content": [{"type": 1}]}, "content.0"),
        ({"content": [{"type": "text", "text": 5}]}, "content.0.text"),
        ({"content": [{"type": "thinking", "thinking": "a", "signature": 5}]}, "content.0.signature"),
        ({"content": [{"type": "redacted_thinking"}]}, "content.0.data"),
        ({"content": [{"type": "tool_use", "name": "read"}]}, "content.0.id"),
        ({"content": [{"type": "tool_use", "id": "a", "name": "read", "input": [1]}]}, "content.0.input"),
        ({"usage": None}, "usage"),
        ({"usage": [1]}, "usage"),
    ],
)
def test_a_malformed_response_is_refused_with_the_path_to_its_fault(change: Json, path: str) -> None:
    with pytest.raises(DecodeError) as refused:
        from_anthropic({**WHOLE, **change})
    assert refused.value.path == path


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"type": 1},
        {"type": "message_start"},
        {"type": "message_start", "message": "x"},
        {"type": "content_block_start", "index": 0},
        {"type": "content_block_start", "index": "0", "content_block": {"type": "text"}},
        {"type": "content_block_start", "index": 0, "content_block": {"text": "a"}},
        {"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta", "text": "a"}},
        {"type": "content_block_delta", "index": 0, "delta": "a"},
        {"type": "content_block_stop"},
        {"type": "message_delta"},
        {"type": "message_delta", "delta": []},
    ],
)
def test_a_malformed_event_is_refused(event: Json) -> None:
    answer = AnthropicAnswer(MODEL)
    answer.take(streamed()[0])
    with pytest.raises(DecodeError):
        answer.take(event)
    assert answer.message("it broke").error_message == "it broke"


def test_a_citation_with_invalid_numbers_has_no_page() -> None:
    cited: Json = {"type": "text", "text": "a", "citations": [{"url": "u", "start_page_number": True}]}
    [block] = from_anthropic({**WHOLE, "content": [cited]}).content
    assert block == TextBlock(text="a", annotations=(AnnotationRef(url="u"),))


def test_an_error_in_the_stream_makes_a_failed_message_with_the_content_so_far() -> None:
    answer = AnthropicAnswer()
    for event in streamed()[:4]:
        answer.take(event)
    said = answer.message("cut").content
    answer.take({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    message = answer.message()
    assert (message.stop_reason, message.error_message, message.content) == ("error", "Overloaded", said)
    assert (answer.error_code, answer.is_complete) == ("overloaded_error", True)


def test_input_at_the_start_of_a_call_is_kept_if_its_deltas_are_empty() -> None:
    answer = AnthropicAnswer()
    block: Json = {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}
    answer.take({"type": "content_block_start", "index": 0, "content_block": block})
    answer.take({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": ""}})
    answer.take({"type": "content_block_stop", "index": 0})
    assert answer.message().content == (ToolCallBlock(id="t", name="f", arguments={"a": 1}),)


def test_an_event_of_an_unknown_kind_is_ignored() -> None:
    assert AnthropicAnswer(MODEL).take({"type": "something_new", "x": 1}) == []
