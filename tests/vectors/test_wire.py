"""Sample cases of requests to the providers, and of their answers."""

import re
from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.bus import messages as our
from lanebus.codecs import GRAPH_V2, UNIVERSAL_CLIENT
from lanebus.context import Context
from lanebus.providers import (
    ProviderRequest,
    ToolChoice,
    from_anthropic,
    from_gemini,
    from_openai_chat,
    from_openai_responses,
    to_anthropic,
    to_gemini,
    to_openai_chat,
    to_openai_responses,
)
from tests.support.log.entries import context_of
from tests.support.providers.forms import FORMS
from tests.support.vectors.cases import Case, Object, cases
from tests.support.vectors.histories import (
    MODEL,
    SYSTEM,
    TOOL,
    answering,
    at,
    history,
    is_merged,
    read_all,
    with_data,
    without_arguments_text,
)

PLACEHOLDER = "..."
"""what the user says where the API wants a user's message first"""


@cases("wire_anthropic")
def test_an_anthropic_request_says_what_the_case_says(case: Case) -> None:
    match case.expect:
        case {"wire": _} if "recommended" in cast("Object", case.expect["wire"]):
            assert _last(_anthropic_body(case))["content"] == at(case.expect, "wire.recommended")
        case {"wire": _}:
            for path, value in cast("Object", case.expect["wire"]).items():
                _require_anthropic(_anthropic_body(case), path, value)
        case {"tool_choice": choice}:
            assert _anthropic_body(case)["tool_choice"] == choice
        case {"keys_absent": keys}:
            assert not _anthropic_body(case).keys() & set(cast("list[str]", keys))
        case _:
            pytest.fail("no such case")


def _require_anthropic(body: Object, path: str, value: object) -> None:
    messages = _messages(body)
    match path:
        case "system" | "messages" | "max_tokens" | "system[0].cache_control.type":
            assert at(body, path) == value
        case "last_message":
            assert messages[-1] == value
        case "roles":
            assert [message["role"] for message in messages] == value
        case "last_block_types":
            assert [block["type"] for block in _content(messages[-1])] == value
        case "tool_use_ids":
            assert [block["tool_use_id"] for block in _content(messages[-1]) if "tool_use_id" in block] == value
        case "tool_result.content":
            assert _last(body)["content"] == value
        case "last_tool.cache_control.type":
            assert at(body, "tools[0].cache_control.type") == value
        case "second_to_last_message.last_block.cache_control.type":
            # Two messages of one role are one turn here: the mark stands where the first of them ends.
            assert at(body, "messages[0].content[0].cache_control.type") == value
            assert "cache_control" not in _last(body)
        case str() if re.match(r"messages\[\d+\]\.", path):
            assert at({"messages": _said_to_anthropic(body)}, path) == value
        case _:
            pytest.fail("no such case")


def _anthropic_body(case: Case) -> Object:
    """The request, with what the case asked beside its messages. A history of seed 004 thinks as Anthropic does."""
    wire = cast("Object", case.expect.get("wire", {}))
    cache = any("cache_control" in path for path in wire)
    chosen = cast("dict[str, str]", case.given.get("tool_choice", {}))
    choice = ToolChoice(chosen["mode"], chosen.get("tool_name")) if chosen else None  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # one of the four modes
    context = history(case, author="anthropic", first=[SYSTEM] if cache else [])
    tools = [TOOL] if cache or choice else []
    body: Object = {**to_anthropic(context, model=MODEL, tools=tools, tool_choice=choice, cache=cache).body}
    FORMS["anthropic"].require_legal(body)
    return body


def _messages(body: Object) -> list[Object]:
    return cast("list[Object]", body["messages"])


def _said_to_anthropic(body: Object) -> list[Object]:
    """The messages without ours, which the API wants before an assistant's and the originals leave out."""
    messages = _messages(body)
    return messages[1:] if messages[0]["content"] == [{"type": "text", "text": PLACEHOLDER}] else messages


def _content(message: Object) -> list[Object]:
    return cast("list[Object]", message["content"])


