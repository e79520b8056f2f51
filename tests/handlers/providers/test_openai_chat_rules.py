"""The checker of Chat Completions requests refuses each fault that is planted in a legal body."""

import copy
from collections.abc import Callable
from typing import cast

import pytest

from tests.support.providers.openai_chat_rules import require_legal, rule_faults, shape_faults

Body = dict[str, "list[Body]"]  # what the faults reach into; the values at the leaves are set, never read
Plant = Callable[[Body], object]

_PNG = "iVBORw0KGgo="


def _call(call: str) -> dict[str, object]:
    return {"id": call, "type": "function", "function": {"name": "read", "arguments": '{"path": "x"}'}}


def _legal() -> Body:
    body = {
        "model": "gpt-5.2",
        "max_completion_tokens": 10,
        "messages": [
            {"role": "system", "content": "be kind"},
            {"role": "developer", "content": [{"type": "text", "text": "be short"}]},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look"},
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_PNG}", "detail": "low"}},
                    {"type": "input_audio", "input_audio": {"data": "SUQz", "format": "mp3"}},
                    {
                        "type": "file",
                        "file": {"file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a.pdf"},
                    },
                ],
            },
            {"role": "assistant", "tool_calls": [_call("a"), _call("b")]},
            {"role": "tool", "tool_call_id": "a", "content": "1"},
            {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "2"}]},
            {"role": "assistant", "content": "so"},
        ],
        "tools": [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}],
        "tool_choice": {"type": "function", "function": {"name": "read"}},
    }
    return cast("Body", body)


def _whole(body: Body) -> dict[str, object]:
    return cast("dict[str, object]", body)


def _message(body: Body, message: int) -> dict[str, object]:
    return cast("dict[str, object]", body["messages"][message])


def _part(body: Body, part: int) -> dict[str, object]:
    return cast("dict[str, object]", body["messages"][2]["content"][part])


def _tool_call(body: Body, call: int) -> dict[str, object]:
    return cast("dict[str, object]", body["messages"][3]["tool_calls"][call])


def _function(body: Body, call: int) -> dict[str, object]:
    return cast("dict[str, object]", _tool_call(body, call)["function"])


_SHAPES: dict[str, Plant] = {
    "an unknown key of the body": lambda b: _whole(b).update(temprature=1),
    "a body without a model": lambda b: _whole(b).pop("model"),
    "a limit as text": lambda b: _whole(b).update(max_completion_tokens="10"),
    "a limit as a boolean": lambda b: _whole(b).update(max_completion_tokens=True),
    "messages as an object": lambda b: _whole(b).update(messages={}),
    "an unknown key of a message": lambda b: _message(b, 2).update(metadata={}),
    "an unknown role": lambda b: _message(b, 2).update(role="toolResult"),
    "an unknown part": lambda b: _part(b, 0).update(type="input_text"),
    "a part without a type": lambda b: _part(b, 0).pop("type"),
    "a number as text": lambda b: _part(b, 0).update(text=1),
    "an image as a bare URL": lambda b: _part(b, 1).update(image_url="https://example.com/a.png"),
    "an unknown detail": lambda b: _part(b, 1).update(image_url={"url": "https://e.com/a.png", "detail": "fine"}),
    "audio of another format": lambda b: _part(b, 2).update(input_audio={"data": "SUQz", "format": "flac"}),
    "audio by URL": lambda b: _part(b, 2).update(input_audio={"url": "https://e.com/a.mp3", "format": "mp3"}),
    "a file by URL": lambda b: _part(b, 3).update(file={"file_url": "https://e.com/a.pdf"}),
    "arguments as an object": lambda b: _function(b, 0).update(arguments={"path": "x"}),
    "a call without its function": lambda b: _tool_call(b, 0).pop("function"),
    "a result without an id": lambda b: _message(b, 4).pop("tool_call_id"),
    "an image in a result": lambda b: _message(b, 4).update(content=[b["messages"][2]["content"][1]]),
    "an image in instructions": lambda b: _message(b, 1).update(content=[b["messages"][2]["content"][1]]),
    "an image from the assistant": lambda b: _message(b, 6).update(content=[b["messages"][2]["content"][1]]),
    "is_error in a result": lambda b: _message(b, 4).update(is_error=True),
    "a tool without a name": lambda b: cast("dict[str, object]", b["tools"][0]["function"]).pop("name"),
    "an unknown choice": lambda b: _whole(b).update(tool_choice="any"),
    "a choice without its function": lambda b: _whole(b).update(tool_choice={"type": "function", "name": "read"}),
}

