"""Any provider's answer makes a message or raises a typed error."""

import copy
import json
from collections.abc import Callable, Iterator
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, MessageError
from lanebus.bus.messages import AssistantMessage, read_message
from lanebus.providers import (
    Answer,
    AnthropicAnswer,
    GeminiAnswer,
    OpenAIChatAnswer,
    OpenAIResponsesAnswer,
    from_anthropic,
    from_gemini,
    from_openai_chat,
    from_openai_responses,
)
from tests.handlers.providers import test_anthropic_answer as anthropic
from tests.handlers.providers import test_gemini_answer as gemini
from tests.support.suite.scale import examples

__all__ = ()

Json = dict[str, JsonValue]

_CHAT: Json = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": "a",
                "refusal": None,
                "annotations": [
                    {"type": "url_citation", "url_citation": {"url": "https://example.com/a", "title": "A"}}
                ],
                "tool_calls": [{"id": "t", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}],
            },
        }
    ],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}},
}
_CHAT_EVENTS: list[Json] = [
    {"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": {"content": "a"}}]},
    {
        "id": "c1",
        "object": "chat.completion.chunk",
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "delta": {"tool_calls": [{"index": 0, "id": "t", "function": {"name": "f", "arguments": "{}"}}]},
            }
        ],
    },
    {"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": [], "usage": {"prompt_tokens": 9}},
]
_RESPONSE: Json = {
    "id": "r1",
    "object": "response",
    "model": "m",
    "status": "completed",
    "output": [
        {
            "type": "reasoning",
            "id": "rs",
            "summary": [{"type": "summary_text", "text": "hm"}],
            "encrypted_content": "x",
        },
        {"type": "message", "id": "m1", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
        {"type": "function_call", "id": "f1", "call_id": "t", "name": "f", "arguments": '{"a":1}'},
    ],
    "usage": {"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 3}},
}
_ITEMS = cast("list[JsonValue]", _RESPONSE["output"])
_SPOKEN: Json = {"type": "message", "id": "m1", "role": "assistant", "content": []}
_BEGUN: list[JsonValue] = [_ITEMS[0], _SPOKEN, _ITEMS[2]]
_RESPONSE_EVENTS: list[Json] = [
    {"type": "response.created", "response": {**_RESPONSE, "status": "in_progress", "output": [], "usage": None}},
    *({"type": "response.output_item.added", "output_index": at, "item": item} for at, item in enumerate(_BEGUN)),
    {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "item_id": "m1", "delta": "a"},
    *({"type": "response.output_item.done", "output_index": at, "item": item} for at, item in enumerate(_ITEMS)),
    {"type": "response.completed", "response": _RESPONSE},
]
_READERS: dict[str, tuple[Callable[[Json], AssistantMessage], Json, Callable[[], Answer], list[Json]]] = {
    "anthropic": (from_anthropic, anthropic.WHOLE, AnthropicAnswer, anthropic.streamed()),
    "gemini": (from_gemini, gemini.WHOLE, GeminiAnswer, [*gemini.CHUNKS]),
    "openai_chat": (from_openai_chat, _CHAT, OpenAIChatAnswer, _CHAT_EVENTS),
    "openai_responses": (from_openai_responses, _RESPONSE, OpenAIResponsesAnswer, _RESPONSE_EVENTS),
}

_odd: st.SearchStrategy[JsonValue] = st.sampled_from(
    [None, True, 0, -1, 2**70, 1.5, float("nan"), float("inf"), "", "x", "\ud800", [], [None], [[]], {}, {"type": "x"}]
)
_deep: JsonValue = json.loads("[" * 300 + "]" * 300)


@pytest.mark.parametrize("name", _READERS)
def test_the_unspoilt_samples_are_answers(name: str) -> None:
    read, whole, answer, events = _READERS[name]
    assert read(whole).content
    reader = answer()
    for event in events:
        reader.take(copy.deepcopy(event))
    assert reader.is_complete
    assert reader.message().content


@pytest.mark.parametrize("name", _READERS)
@examples(250)
@given(data=st.data())
def test_a_spoilt_response_is_a_message_or_a_typed_error(name: str, data: st.DataObject) -> None:
    read, whole, _, _ = _READERS[name]
    spoilt = _spoilt(whole, data)
    try:
        message = read(spoilt)
    except MessageError:
        return
    assert read_message(message.to_json()) == message


@pytest.mark.parametrize("name", _READERS)
@examples(250)
@given(data=st.data())
def test_a_spoilt_stream_is_a_message_or_a_typed_error(name: str, data: st.DataObject) -> None:
    _, _, answer, events = _READERS[name]
    reader = answer()
    at = data.draw(st.integers(0, len(events) - 1))
    fault = None
    for index, event in enumerate(events):
        try:
            reader.take(_spoilt(event, data) if index == at else copy.deepcopy(event))
        except MessageError as error:
            fault = str(error)
            break
    message = reader.message(fault)
    assert read_message(message.to_json()) == message


def test_unreadable_usage_affects_only_its_event() -> None:
    reader = GeminiAnswer()
    reader.take({"candidates": [{"content": {"parts": [{"text": "a"}]}}], "usageMetadata": {"promptTokenCount": 7}})
    with pytest.raises(DecodeError, match="promptTokensDetails"):
        reader.take({"usageMetadata": {"promptTokensDetails": "x"}})
    usage = reader.message("broken off").usage
    assert usage is not None
    assert usage.input == 7


def _spoilt(value: Json, data: st.DataObject) -> Json:
    """The same with something else, or nothing, at one of its places."""
    spoilt = copy.deepcopy(value)
    holder, key = data.draw(st.sampled_from(list(_places(spoilt))))
    odd = data.draw(st.one_of(_odd, st.just(_deep)))
    if isinstance(holder, list):
        holder[cast("int", key)] = odd
    elif data.draw(st.booleans()):
        holder[cast("str", key)] = odd
    else:
        del holder[cast("str", key)]
    return spoilt


def _places(value: JsonValue) -> Iterator[tuple[Json | list[JsonValue], str | int]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield value, key
            yield from _places(item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield value, index
            yield from _places(item)