def _last(body: Object) -> Object:
    return _content(_messages(body)[-1])[-1]


@cases("wire_gemini")
def test_a_gemini_request_says_what_the_case_says(case: Case) -> None:
    match case.expect:
        case {"wire": _} if "model_parts_bkrabach" in cast("Object", case.expect["wire"]):
            # What is recommended of three rival answers: verbatim to the model that wrote it, else left out.
            signed = cast("list[Object]", at(case.expect, "wire.model_parts_bkrabach"))
            assert _gemini_parts(_gemini_body(case, "google"), 1) == signed
            assert _gemini_parts(_gemini_body(case), 1) == signed[1:]
        case {"wire": _}:
            for path, value in cast("Object", case.expect["wire"]).items():
                _require_gemini(case, path, value)
        case {"recommended": int(contents), "samueljklee_user_contents_after_model": _}:
            assert len(_gemini_contents(_gemini_body(case))[2:]) == contents
        case {"contents": int(contents), "model_function_calls": int(calls), "user_parts": int(answers)}:
            said = _said_to_gemini(_gemini_body(case))
            assert len(said) == contents
            assert [len(cast("list[object]", each["parts"])) for each in said] == [calls, answers]
        case {"phi_ids": _, "recommended": _}:
            ids = [call.id for _ in range(2) for call in _gemini_call_without_id().tool_calls()]
            assert len(set(ids)) == 2
            assert all(each.startswith("call_") for each in ids)
        case _:
            pytest.fail("no such case")


def _require_gemini(case: Case, path: str, value: object) -> None:
    body = _gemini_body(case)
    match path:
        case "systemInstruction_text":
            assert body["systemInstruction"] == {"parts": [{"text": value}]}
        case "contents":
            assert body["contents"] == value
        case "functionResponse":
            assert _gemini_parts(body, -1) == [{"functionResponse": value}]
        case "parts":
            assert _gemini_parts(body, 0) == value
        case "systemInstruction":
            assert isinstance(body["systemInstruction"], {"object": dict}[str(value)])
        case "generationConfig.maxOutputTokens" | "contents[0].role":
            assert at(body, path) == value
        case _:
            pytest.fail("no such case")


def _gemini_body(case: Case, author: str | None = None) -> Object:
    """The request, with what the case asked beside its messages."""
    wire = cast("Object", case.expect.get("wire", {}))
    context = history(case, author=author, first=[SYSTEM] if wire.get("systemInstruction") else [])
    most = cast("int | None", wire.get("generationConfig.maxOutputTokens"))
    body: Object = {**to_gemini(context, model=MODEL, max_tokens=most).body}
    FORMS["gemini"].require_legal(body)
    return body


def _gemini_contents(body: Object) -> list[Object]:
    return cast("list[Object]", body["contents"])


def _said_to_gemini(body: Object) -> list[Object]:
    """The contents without ours, which the API wants before a model's and the originals leave out."""
    contents = _gemini_contents(body)
    return contents[1:] if contents[0]["parts"] == [{"text": PLACEHOLDER}] else contents


def _gemini_parts(body: Object, content: int) -> object:
    return _gemini_contents(body)[content]["parts"]


def _gemini_call_without_id() -> our.AssistantMessage:
    call: dict[str, JsonValue] = {"functionCall": {"name": "f", "args": {}}}
    return from_gemini({"candidates": [{"content": {"role": "model", "parts": [call]}, "finishReason": "STOP"}]})


CONTRADICTED_CHAT = {
    "af.chat.image_file_id": "the API takes a file's id for no image's URL: the image is left out with a warning",
    "af.chat.doc_b64": "the API has no part of that type: a PDF goes as its part for files",
    "af.chat.remote_tool_skipped": "a call that runs elsewhere is the model's own all the same, and goes with a result",
    "af.chat.summary_order": "what a summary says is told by a user, not by the model",
}
Message = dict[str, JsonValue]


