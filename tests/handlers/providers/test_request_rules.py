"""The checkers of the providers' requests refuse each fault that is planted in a legal body."""

import copy
import re
from collections.abc import Callable
from typing import cast

import pytest
from pydantic import JsonValue

from tests.support.formats.kit import places
from tests.support.providers.forms import FORMS
from tests.support.providers.gemini_rules import signature_faults

Body = dict[str, JsonValue]
Plant = Callable[[Body], object]


def _holder(body: Body, path: str) -> tuple[dict[str | int, JsonValue], str | int]:
    """What holds the place, and the key or index of it there."""
    *way, last = [int(name) if name.isdigit() else name for name in path.split(".")]
    holder = cast("dict[str | int, JsonValue]", body)
    for step in way:
        holder = cast("dict[str | int, JsonValue]", holder[step])
    return holder, last


def at(body: Body, path: str) -> JsonValue:
    holder, last = _holder(body, path)
    return holder[last]


def put(path: str, value: JsonValue) -> Plant:
    """Another value at the place."""

    def plant(body: Body) -> None:
        holder, last = _holder(body, path)
        holder[last] = value

    return plant


def cut(path: str) -> Plant:
    """Nothing at the place."""

    def plant(body: Body) -> None:
        holder, last = _holder(body, path)
        del holder[last]

    return plant


def insert(path: str, value: JsonValue | None = None, *, of: str = "") -> Plant:
    """One more element at the place of a list: the value, or a copy of what stands at `of`."""

    def plant(body: Body) -> None:
        holder, index = _holder(body, path)
        cast("list[JsonValue]", holder).insert(cast("int", index), copy.deepcopy(at(body, of)) if of else value)

    return plant


def move(path: str, index: int) -> Plant:
    """The element of a list at another index of it."""

    def plant(body: Body) -> None:
        holder, last = _holder(body, path)
        elements = cast("list[JsonValue]", holder)
        elements.insert(index, elements.pop(cast("int", last)))

    return plant


def end(path: str, length: int) -> Plant:
    """A list cut to a length."""
    return lambda body: cast("list[JsonValue]", at(body, path)).__delitem__(slice(length, None))


def all_of(*plants: Plant) -> Plant:
    return lambda body: [plant(body) for plant in plants]


# --- Anthropic ----------------------------------------------------------------------------------------------------

_PNG = "iVBORw0KGgo="
_IMAGE: JsonValue = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _PNG}}
_LEGAL: dict[str, Body] = {}
_LEGAL["anthropic"] = {
    "model": "claude-sonnet-5-5",
    "max_tokens": 10,
    "system": [{"type": "text", "text": "be kind"}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "look"}, _IMAGE]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "tool_use", "id": "a", "name": "read", "input": {"path": "x"}},
                {"type": "tool_use", "id": "b", "name": "read", "input": {"path": "y"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "1"},
                {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "2"}]},
                {"type": "text", "text": "go on"},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "so"}]},
    ],
    "tools": [{"name": "read", "description": "reads", "input_schema": {"type": "object", "required": ["path"]}}],
}


def _source(**fields: JsonValue) -> Plant:
    return put("messages.0.content.1.source", fields)


def _ids(call: str, result: str, key: str, new: str) -> Plant:
    """Another id of a call and of its result."""
    return all_of(put(f"{call}.{key}", new), put(result, new))


_CALL, _RESULT = "messages.1.content.1", "messages.2.content.0"
_RULES: dict[str, dict[str, Plant]] = {}
_RULES["anthropic"] = {
    "an assistant first": cut("messages.0"),
    "a user twice": insert("messages.1", of="messages.0"),
    "no messages": put("messages", []),
    "an empty message": put("messages.3.content", []),
    "an empty text": put("messages.0.content.0.text", ""),
    "a text of white space": put("messages.0.content.0.text", " \n"),
    "a blank text in a result": put("messages.2.content.1.content", [{"type": "text", "text": " "}]),
    "a blank instruction": put("system.0.text", " "),
    "an unanswered call": cut("messages.2.content.1"),
    "an orphaned result": cut(_CALL),
    "results out of order": move("messages.2.content.1", 0),
    "a result behind text": move("messages.2.content.2", 0),
    "a result twice": insert("messages.2.content.1", of=_RESULT),
    "a call at the end": end("messages", 2),
    "one id for two calls": _ids("messages.1.content.2", "messages.2.content.1.tool_use_id", "id", "a"),
    "an illegal id": _ids(_CALL, f"{_RESULT}.tool_use_id", "id", "a.b"),
    "an id too long": _ids(_CALL, f"{_RESULT}.tool_use_id", "id", "a" * 65),
    "an illegal tool name": put(f"{_CALL}.name", "fs.read"),
    "a call from the user": lambda body: put("messages.0.content.0", at(body, _CALL))(body),
    "an image from the assistant": insert("messages.3.content.0", _IMAGE),
    "thinking at the end": insert("messages.3.content.1", of="messages.1.content.0"),
    "white space at the end": put("messages.3.content.0.text", "so "),
    "an error without content": all_of(put(f"{_RESULT}.content", ""), put(f"{_RESULT}.is_error", True)),
    "an error with an image": all_of(
        put(f"{_RESULT}.content", [{"type": "text", "text": "1"}, _IMAGE]), put(f"{_RESULT}.is_error", True)
    ),
    "data that is not base64": _source(type="base64", media_type="image/png", data="@@"),
    "a local path as a URL": _source(type="url", url="file:///etc/passwd"),
}

