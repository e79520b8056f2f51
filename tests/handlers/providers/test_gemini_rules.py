"""The checker of Gemini requests refuses each fault that is planted in a legal body."""

import copy
from collections.abc import Callable
from typing import cast

import pytest

from tests.support.providers.gemini_rules import require_legal, rule_faults, shape_faults, signature_faults

Object = dict[str, object]

_PNG = {"mimeType": "image/png", "data": "iVBORw0KGgo="}


def _legal() -> Object:
    return copy.deepcopy(
        {
            "systemInstruction": {"parts": [{"text": "be kind"}]},
            "contents": [
                {"role": "user", "parts": [{"text": "look"}, {"inlineData": _PNG}]},
                {
                    "role": "model",
                    "parts": [
                        {"text": "hm", "thought": True},
                        {
                            "functionCall": {"name": "read", "args": {"path": "x"}, "id": "a"},
                            "thoughtSignature": "c2ln",
                        },
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
                                "parts": [{"inlineData": _PNG}],
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
    )


def _contents(body: Object) -> list[Object]:
    return cast("list[Object]", body["contents"])


def _parts(body: Object, content: int) -> list[Object]:
    return cast("list[Object]", _contents(body)[content]["parts"])


def _of(body: Object, content: int, part: int, name: str) -> Object:
    return cast("Object", _parts(body, content)[part][name])


def _declared(body: Object) -> list[Object]:
    return cast("list[Object]", cast("list[Object]", body["tools"])[0]["functionDeclarations"])


def _choice(body: Object) -> Object:
    return cast("Object", cast("Object", body["toolConfig"])["functionCallingConfig"])


Plant = Callable[[Object], object]

_SHAPES: dict[str, Plant] = {
    "a model in the body": lambda b: b.update(model="gemini-3-pro"),
    "streaming in the body": lambda b: b.update(stream=True),
    "a key in snake_case": lambda b: b.update(system_instruction=b.pop("systemInstruction")),
    "contents as an object": lambda b: b.update(contents={}),
    "instructions as text": lambda b: b.update(systemInstruction="be kind"),
    "max_output_tokens as text": lambda b: b.update(generationConfig={"maxOutputTokens": "10"}),
    "max_output_tokens as a boolean": lambda b: b.update(generationConfig={"maxOutputTokens": True}),
    "an unknown key of a content": lambda b: _contents(b)[0].update(name="x"),
    "a role as a number": lambda b: _contents(b)[0].update(role=1),
    "an unknown key of a part": lambda b: _parts(b, 0)[0].update(type="text"),
    "a part in snake_case": lambda b: _parts(b, 0)[1].update(inline_data=_parts(b, 0)[1].pop("inlineData")),
    "text as a number": lambda b: _parts(b, 0)[0].update(text=1),
    "thought as text": lambda b: _parts(b, 1)[0].update(thought="true"),
    "a signature that is not base64": lambda b: _parts(b, 1)[1].update(thoughtSignature="{sig}"),
    "data that is not base64": lambda b: _of(b, 0, 1, "inlineData").update(data="@@"),
    "no data": lambda b: _of(b, 0, 1, "inlineData").update(data=""),
    "a media type in another spelling": lambda b: _of(b, 0, 1, "inlineData").update(mime_type="image/png"),
    "arguments as text": lambda b: _of(b, 1, 1, "functionCall").update(args="{}"),
    "a response as text": lambda b: _of(b, 2, 0, "functionResponse").update(response="1"),
    "an unknown key of a response": lambda b: _of(b, 2, 0, "functionResponse").update(isError=True),
    "tools as an object": lambda b: b.update(tools={}),
    "an unknown key of a tool": lambda b: _declared(b)[0].update(input_schema={}),
    "an unknown mode": lambda b: _choice(b).update(mode="required"),
    "an allowed name that is no list": lambda b: _choice(b).update(allowedFunctionNames="read"),
}

_RULES: dict[str, Plant] = {
    "no contents": lambda b: _contents(b).clear(),
    "a model first": lambda b: _contents(b).pop(0),
    "a user twice": lambda b: _contents(b).insert(1, copy.deepcopy(_contents(b)[0])),
    "an unknown role": lambda b: _contents(b)[3].update(role="assistant"),
    "an empty content": lambda b: _parts(b, 3).clear(),
    "a part with nothing in it": lambda b: _parts(b, 3).append({}),
    "a part with two things in it": lambda b: _parts(b, 0)[1].update(text="x"),
    "an empty text": lambda b: _parts(b, 0)[0].update(text=""),
    "a call from the user": lambda b: _parts(b, 0).append({"functionCall": {"name": "read", "args": {}}}),
    "a response from the model": lambda b: _parts(b, 3).append({"functionResponse": {"name": "r", "response": {}}}),
    "code from the user": lambda b: _parts(b, 0).append({"executableCode": {"code": "1", "language": "PYTHON"}}),
    "a user's thought": lambda b: _parts(b, 0)[0].update(thought=True),
    "a user's signature": lambda b: _parts(b, 0)[0].update(thoughtSignature="c2ln"),
    "an unanswered call": lambda b: _parts(b, 2).pop(1),
    "an orphaned response": lambda b: _parts(b, 1).pop(2),
    "responses out of order": lambda b: _parts(b, 2).insert(0, _parts(b, 2).pop(1)),
    "a response behind text": lambda b: _parts(b, 2).insert(0, _parts(b, 2).pop(3)),
    "responses in two contents": lambda b: _contents(b).insert(3, {"role": "user", "parts": [_parts(b, 2).pop(1)]}),
    "a response of another name": lambda b: _of(b, 2, 0, "functionResponse").update(name="list"),
    "a response of another id": lambda b: _of(b, 2, 0, "functionResponse").update(id="b"),
    "a response without its id": lambda b: _of(b, 2, 0, "functionResponse").pop("id"),
    "a call at the end": lambda b: _contents(b).__delitem__(slice(2, None)),
    "an illegal name": lambda b: (
        _of(b, 1, 2, "functionCall").update(name="7 up"),
        _of(b, 2, 1, "functionResponse").update(name="7 up"),
    ),
    "a call without arguments": lambda b: _of(b, 1, 2, "functionCall").pop("args"),
    "a response without one": lambda b: _of(b, 2, 1, "functionResponse").pop("response"),
    "media without a type": lambda b: _of(b, 0, 1, "inlineData").pop("mimeType"),
    "media of a type not taken": lambda b: _of(b, 0, 1, "inlineData").update(mimeType="image/gif"),
    "media without data": lambda b: _of(b, 0, 1, "inlineData").pop("data"),
    "a file without its type": lambda b: _of(b, 2, 2, "fileData").pop("mimeType"),
    "a local path as a file": lambda b: _of(b, 2, 2, "fileData").update(fileUri="file:///etc/passwd"),
    "media of a type not taken in a response": lambda b: cast(
        "list[Object]", _of(b, 2, 0, "functionResponse")["parts"]
    )[0].update(inlineData={"mimeType": "image/tiff", "data": "QQ=="}),
    "blank instructions": lambda b: b.update(systemInstruction={"parts": [{"text": " "}]}),
    "an image as instructions": lambda b: b.update(systemInstruction={"parts": [{"inlineData": _PNG}]}),
    "an illegal tool name": lambda b: _declared(b)[1].update(name="a b"),
    "one name for two tools": lambda b: _declared(b)[1].update(name="read"),
    "two schemas of one tool": lambda b: _declared(b)[0].update(parameters={"type": "OBJECT"}),
    "a schema that is a list": lambda b: _declared(b)[0].update(parametersJsonSchema=[]),
    "a choice of tools that are not there": lambda b: b.pop("tools"),
    "names in a mode that takes none": lambda b: _choice(b).update(mode="AUTO"),
    "no tokens": lambda b: b.update(generationConfig={"maxOutputTokens": 0}),
}


def test_a_legal_body_is_accepted() -> None:
    require_legal(_legal())


def test_a_call_without_a_signature_in_the_current_turn_is_refused() -> None:
    body = _legal()
    assert not signature_faults(body)
    del _parts(body, 1)[1]["thoughtSignature"]
    assert signature_faults(body)
    _contents(body).append({"role": "user", "parts": [{"text": "next"}]})
    assert not signature_faults(body)


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