@cases("wire_openai_chat", contradicted=CONTRADICTED_CHAT)
def test_a_chat_request_says_what_the_case_says(case: Case) -> None:
    given, expect = with_data(case)
    match given:
        case {"message": dict(message)}:
            found = [one for one in GRAPH_V2.read(message) if isinstance(one, our.LlmMessage)]
        case {"messages": list(messages)}:
            found = read_all(messages)
        case {"system": list(), "context_summary": str()}:
            assert _plain_chat(_summarised(given)) == expect["wire"]
            return
        case _:
            pytest.fail("no such case")
    context, calls_are_ours = answering(found)
    wire = _plain_chat(context, merge_developer=is_merged(found, expect))
    _require_chat(wire[1:] if calls_are_ours else [message for message in wire if message["role"] != "tool"], expect)


def _require_chat(wire: list[Message], expect: Object) -> None:
    wanted = cast("JsonValue", expect["wire"])
    match wanted:
        case None:
            assert wire == []
        case list():
            assert wire == wanted
        case {"role": str()}:
            assert wire == [_plain_message(cast("Message", expect["wire"]))]
        case {"content": content}:
            assert [message["content"] for message in wire] == [content]
        case _:
            pytest.fail("no such case")


def _plain_chat(context: Context, *, merge_developer: bool = False) -> list[Message]:
    """Our messages, as cases can be compared with: calls by their ids in the log, with arguments that are parsed."""
    request = to_openai_chat(context, model="m", merge_developer=merge_developer)
    FORMS["openai_chat"].require_legal(request.body)
    return [_plain_message(message, request) for message in cast("list[Message]", request.body["messages"])]


def _plain_message(message: Message, request: ProviderRequest | None = None) -> Message:
    flat = {**message}
    if request and isinstance(call := flat.get("tool_call_id"), str):
        flat["tool_call_id"] = request.call_ids.get(call, call)
    if isinstance(calls := flat.get("tool_calls"), list):
        flat["tool_calls"] = [_plain_call(call) for call in calls if isinstance(call, dict)]
    return flat


def _plain_call(call: Message) -> Message:
    """Id, name and arguments: some cases have these bare, the API wants them in `function`."""
    function = call.get("function")
    fields = function if isinstance(function, dict) else call
    return without_arguments_text({"id": call["id"], "name": fields["name"], "arguments": fields["arguments"]})


def _summarised(given: Message) -> Context:
    system = [our.SystemMessage.text(str(text)) for text in cast("list[str]", given["system"])]
    said = [*cast("list[list[str]]", given["context"]), *cast("list[list[str]]", given["extra"])]
    users = [our.UserMessage.text(text) for _, text in said]
    return context_of(*system, our.Compaction(summary=str(given["context_summary"])), *users)


CONTRADICTED_RESPONSES = {
    "af.responses.audio": "an input message of the API holds text, images and files: audio is left out with a warning",
    "af.responses.audio_default": "an input message of the API holds no audio, of whatever format",
}
Item = dict[str, JsonValue]


@cases("wire_openai_responses", contradicted=CONTRADICTED_RESPONSES)
def test_a_responses_request_says_what_the_case_says(case: Case) -> None:
    given, expect = with_data(case)
    match given:
        case {"chat_content": content}:
            found: list[our.LlmMessage] = [_user(content)]
        case {"messages": list(messages)}:
            found = read_all(messages)
        case _:
            pytest.fail("no such case")
    context, _ = answering(found)
    request = to_openai_responses(context, model="m", merge_developer=is_merged(found, expect))
    FORMS["openai_responses"].require_legal(request.body)
    has_results = any(isinstance(message, our.ToolResultMessage) for message in found)
    items = [_plain_item(item) for item in cast("list[Item]", request.body["input"])]
    said = [item for item in items if has_results or item["type"] != "function_call_output"]
    wire = expect.get("wire", expect)
    for name, value in cast("Object", wire).items():
        _require_responses(name, value, said, request)