# --- Gemini -------------------------------------------------------------------------------------------------------

_BLOB: JsonValue = {"mimeType": "image/png", "data": _PNG}
_LEGAL["gemini"] = {
    "systemInstruction": {"parts": [{"text": "be kind"}]},
    "contents": [
        {"role": "user", "parts": [{"text": "look"}, {"inlineData": _BLOB}]},
        {
            "role": "model",
            "parts": [
                {"text": "hm", "thought": True},
                {"functionCall": {"name": "read", "args": {"path": "x"}, "id": "a"}, "thoughtSignature": "c2ln"},
                {"functionCall": {"name": "list", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "name": "read",
                        "id": "a",
                        "response": {"result": "1"},
                        "parts": [{"inlineData": _BLOB}],
                    }
                },
                {"functionResponse": {"name": "list", "response": {}}},
                {"fileData": {"mimeType": "application/pdf", "fileUri": "https://example.com/a.pdf"}},
                {"text": "go on"},
            ],
        },
        {"role": "model", "parts": [{"text": "so"}, {"text": "", "thoughtSignature": "c2ln"}]},
    ],
    "tools": [
        {
            "functionDeclarations": [
                {"name": "read", "description": "reads", "parametersJsonSchema": {"type": "object"}},
                {"name": "list", "description": "", "parametersJsonSchema": {"type": "object"}},
            ]
        }
    ],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["read"]}},
    "generationConfig": {"maxOutputTokens": 10},
}
_ASKED, _MODEL, _ANSWERED, _SO = (f"contents.{index}.parts" for index in range(4))
_RESPONSE, _TOOL, _MODE = (
    f"{_ANSWERED}.0.functionResponse",
    "tools.0.functionDeclarations",
    "toolConfig.functionCallingConfig",
)
_RULES["gemini"] = {
    "no contents": put("contents", []),
    "a model first": cut("contents.0"),
    "a user twice": insert("contents.1", of="contents.0"),
    "an unknown role": put("contents.3.role", "assistant"),
    "an empty content": put(_SO, []),
    "a part with nothing in it": insert(f"{_SO}.2", {}),
    "a part with two things in it": put(f"{_ASKED}.1.text", "x"),
    "an empty text": put(f"{_ASKED}.0.text", ""),
    "a call from the user": insert(f"{_ASKED}.2", {"functionCall": {"name": "read", "args": {}}}),
    "a response from the model": insert(f"{_SO}.2", {"functionResponse": {"name": "r", "response": {}}}),
    "code from the user": insert(f"{_ASKED}.2", {"executableCode": {"code": "1", "language": "PYTHON"}}),
    "a user's thought": put(f"{_ASKED}.0.thought", True),
    "a user's signature": put(f"{_ASKED}.0.thoughtSignature", "c2ln"),
    "an unanswered call": cut(f"{_ANSWERED}.1"),
    "an orphaned response": cut(f"{_MODEL}.2"),
    "responses out of order": move(f"{_ANSWERED}.1", 0),
    "a response behind text": move(f"{_ANSWERED}.3", 0),
    "responses in two contents": lambda body: all_of(
        insert("contents.3", {"role": "user", "parts": [at(body, f"{_ANSWERED}.1")]}), cut(f"{_ANSWERED}.1")
    )(body),
    "a response of another name": put(f"{_RESPONSE}.name", "list"),
    "a response of another id": put(f"{_RESPONSE}.id", "b"),
    "a response without its id": cut(f"{_RESPONSE}.id"),
    "a call at the end": end("contents", 2),
    "an illegal name": all_of(
        put(f"{_MODEL}.2.functionCall.name", "7 up"), put(f"{_ANSWERED}.1.functionResponse.name", "7 up")
    ),
    "a call without arguments": cut(f"{_MODEL}.2.functionCall.args"),
    "a response without one": cut(f"{_ANSWERED}.1.functionResponse.response"),
    "media without a type": cut(f"{_ASKED}.1.inlineData.mimeType"),
    "media of a type not taken": put(f"{_ASKED}.1.inlineData.mimeType", "image/gif"),
    "media without data": cut(f"{_ASKED}.1.inlineData.data"),
    "a file without its type": cut(f"{_ANSWERED}.2.fileData.mimeType"),
    "a local path as a file": put(f"{_ANSWERED}.2.fileData.fileUri", "file:///etc/passwd"),
    "media of a type not taken in a response": put(f"{_RESPONSE}.parts.0.inlineData.mimeType", "image/tiff"),
    "blank instructions": put("systemInstruction.parts.0.text", " "),
    "an image as instructions": put("systemInstruction.parts", [{"inlineData": _BLOB}]),
    "an illegal tool name": put(f"{_TOOL}.1.name", "a b"),
    "one name for two tools": put(f"{_TOOL}.1.name", "read"),
    "two schemas of one tool": put(f"{_TOOL}.0.parameters", {"type": "OBJECT"}),
    "a schema that is a list": put(f"{_TOOL}.0.parametersJsonSchema", []),
    "a choice of tools that are not there": cut("tools"),
    "names in a mode that takes none": put(f"{_MODE}.mode", "AUTO"),
    "no tokens": put("generationConfig.maxOutputTokens", 0),
}