_RULES: dict[str, Plant] = {
    "no messages": lambda b: b["messages"].clear(),
    "a limit of nothing": lambda b: _whole(b).update(max_completion_tokens=0),
    "the limit by its old name": lambda b: _whole(b).update(max_tokens=10),
    "options of a stream that is none": lambda b: _whole(b).update(stream_options={"include_usage": True}),
    "an empty content": lambda b: b["messages"][2]["content"].clear(),
    "an empty text": lambda b: _part(b, 0).update(text=""),
    "empty instructions": lambda b: _message(b, 0).update(content=""),
    "an answer that says nothing": lambda b: _message(b, 6).update(content=""),
    "an answer without content": lambda b: _message(b, 6).pop("content"),
    "no calls in a list of calls": lambda b: _message(b, 6).update(tool_calls=[]),
    "a call of the old kind": lambda b: _message(b, 6).update(function_call={"name": "read", "arguments": "{}"}),
    "a result of the old kind": lambda b: b["messages"].append(
        cast("Body", {"role": "function", "name": "read", "content": "x"})
    ),
    "an unanswered call": lambda b: b["messages"].pop(5),
    "an orphaned result": lambda b: b["messages"][3]["tool_calls"].pop(),
    "results out of order": lambda b: b["messages"].insert(4, b["messages"].pop(5)),
    "a result behind another message": lambda b: b["messages"].insert(4, b["messages"].pop(2)),
    "a result twice": lambda b: b["messages"].insert(5, copy.deepcopy(b["messages"][4])),
    "a call at the end": lambda b: b["messages"].__delitem__(slice(4, None)),
    "one id for two calls": lambda b: (_tool_call(b, 1).update(id="a"), _message(b, 5).update(tool_call_id="a")),
    "an illegal id": lambda b: (_tool_call(b, 0).update(id="a.b"), _message(b, 4).update(tool_call_id="a.b")),
    "an id too long": lambda b: (_tool_call(b, 0).update(id="a" * 41), _message(b, 4).update(tool_call_id="a" * 41)),
    "an illegal tool name": lambda b: _function(b, 0).update(name="fs.read"),
    "arguments that are no JSON": lambda b: _function(b, 0).update(arguments="{"),
    "arguments that are no object": lambda b: _function(b, 0).update(arguments="[1]"),
    "a call of a tool without functions": lambda b: (
        _tool_call(b, 0).pop("function"),
        _tool_call(b, 0).update(type="custom", custom={"name": "read", "input": "x"}),
    ),
    "data that is not base64": lambda b: _part(b, 1).update(image_url={"url": "data:image/png;base64,@@"}),
    "an image of another type": lambda b: _part(b, 1).update(image_url={"url": f"data:image/tiff;base64,{_PNG}"}),
    "a local path as a URL": lambda b: _part(b, 1).update(image_url={"url": "file:///etc/passwd"}),
    "a file's id as an image's URL": lambda b: _part(b, 1).update(image_url={"url": "file-1"}),
    "audio that is not base64": lambda b: _part(b, 2).update(input_audio={"data": "@", "format": "mp3"}),
    "a file that is no PDF": lambda b: _part(b, 3).update(
        file={"file_data": "data:text/csv;base64,YQ==", "filename": "a.csv"}
    ),
    "a file without a name": lambda b: _part(b, 3).update(file={"file_data": "data:application/pdf;base64,JVBERi0="}),
    "a file in no place": lambda b: _part(b, 3).update(file={"filename": "a.pdf"}),
    "a file in two places": lambda b: _part(b, 3).update(
        file={"file_data": "data:application/pdf;base64,JVBERi0=", "file_id": "file-1", "filename": "a.pdf"}
    ),
    "a tool twice": lambda b: b["tools"].append(copy.deepcopy(b["tools"][0])),
    "an illegal name of a tool": lambda b: cast("dict[str, object]", b["tools"][0]["function"]).update(name=""),
    "a choice without tools": lambda b: _whole(b).pop("tools"),
    "a choice that is not offered": lambda b: _whole(b).update(
        tool_choice={"type": "function", "function": {"name": "write"}}
    ),
}


def test_a_legal_body_is_accepted() -> None:
    require_legal(_legal())


@pytest.mark.parametrize("plant", _SHAPES.values(), ids=_SHAPES.keys())
def test_a_body_of_another_shape_is_refused(plant: Plant) -> None:
    body = _legal()
    plant(body)
    assert shape_faults(body)


@pytest.mark.parametrize("plant", _RULES.values(), ids=_RULES.keys())
def test_a_body_of_the_right_shape_that_breaks_a_rule_is_refused(plant: Plant) -> None:
    body = _legal()
    plant(body)
    assert not shape_faults(body)
    assert rule_faults(body)
