"""The checker of Anthropic requests refuses each fault that is planted in a legal body."""

import copy
from collections.abc import Callable
from typing import cast

import pytest

from tests.support.providers.anthropic_rules import require_legal, rule_faults, shape_faults

Body = dict[str, "list[Body]"]  # what the faults reach into; the values at the leaves are set, never read

_PNG = "iVBORw0KGgo="


def _legal() -> Body:
    body = {
        "model": "claude-sonnet-5-5",
        "max_tokens": 10,
        "system": [{"type": "text", "text": "be kind"}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _PNG}},
                ],
            },
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
    return cast("Body", body)


def _block(body: Body, message: int, block: int) -> dict[str, object]:
    return cast("dict[str, object]", body["messages"][message]["content"][block])


def _message(body: Body, message: int) -> dict[str, object]:
    return cast("dict[str, object]", body["messages"][message])


def _whole(body: Body) -> dict[str, object]:
    return cast("dict[str, object]", body)


Plant = Callable[[Body], object]

_SHAPES: dict[str, Plant] = {
    "an unknown key of the body": lambda b: _whole(b).update(temprature=1),
    "a body without max_tokens": lambda b: _whole(b).pop("max_tokens"),
    "max_tokens as text": lambda b: _whole(b).update(max_tokens="10"),
    "max_tokens as a boolean": lambda b: _whole(b).update(max_tokens=True),
    "messages as an object": lambda b: _whole(b).update(messages={}),
    "an unknown key of a message": lambda b: _message(b, 0).update(metadata={}),
    "an unknown role": lambda b: _message(b, 0).update(role="tool"),
    "an unknown key of a block": lambda b: _block(b, 0, 0).update(annotations=[]),
    "an unknown block": lambda b: _block(b, 0, 0).update(type="audio"),
    "a block without a type": lambda b: _block(b, 0, 0).pop("type"),
    "a number as text": lambda b: _block(b, 0, 0).update(text=1),
    "thinking without a signature": lambda b: _block(b, 1, 0).pop("signature"),
    "an input that is no object": lambda b: _block(b, 1, 1).update(input=[1]),
    "a result that is an object": lambda b: _block(b, 2, 0).update(content={"ok": True}),
    "an unknown block in a result": lambda b: _block(b, 2, 1).update(content=[{"type": "json"}]),
    "is_error as a number": lambda b: _block(b, 2, 0).update(is_error=1),
    "an image type that is not taken": lambda b: _block(b, 0, 1).update(
        source={"type": "base64", "media_type": "image/tiff", "data": _PNG}
    ),
    "a URL source with a media type": lambda b: _block(b, 0, 1).update(
        source={"type": "url", "url": "https://e.com/a.png", "media_type": "image/png"}
    ),
    "a tool without a schema": lambda b: cast("dict[str, object]", b["tools"][0]).pop("input_schema"),
}

_RULES: dict[str, Plant] = {
    "an assistant first": lambda b: b["messages"].pop(0),
    "a user twice": lambda b: b["messages"].insert(1, copy.deepcopy(b["messages"][0])),
    "no messages": lambda b: b["messages"].clear(),
    "an empty message": lambda b: b["messages"][3]["content"].clear(),
    "an empty text": lambda b: _block(b, 0, 0).update(text=""),
    "a text of white space": lambda b: _block(b, 0, 0).update(text=" \n"),
    "a blank text in a result": lambda b: _block(b, 2, 1).update(content=[{"type": "text", "text": " "}]),
    "a blank instruction": lambda b: cast("dict[str, object]", b["system"][0]).update(text=" "),
    "an unanswered call": lambda b: b["messages"][2]["content"].pop(1),
    "an orphaned result": lambda b: b["messages"][1]["content"].pop(1),
    "results out of order": lambda b: b["messages"][2]["content"].insert(0, b["messages"][2]["content"].pop(1)),
    "a result behind text": lambda b: b["messages"][2]["content"].insert(0, b["messages"][2]["content"].pop(2)),
    "a result twice": lambda b: b["messages"][2]["content"].insert(1, copy.deepcopy(b["messages"][2]["content"][0])),
    "a call at the end": lambda b: b["messages"].__delitem__(slice(2, None)),
    "one id for two calls": lambda b: (_block(b, 1, 2).update(id="a"), _block(b, 2, 1).update(tool_use_id="a")),
    "an illegal id": lambda b: (_block(b, 1, 1).update(id="a.b"), _block(b, 2, 0).update(tool_use_id="a.b")),
    "an id too long": lambda b: (_block(b, 1, 1).update(id="a" * 65), _block(b, 2, 0).update(tool_use_id="a" * 65)),
    "an illegal tool name": lambda b: _block(b, 1, 1).update(name="fs.read"),
    "a call from the user": lambda b: _block(b, 0, 0).update(_block(b, 1, 1)) or _block(b, 0, 0).pop("text"),
    "an image from the assistant": lambda b: b["messages"][3]["content"].insert(0, b["messages"][0]["content"][1]),
    "thinking at the end": lambda b: b["messages"][3]["content"].append(b["messages"][1]["content"][0]),
    "white space at the end": lambda b: _block(b, 3, 0).update(text="so "),
    "an error without content": lambda b: _block(b, 2, 0).update(content="", is_error=True),
    "an error with an image": lambda b: _block(b, 2, 0).update(
        content=[{"type": "text", "text": "1"}, _block(b, 0, 1)], is_error=True
    ),
    "data that is not base64": lambda b: _block(b, 0, 1).update(
        source={"type": "base64", "media_type": "image/png", "data": "@@"}
    ),
    "a local path as a URL": lambda b: _block(b, 0, 1).update(source={"type": "url", "url": "file:///etc/passwd"}),
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