# --- Chat Completions ---------------------------------------------------------------------------------------------

_FILE: Body = {"file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a.pdf"}
_SHOWN: JsonValue = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_PNG}", "detail": "low"}}


def _chat_call(call: str) -> JsonValue:
    return {"id": call, "type": "function", "function": {"name": "read", "arguments": '{"path": "x"}'}}


_LEGAL["openai_chat"] = {
    "model": "gpt-5.2",
    "max_completion_tokens": 10,
    "messages": [
        {"role": "system", "content": "be kind"},
        {"role": "developer", "content": [{"type": "text", "text": "be short"}]},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                _SHOWN,
                {"type": "input_audio", "input_audio": {"data": "SUQz", "format": "mp3"}},
                {"type": "file", "file": _FILE},
            ],
        },
        {"role": "assistant", "tool_calls": [_chat_call("a"), _chat_call("b")]},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "2"}]},
        {"role": "assistant", "content": "so"},
    ],
    "tools": [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}],
    "tool_choice": {"type": "function", "function": {"name": "read"}},
}
_PARTS, _CALLS = "messages.2.content", "messages.3.tool_calls"
_RULES["openai_chat"] = {
    "no messages": put("messages", []),
    "a limit of nothing": put("max_completion_tokens", 0),
    "the limit by its old name": put("max_tokens", 10),
    "options of a stream that is none": put("stream_options", {"include_usage": True}),
    "an empty content": put(_PARTS, []),
    "an empty text": put(f"{_PARTS}.0.text", ""),
    "empty instructions": put("messages.0.content", ""),
    "an answer that says nothing": put("messages.6.content", ""),
    "an answer without content": cut("messages.6.content"),
    "no calls in a list of calls": put("messages.6.tool_calls", []),
    "a call of the old kind": put("messages.6.function_call", {"name": "read", "arguments": "{}"}),
    "a result of the old kind": insert("messages.7", {"role": "function", "name": "read", "content": "x"}),
    "an unanswered call": cut("messages.5"),
    "an orphaned result": cut(f"{_CALLS}.1"),
    "results out of order": move("messages.5", 4),
    "a result behind another message": move("messages.2", 4),
    "a result twice": insert("messages.5", of="messages.4"),
    "a call at the end": end("messages", 4),
    "one id for two calls": _ids(f"{_CALLS}.1", "messages.5.tool_call_id", "id", "a"),
    "an illegal id": _ids(f"{_CALLS}.0", "messages.4.tool_call_id", "id", "a.b"),
    "an id too long": _ids(f"{_CALLS}.0", "messages.4.tool_call_id", "id", "a" * 41),
    "an illegal tool name": put(f"{_CALLS}.0.function.name", "fs.read"),
    "arguments that are no JSON": put(f"{_CALLS}.0.function.arguments", "{"),
    "arguments that are no object": put(f"{_CALLS}.0.function.arguments", "[1]"),
    "a call of a tool without functions": put(
        f"{_CALLS}.0", {"id": "a", "type": "custom", "custom": {"name": "read", "input": "x"}}
    ),
    "data that is not base64": put(f"{_PARTS}.1.image_url.url", "data:image/png;base64,@@"),
    "an image of another type": put(f"{_PARTS}.1.image_url.url", f"data:image/tiff;base64,{_PNG}"),
    "a local path as a URL": put(f"{_PARTS}.1.image_url.url", "file:///etc/passwd"),
    "a file's id as an image's URL": put(f"{_PARTS}.1.image_url.url", "file-1"),
    "audio that is not base64": put(f"{_PARTS}.2.input_audio.data", "@"),
    "a file that is no PDF": put(f"{_PARTS}.3.file.file_data", "data:text/csv;base64,YQ=="),
    "a file without a name": cut(f"{_PARTS}.3.file.filename"),
    "a file in no place": cut(f"{_PARTS}.3.file.file_data"),
    "a file in two places": put(f"{_PARTS}.3.file.file_id", "file-1"),
    "a tool twice": insert("tools.1", of="tools.0"),
    "an illegal name of a tool": put("tools.0.function.name", ""),
    "a choice without tools": cut("tools"),
    "a choice that is not offered": put("tool_choice.function.name", "write"),
}

