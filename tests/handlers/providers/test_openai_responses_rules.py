"""The checker of Responses requests refuses each fault that is planted in a legal body."""

import copy
from collections.abc import Callable
from typing import cast

import pytest

from tests.support.providers.openai_responses_rules import require_legal, rule_faults, shape_faults

Body = dict[str, "list[Body]"]  # what the faults reach into; the values at the leaves are set, never read
Plant = Callable[[Body], object]

_PNG = "data:image/png;base64,iVBORw0KGgo="
_PDF = "data:application/pdf;base64,JVBERi0="


def _call(call: str) -> dict[str, object]:
    return {"type": "function_call", "call_id": call, "name": "read", "arguments": '{"path": "x"}'}


def _legal() -> Body:
    body: dict[str, object] = {
        "model": "gpt-5.2",
        "max_output_tokens": 16,
        "store": False,
        "instructions": "be kind",
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "be short"}]},
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "look"},
                    {"type": "input_image", "image_url": _PNG, "detail": "low"},
                    {"type": "input_file", "file_data": _PDF, "filename": "a.pdf"},
                ],
            },
            {
                "type": "reasoning",
                "id": "rs_1",
                "encrypted_content": "x",
                "summary": [{"type": "summary_text", "text": "hm"}],
            },
            _call("a"),
            _call("b"),
            {"type": "function_call_output", "call_id": "a", "output": "1"},
            {
                "type": "function_call_output",
                "call_id": "b",
                "output": [{"type": "input_text", "text": "2"}, {"type": "input_image", "image_url": _PNG}],
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
    return cast("Body", body)


def _whole(body: Body) -> dict[str, object]:
    return cast("dict[str, object]", body)


def _item(body: Body, item: int) -> dict[str, object]:
    return cast("dict[str, object]", body["input"][item])


def _part(body: Body, item: int, part: int) -> dict[str, object]:
    return cast("dict[str, object]", body["input"][item]["content"][part])


def _tool(body: Body) -> dict[str, object]:
    return cast("dict[str, object]", body["tools"][0])


_SHAPES: dict[str, Plant] = {
    "an unknown key of the body": lambda b: _whole(b).update(temprature=1),
    "messages of the other API": lambda b: _whole(b).update(messages=[]),
    "a limit as text": lambda b: _whole(b).update(max_output_tokens="16"),
    "a limit by its other name": lambda b: _whole(b).update(max_tokens=16),
    "store as text": lambda b: _whole(b).update(store="no"),
    "instructions as blocks": lambda b: _whole(b).update(instructions=[{"type": "input_text", "text": "x"}]),
    "an item of an unknown type": lambda b: _item(b, 3).update(type="tool_call"),
    "an unknown role": lambda b: _item(b, 1).update(role="tool"),
    "an unknown key of an item": lambda b: _item(b, 5).update(is_error=True),
    "an unknown part": lambda b: _part(b, 1, 0).update(type="text"),
    "a part without a type": lambda b: _part(b, 1, 0).pop("type"),
    "a number as text": lambda b: _part(b, 1, 0).update(text=1),
    "an image as an object": lambda b: _part(b, 1, 1).update(image_url={"url": _PNG}),
    "an image without detail": lambda b: _part(b, 1, 1).pop("detail"),
    "an unknown detail": lambda b: _part(b, 1, 1).update(detail="fine"),
    "audio": lambda b: b["input"][1]["content"].append(
        cast("Body", {"type": "input_audio", "input_audio": {"data": "SUQz", "format": "mp3"}})
    ),
    "arguments as an object": lambda b: _item(b, 3).update(arguments={"path": "x"}),
    "a call without its id": lambda b: _item(b, 3).pop("call_id"),
    "a result that is an object": lambda b: _item(b, 5).update(output={"ok": True}),
    "output_text in a result": lambda b: _item(b, 5).update(output=[{"type": "output_text", "text": "x"}]),
    "an answer without an id": lambda b: _item(b, 7).pop("id"),
    "an answer without a status": lambda b: _item(b, 7).pop("status"),
    "an answer's text without annotations": lambda b: _part(b, 7, 0).pop("annotations"),
    "reasoning without an id": lambda b: _item(b, 2).pop("id"),
    "reasoning without a summary": lambda b: _item(b, 2).pop("summary"),
    "a summary of bare texts": lambda b: _item(b, 2).update(summary=["hm"]),
    "a user that says an answer's text": lambda b: _item(b, 7).update(role="user"),
    "a tool without strict": lambda b: _tool(b).pop("strict"),
    "a tool in an object": lambda b: _whole(b).update(tools=[{"type": "function", "function": {"name": "read"}}]),
    "an unknown choice": lambda b: _whole(b).update(tool_choice="any"),
}

_RULES: dict[str, Plant] = {
    "no input": lambda b: b["input"].clear(),
    "no model": lambda b: _whole(b).pop("model"),
    "a limit of nothing": lambda b: _whole(b).update(max_output_tokens=0),
    "empty instructions": lambda b: _whole(b).update(instructions=""),
    "an empty message": lambda b: b["input"][1]["content"].clear(),
    "an empty text": lambda b: _part(b, 1, 0).update(text=""),
    "an empty text of an answer": lambda b: _part(b, 7, 0).update(text=""),
    "an answer of a user's text": lambda b: _item(b, 1).update(role="assistant"),
    "an image in instructions": lambda b: _item(b, 0).update(content=[b["input"][1]["content"][1]]),
    "an answer with an id of another kind": lambda b: _item(b, 7).update(id="a"),
    "an id twice": lambda b: b["input"].append(copy.deepcopy(b["input"][7])),
    "a call with an id of another kind": lambda b: _item(b, 3).update(id="call_1"),
    "an unanswered call": lambda b: b["input"].pop(6),
    "an orphaned result": lambda b: b["input"].pop(4),
    "results out of order": lambda b: b["input"].insert(5, b["input"].pop(6)),
    "a result behind another message": lambda b: b["input"].insert(5, b["input"].pop(1)),
    "a result behind a later answer": lambda b: b["input"].insert(6, b["input"].pop(7)),
    "a result twice": lambda b: b["input"].insert(6, copy.deepcopy(b["input"][5])),
    "a call at the end": lambda b: b["input"].__delitem__(slice(5, None)),
    "one id for two calls": lambda b: (_item(b, 4).update(call_id="a"), _item(b, 6).update(call_id="a")),
    "an illegal id": lambda b: (_item(b, 3).update(call_id="a.b"), _item(b, 5).update(call_id="a.b")),
    "an id too long": lambda b: (_item(b, 3).update(call_id="a" * 65), _item(b, 5).update(call_id="a" * 65)),
    "a result without an id": lambda b: _item(b, 5).pop("call_id"),
    "an empty result": lambda b: _item(b, 6).update(output=[]),
    "an empty text in a result": lambda b: _item(b, 6).update(output=[{"type": "input_text", "text": ""}]),
    "an illegal tool name": lambda b: _item(b, 3).update(name="fs.read"),
    "arguments that are no JSON": lambda b: _item(b, 3).update(arguments="{"),
    "arguments that are no object": lambda b: _item(b, 3).update(arguments='"x"'),
    "reasoning with an id of another kind": lambda b: _item(b, 2).update(id="x"),
    "reasoning that nobody has kept": lambda b: _item(b, 2).pop("encrypted_content"),
    "reasoning without what it led to": lambda b: b["input"].insert(0, b["input"].pop(2)),
    "reasoning at the end": lambda b: b["input"].append(b["input"].pop(2)),
    "an item of a tool that was never offered": lambda b: b["input"].append(
        cast("Body", {"type": "item_reference", "id": "msg_9"})
    ),
    "an image in no place": lambda b: _part(b, 1, 1).pop("image_url"),
    "an image in two places": lambda b: _part(b, 1, 1).update(file_id="file-1"),
    "data that is not base64": lambda b: _part(b, 1, 1).update(image_url="data:image/png;base64,@@"),
    "an image of another type": lambda b: _part(b, 1, 1).update(image_url="data:image/tiff;base64,SUkq"),
    "a local path as a URL": lambda b: _part(b, 1, 1).update(image_url="file:///etc/passwd"),
    "a file without a name": lambda b: _part(b, 1, 2).pop("filename"),
    "a file in two places": lambda b: _part(b, 1, 2).update(file_id="file-1"),
    "a local path of a file": lambda b: (
        _part(b, 1, 2).pop("file_data"),
        _part(b, 1, 2).update(file_url="/etc/passwd"),
    ),
    "a tool twice": lambda b: b["tools"].append(copy.deepcopy(b["tools"][0])),
    "an illegal name of a tool": lambda b: _tool(b).update(name="fs.read"),
    "a choice without tools": lambda b: _whole(b).pop("tools"),
    "a choice that is not offered": lambda b: _whole(b).update(tool_choice={"type": "function", "name": "write"}),
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