def _require_responses(name: str, value: object, items: list[Item], request: ProviderRequest) -> None:
    match name, value:
        case "instructions", str():
            assert request.body["instructions"] == value
        case "keys_absent", list():
            assert not request.body.keys() & set(cast("list[str]", value))
        case "input", list():
            assert items == [_plain_item(item) for item in cast("list[Item]", value)]
        case "input_item", {"role": str(role), "text": str(text)}:
            wanted: Item = {"type": "message", "role": role, "content": _item_content(text)}
            assert wanted in items
        case "item_types", list():
            assert [item["type"] for item in items] == value
        case "responses_content", content:
            assert [item["content"] for item in items] == [_item_content(cast("JsonValue", content))]
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


def _plain_item(item: Item) -> Item:
    """The item without what the API's types want beside what is said, and with its arguments parsed."""
    kept = {name: value for name, value in item.items() if name not in {"id", "status"}}
    if isinstance(content := kept.get("content"), list):
        kept["content"] = [_without_defaults(part) for part in content if isinstance(part, dict)]
    return without_arguments_text(kept)


def _without_defaults(part: Item) -> Item:
    defaults: Item = {"detail": "auto", "annotations": []}
    return {name: value for name, value in part.items() if name not in defaults or value != defaults[name]}


def _item_content(content: JsonValue) -> JsonValue:
    """A bare string is the API's short form of one text."""
    return [{"type": "input_text", "text": content}] if isinstance(content, str) else content


def _user(content: JsonValue) -> our.UserMessage:
    """A user's message from the content that Chat Completions has for it."""
    if isinstance(content, str):
        return our.UserMessage(content=(our.TextBlock(text=content),))
    sounds = [cast("dict[str, str]", cast("Item", part)["input_audio"]) for part in cast("list[JsonValue]", content)]
    media = [
        our.MediaRef(
            kind="data", data=sound["data"], mime_type=f"audio/{sound['format']}" if "format" in sound else None
        )
        for sound in sounds
    ]
    return our.UserMessage(content=tuple(our.AudioBlock(media=one) for one in media))


CONTRADICTED_ANSWERS = {
    "att.resp.usage_anthropic": "where the provider tells no total, it is the sum of all tokens, the cached ones too",
    "att.resp.usage_gemini": (
        "thoughts are a part of the output and cached tokens none of the input, for all providers; Gemini's own counts"
        " stay beside them"
    ),
}
Json = dict[str, JsonValue]


@cases("response_parse", contradicted=CONTRADICTED_ANSWERS)
def test_an_answer_is_read_as_a_message(case: Case) -> None:
    message = _parsed_answer(case.given)
    match case.expect:
        case {"input_tokens": _}:
            assert message.usage is not None
            found = _usage(message.usage, includes_cached=message.provider != "anthropic")
            assert {key: found[key] for key in case.expect} == case.expect
        case {"kinds": kinds}:
            parts = _universal_client_parts(message)
            assert [part["kind"] for part in parts] == kinds
            if "data" in case.expect:
                told = {"text": case.expect["data"], "redacted": case.expect["redacted"]}
                assert parts[0]["thinking"] == told
        case {"kind": _, "id": _} | {"id_prefix": _}:
            _require_call(message, case.expect)
        case _:
            pytest.fail("no such case")


def _require_call(message: our.AssistantMessage, expect: Object) -> None:
    (call,) = message.tool_calls()
    (part,) = _universal_client_parts(message)
    found: Object = {"kind": part["kind"], "id": call.id, "name": call.name, "arguments": call.arguments}
    assert call.id.startswith(str(expect.get("id_prefix", "")))
    assert {key: found[key] for key in expect if key != "id_prefix"} == {
        key: value for key, value in expect.items() if key != "id_prefix"
    }


