"""A message as the Responses API takes it is what the sample cases say."""

from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.bus.messages import AudioBlock, LlmMessage, MediaRef, TextBlock, ToolResultMessage, UserMessage
from lanebus.providers import ProviderRequest, to_openai_responses
from tests.support.providers.openai_responses_rules import require_legal
from tests.support.vectors.cases import Case, Object, cases
from tests.support.vectors.openai_cases import answering, is_merged, read_all, with_data, without_arguments_text

CONTRADICTED = {
    "af.responses.audio": "an input message of the API holds text, images and files: audio is left out with a warning",
    "af.responses.audio_default": "an input message of the API holds no audio, of whatever format",
}

Item = dict[str, JsonValue]


@cases("wire_openai_responses", contradicted=CONTRADICTED)
def test_a_responses_request_says_what_the_case_says(case: Case) -> None:
    given, expect = with_data(case)
    match given:
        case {"chat_content": content}:
            found: list[LlmMessage] = [_user(content)]
        case {"messages": list(messages)}:
            found = read_all(messages)
        case _:
            pytest.fail("no such case")
    context, _ = answering(found)
    request = to_openai_responses(context, model="m", merge_developer=is_merged(found, expect))
    require_legal(request.body)
    has_results = any(isinstance(message, ToolResultMessage) for message in found)
    items = [_plain(item) for item in cast("list[Item]", request.body["input"])]
    said = [item for item in items if has_results or item["type"] != "function_call_output"]
    wire = expect.get("wire", expect)
    for name, value in cast("Object", wire).items():
        _require_equal(name, value, said, request)


def _require_equal(name: str, value: object, items: list[Item], request: ProviderRequest) -> None:
    match name, value:
        case "instructions", str():
            assert request.body["instructions"] == value
        case "keys_absent", list():
            assert not request.body.keys() & set(cast("list[str]", value))
        case "input", list():
            assert items == [_plain(item) for item in cast("list[Item]", value)]
        case "input_item", {"role": str(role), "text": str(text)}:
            wanted: Item = {"type": "message", "role": role, "content": _content(text)}
            assert wanted in items
        case "item_types", list():
            assert [item["type"] for item in items] == value
        case "responses_content", content:
            assert [item["content"] for item in items] == [_content(cast("JsonValue", content))]
        case "assistant_content_types", list():
            parts = [
                part
                for item in items
                if item.get("role") == "assistant"
                for part in cast("list[Item]", item["content"])
            ]
            assert [part["type"] for part in parts] == value
        case "warning_code", "dropped_content_part":
            assert [warning for warning in request.warnings if "thinking left out" in warning]
        case _:
            pytest.fail("no such case")


def _plain(item: Item) -> Item:
    """The item without what the API's types want beside what is said, and with its arguments parsed."""
    kept = {name: value for name, value in item.items() if name not in {"id", "status"}}
    if isinstance(content := kept.get("content"), list):
        kept["content"] = [_without_defaults(part) for part in content if isinstance(part, dict)]
    return without_arguments_text(kept)


def _without_defaults(part: Item) -> Item:
    defaults: Item = {"detail": "auto", "annotations": []}
    return {name: value for name, value in part.items() if name not in defaults or value != defaults[name]}


def _content(content: JsonValue) -> JsonValue:
    """A bare string is the API's short form of one text."""
    return [{"type": "input_text", "text": content}] if isinstance(content, str) else content


def _user(content: JsonValue) -> UserMessage:
    """A user's message from the content that Chat Completions has for it."""
    if isinstance(content, str):
        return UserMessage(content=(TextBlock(text=content),))
    sounds = [cast("dict[str, str]", cast("Item", part)["input_audio"]) for part in cast("list[JsonValue]", content)]
    media = [
        MediaRef(kind="data", data=sound["data"], mime_type=f"audio/{sound['format']}" if "format" in sound else None)
        for sound in sounds
    ]
    return UserMessage(content=tuple(AudioBlock(media=one) for one in media))