# --- Responses ----------------------------------------------------------------------------------------------------

_URL = f"data:image/png;base64,{_PNG}"
_INPUT_IMAGE: JsonValue = {"type": "input_image", "image_url": _URL, "detail": "low"}


def _item_call(call: str) -> JsonValue:
    return {"type": "function_call", "call_id": call, "name": "read", "arguments": '{"path": "x"}'}


_LEGAL["openai_responses"] = {
    "model": "gpt-5.2",
    "max_output_tokens": 16,
    "store": False,
    "instructions": "be kind",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "be short"}]},
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "look"}, _INPUT_IMAGE, {"type": "input_file", **_FILE}],
        },
        {
            "type": "reasoning",
            "id": "rs_1",
            "encrypted_content": "x",
            "summary": [{"type": "summary_text", "text": "hm"}],
        },
        _item_call("a"),
        _item_call("b"),
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {
            "type": "function_call_output",
            "call_id": "b",
            "output": [{"type": "input_text", "text": "2"}, {"type": "input_image", "image_url": _URL}],
        },
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "so", "annotations": []}],
        },
    ],
    "tools": [{"type": "function", "name": "read", "parameters": {"type": "object"}, "strict": False}],
    "tool_choice": {"type": "function", "name": "read"},
}
_SAID = "input.1.content"
_RULES["openai_responses"] = {
    "no input": put("input", []),
    "no model": cut("model"),
    "a limit of nothing": put("max_output_tokens", 0),
    "empty instructions": put("instructions", ""),
    "an empty message": put(_SAID, []),
    "an empty text": put(f"{_SAID}.0.text", ""),
    "an empty text of an answer": put("input.7.content.0.text", ""),
    "an answer of a user's text": put("input.1.role", "assistant"),
    "an image in instructions": put("input.0.content", [_INPUT_IMAGE]),
    "an answer with an id of another kind": put("input.7.id", "a"),
    "an id twice": insert("input.8", of="input.7"),
    "a call with an id of another kind": put("input.3.id", "call_1"),
    "an unanswered call": cut("input.6"),
    "an orphaned result": cut("input.4"),
    "results out of order": move("input.6", 5),
    "a result behind another message": move("input.1", 5),
    "a result behind a later answer": move("input.7", 6),
    "a result twice": insert("input.6", of="input.5"),
    "a call at the end": end("input", 5),
    "one id for two calls": _ids("input.4", "input.6.call_id", "call_id", "a"),
    "an illegal id": _ids("input.3", "input.5.call_id", "call_id", "a.b"),
    "an id too long": _ids("input.3", "input.5.call_id", "call_id", "a" * 65),
    "a result without an id": cut("input.5.call_id"),
    "an empty result": put("input.6.output", []),
    "an empty text in a result": put("input.6.output", [{"type": "input_text", "text": ""}]),
    "an illegal tool name": put("input.3.name", "fs.read"),
    "arguments that are no JSON": put("input.3.arguments", "{"),
    "arguments that are no object": put("input.3.arguments", '"x"'),
    "reasoning with an id of another kind": put("input.2.id", "x"),
    "reasoning that nobody has kept": cut("input.2.encrypted_content"),
    "reasoning without what it led to": move("input.2", 0),
    "reasoning at the end": move("input.2", 7),
    "an item of a tool that was never offered": insert("input.8", {"type": "item_reference", "id": "msg_9"}),
    "an image in no place": cut(f"{_SAID}.1.image_url"),
    "an image in two places": put(f"{_SAID}.1.file_id", "file-1"),
    "data that is not base64": put(f"{_SAID}.1.image_url", "data:image/png;base64,@@"),
    "an image of another type": put(f"{_SAID}.1.image_url", "data:image/tiff;base64,SUkq"),
    "a local path as a URL": put(f"{_SAID}.1.image_url", "file:///etc/passwd"),
    "a file without a name": cut(f"{_SAID}.2.filename"),
    "a file in two places": put(f"{_SAID}.2.file_id", "file-1"),
    "a local path of a file": all_of(cut(f"{_SAID}.2.file_data"), put(f"{_SAID}.2.file_url", "/etc/passwd")),
    "a tool twice": insert("tools.1", of="tools.0"),
    "an illegal name of a tool": put("tools.0.name", "fs.read"),
    "a choice without tools": cut("tools"),
    "a choice that is not offered": put("tool_choice", {"type": "function", "name": "write"}),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_legal_body_is_accepted(name: str) -> None:
    FORMS[name].require_legal(_LEGAL[name])


_FREE = {"input_schema", "parameters", "parametersJsonSchema", "args", "response", "input"}
"""keys of objects that are the caller's own"""

_OWN = re.compile(r"(input_schema|parameters|parametersJsonSchema|args|response|content\.\d\.input)\.")
"""what is in them"""

_WORDS = {"type", "role", "detail", "format", "mode", "media_type"}
"""keys whose text is one of few words"""

_REQUIRED = {
    "anthropic": ["max_tokens", "messages.0.content.0.type", "messages.1.content.0.signature", "tools.0.input_schema"],
    "gemini": [],
    "openai_chat": [
        *("model", "messages.2.content.0.type", "messages.3.tool_calls.0.function", "messages.4.tool_call_id"),
        "tools.0.function.name",
    ],
    "openai_responses": [
        *("input.1.content.0.type", "input.1.content.1.detail", "input.3.call_id", "input.7.id", "input.7.status"),
        *("input.7.content.0.annotations", "input.2.id", "input.2.summary", "tools.0.strict"),
    ],
}


@pytest.mark.parametrize("name", FORMS)
def test_a_body_with_another_type_an_unknown_key_or_a_missing_one_is_refused(name: str) -> None:
    odd: list[JsonValue] = [7, True, "zzz", {"zzz": 1}, [7]]
    plants = [("an unknown key", put("zzz", 1)), *((place, cut(place)) for place in _REQUIRED[name])]
    for place, value in places(_LEGAL[name]):
        if _OWN.search(place):
            continue
        key, is_word = place.rpartition(".")[2], place.rpartition(".")[2] in _WORDS and name + place[:3] != "geminicon"
        for other in odd if key != "parametersJsonSchema" else []:
            if type(other) is type(value) and not (other == "zzz" and is_word):
                continue
            if other == "zzz" and isinstance(value, list):  # a text stands for a list with one text
                continue
            if isinstance(other, dict) and key in _FREE:
                continue
            plants.append((f"{place} = {other!r}", put(place, other)))
        if isinstance(value, dict) and key not in _FREE:
            plants.append((f"{place}.zzz", put(f"{place}.zzz", 1)))
    for fault, plant in plants:
        body = copy.deepcopy(_LEGAL[name])
        plant(body)
        assert FORMS[name].shape_faults(body), fault


def _each(faults: dict[str, dict[str, Plant]]) -> pytest.MarkDecorator:
    cases = [
        pytest.param(name, plant, id=f"{name}-{fault}") for name in faults for fault, plant in faults[name].items()
    ]
    return pytest.mark.parametrize(("name", "plant"), cases)


@_each(_RULES)
def test_a_body_of_the_right_shape_that_breaks_a_rule_is_refused(name: str, plant: Plant) -> None:
    body = copy.deepcopy(_LEGAL[name])
    plant(body)
    assert not FORMS[name].shape_faults(body)
    assert FORMS[name].rule_faults(body)


def test_a_call_to_gemini_without_a_signature_in_the_current_turn_is_refused() -> None:
    body = copy.deepcopy(_LEGAL["gemini"])
    assert not signature_faults(body)
    cut(f"{_MODEL}.1.thoughtSignature")(body)
    assert signature_faults(body)
    insert("contents.4", {"role": "user", "parts": [{"text": "next"}]})(body)
    assert not signature_faults(body)