def _parsed_answer(given: Object) -> our.AssistantMessage:
    """The message of a response that says what the case says, whatever else a response must have."""
    told = cast("Json", given)
    match told:
        case {"content": _}:
            return from_anthropic({"type": "message", "usage": {}, "stop_reason": "end_turn", **told})
        case {"cache_read_input_tokens": _}:
            return from_anthropic({"type": "message", "content": [], "stop_reason": "end_turn", "usage": told})
        case {"promptTokenCount": _}:
            return from_gemini({"candidates": [], "usageMetadata": told})
        case {"functionCall": _}:
            return from_gemini({"candidates": [{"content": {"parts": [told]}, "finishReason": "STOP"}]})
        case {"type": "function_call"}:
            return from_openai_responses({**_RESPONSE, "output": [told]})
        case {"input_tokens_details.cached_tokens": _}:
            return from_openai_responses({**_RESPONSE, "output": [], "usage": _nested(told)})
        case _:
            pytest.fail("no such case")


_RESPONSE: Json = {"id": "r", "object": "response", "model": "m", "status": "completed"}


def _nested(flat: Json) -> Json:
    """Keys with a dot as objects in objects."""
    nested: Json = {}
    for key, value in flat.items():
        outer, _, inner = key.partition(".")
        nested[outer] = {inner: value} if inner else value
    return nested


def _usage(usage: our.Usage, *, includes_cached: bool) -> Object:
    """Our counts in seed 004's words, whose input has the cached tokens in it where the provider's has."""
    return {
        "input_tokens": usage.input + (usage.cache_read if includes_cached else 0),
        "output_tokens": usage.output,
        "total_tokens": usage.total_tokens,
        "reasoning_tokens": usage.reasoning,
        "cache_read_tokens": usage.cache_read,
        "cache_write_tokens": usage.cache_write,
    }


def _universal_client_parts(message: our.AssistantMessage) -> list[Object]:
    """Our blocks in seed 004's words, as its codec writes them."""
    (written,) = UNIVERSAL_CLIENT.write([message], True).values
    return cast("list[Object]", cast("Object", written)["content"])


_GUARDED = "an answer that a filter cut short is told apart from a whole one; the provider's own word is kept beside it"
CONTRADICTED_STOP_REASONS = {
    "phi.finish.anthropic.refusal": _GUARDED,
    "phi.finish.openai.content_filter": _GUARDED,
    "phi.finish.google.RECITATION": _GUARDED,
    "phi.finish.google.SAFETY": _GUARDED,
}
_CALL: Json = {"functionCall": {"name": "f", "args": {}}}


@cases("finish_reason", contradicted=CONTRADICTED_STOP_REASONS)
def test_an_answer_says_why_it_ended(case: Case) -> None:
    message = _ended_answer(case.given)
    match case.expect:
        case {"stop_reason": reason} | {"recommended_stop_reason": reason}:
            assert message.stop_reason == reason
        case {"reason": _}:
            # The words are seed 004's, so what its codec writes is what is compared.
            (written,) = UNIVERSAL_CLIENT.write([message], True).values
            told = cast("Object", cast("Object", written).get("finish_reason", {"reason": "stop"}))
            assert {key: told[key] for key in case.expect} == case.expect
        case _:
            pytest.fail("no such case")


def _ended_answer(given: Object) -> our.AssistantMessage:
    raw = cast("str | None", given.get("raw") or given.get("finishReason"))
    has_call = bool(given.get("function_calls")) or "parts" in given
    match given:
        case {"provider": "anthropic", "raw": _}:
            return from_anthropic({"type": "message", "content": [], "usage": {}, "stop_reason": raw})
        case {"provider": "gemini" | "google"}:
            parts: list[JsonValue] = [_CALL] if has_call else [{"text": "x"}]
            return from_gemini({"candidates": [{"content": {"parts": parts}, "finishReason": raw}]})
        case {"provider": "openai", "status": str(status)}:
            call: Json = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
            return from_openai_responses(
                {
                    "id": "r",
                    "object": "response",
                    "model": "m",
                    "status": status,
                    "output": [call] if has_call else [],
                    "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
                }
            )
        case {"provider": "openai", "raw": _}:
            choice: Json = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": raw}
            return from_openai_chat({"id": "r", "object": "chat.completion", "model": "m", "choices": [choice]})
        case _:
            pytest.fail("no such case")
