"""Check whether Gemini's `generateContent` accepts a body: the SDK's types, then rules that types cannot express.

The SDK's own validation is too weak: it accepts any role, empty parts and several data fields in one part, and coerces.
So this module walks its models, accepts only the camelCase names of the REST API, and coerces nothing.
"""

import base64
import binascii
import json
import re
import types as python_types
from collections.abc import Iterator
from enum import Enum
from functools import cache
from typing import Union, cast, get_args, get_origin

from pydantic import BaseModel

__all__ = ("require_legal", "rule_faults", "shape_faults", "signature_faults")
Object = dict[str, object]
_DATA = frozenset({"text", "inlineData", "fileData", "functionCall", "functionResponse"})
_SERVER_SIDE = frozenset({"executableCode", "codeExecutionResult", "toolCall", "toolResponse"})
_SAYS = {"user": _DATA - {"functionCall"}, "model": (_DATA - {"functionResponse"}) | _SERVER_SIDE}
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
_MEDIA_TYPE = re.compile(r"image/(png|jpeg|webp|heic|heif)|(audio|video|text)/[\w.+-]+|application/pdf")
_URI = re.compile(r"(https?|gs)://.+|[\w-]+(/[\w.-]+)*")
_UNIONS: tuple[object, ...] = (Union, python_types.UnionType)


def require_legal(body: object) -> None:
    """Fail with a list of all faults of the body."""
    faults = shape_faults(body) or rule_faults(body)
    assert not faults, "\n".join(faults)


def shape_faults(body: object) -> list[str]:
    """Return where the body violates the REST API's types or JSON."""
    if not isinstance(body, dict):
        return ["body: not an object"]
    forms, faults = _forms(), list[str]()
    for key, value in cast("Object", body).items():
        faults += _faults(value, forms[key], key) if key in forms else [f"{key}: unknown"]
    if not faults:
        json.dumps(body, allow_nan=False)
    return faults


def rule_faults(body: object) -> list[str]:
    """Return what the API refuses although the types allow it. The body must have no shape faults."""
    fields = cast("Object", body)
    contents = cast("list[Object]", fields.get("contents", []))
    turns = [(str(content.get("role")), cast("list[Object]", content.get("parts", []))) for content in contents]
    faults = [] if turns and turns[0][0] == "user" else ["contents: the first is not a user's"]
    faults += [f"contents.{at}: {turns[at][0]} twice in a row" for at in range(1, len(turns))
               if turns[at][0] == turns[at - 1][0]]  # fmt: skip
    for index, (role, parts) in enumerate(turns):
        if not parts:
            faults.append(f"contents.{index}: empty")
        for part in parts:
            faults += [f"contents.{index}: {fault}" for fault in _part_faults(role, part)]
    return [*faults, *_pairing_faults(turns), *_system_faults(fields), *_tool_faults(fields)]


@cache
def _forms() -> dict[str, object]:
    """Return the body's keys and their types."""
    from google.genai import types

    return {
        "contents": list[types.Content],
        "systemInstruction": types.Content,
        "tools": list[types.Tool],
        "toolConfig": types.ToolConfig,
        "generationConfig": types.GenerationConfig,
    }


def _faults(value: object, form: object, path: str) -> list[str]:
    origin, args = cast("object", get_origin(form)), get_args(form)
    if origin in _UNIONS:
        forms = [arg for arg in args if arg is not type(None)]
        return min((_faults(value, arg, path) for arg in forms), key=len)
    if origin is list:
        if not isinstance(value, list):
            return [f"{path}: not an array"]
        items = cast("list[object]", value)
        return [fault for index, item in enumerate(items) for fault in _faults(item, args[0], f"{path}.{index}")]
    if origin is dict:
        return [] if isinstance(value, dict) else [f"{path}: not an object"]
    if not isinstance(form, type) or form.__name__ == "Any":  # of JSON schemas and arguments
        return []
    if issubclass(form, BaseModel):
        return _object_faults(value, form, path)
    if issubclass(form, Enum):
        return [] if value in [member.value for member in form] else [f"{path}: not one of {form.__name__}"]
    if form is bytes:
        return [] if _is_base64(value) else [f"{path}: not base64"]
    if form is float:
        return [] if type(value) in {int, float} else [f"{path}: not a number"]
    return [] if type(value) is form else [f"{path}: not {form.__name__}"]


def _object_faults(value: object, form: type[BaseModel], path: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{path}: not an object"]
    named = {field.alias or name: field.annotation for name, field in form.model_fields.items()}
    faults: list[str] = []
    for key, item in cast("Object", value).items():
        faults += (
            _faults(item, named[key], f"{path}.{key}")
            if key in named
            else [f"{path}.{key}: unknown to {form.__name__}"]
        )
    return faults


def _part_faults(role: str, part: Object) -> Iterator[str]:
    data = part.keys() & (_DATA | _SERVER_SIDE)
    if len(data) != 1:
        yield f"holds {sorted(data)}, not one thing"
    for one in data - _SAYS.get(role, frozenset()):
        yield f"{one} from {role}"
    if role != "model" and part.keys() & {"thought", "thoughtSignature"}:
        yield f"a thought of {role}"
    if part.get("text") == "" and "thoughtSignature" not in part:
        yield "an empty text"
    if "functionCall" in part:
        yield from _name_faults(cast("Object", part["functionCall"]), "args")
    elif "functionResponse" in part:
        response = cast("Object", part["functionResponse"])
        yield from _name_faults(response, "response")
        for inner in cast("list[Object]", response.get("parts", [])):
            yield from _media_faults(inner)
    else:
        yield from _media_faults(part)


def _name_faults(call: Object, holds: str) -> Iterator[str]:
    if not _NAME.fullmatch(str(call.get("name", ""))):
        yield f"illegal name {call.get('name')!r}"
    if holds not in call:
        yield f"{call.get('name')!r} has no {holds}"


def _media_faults(part: Object) -> Iterator[str]:
    for name, place in (("inlineData", "data"), ("fileData", "fileUri")):
        media = cast("Object | None", part.get(name))
        if media is None:
            continue
        if not media.get(place):
            yield f"{name} without {place}"
        if not _MEDIA_TYPE.fullmatch(str(media.get("mimeType"))):
            yield f"{name} of type {media.get('mimeType')!r}"
        if place == "fileUri" and not _URI.fullmatch(str(media.get(place))):
            yield f"no place for a file: {media.get(place)!r}"


def _pairing_faults(turns: list[tuple[str, list[Object]]]) -> Iterator[str]:
    called: list[tuple[object, object]] = []
    for index, (_, parts) in enumerate([*turns, ("user", [])]):
        kinds = ["functionResponse" in part for part in parts]
        answered = _named(parts, "functionResponse")
        if answered != called:
            yield f"contents.{index}: calls {called} are answered by {answered}"
        if sorted(kinds, reverse=True) != kinds:
            yield f"contents.{index}: a response does not stand first"
        called = _named(parts, "functionCall")


def signature_faults(body: object) -> list[str]:
    """Return what Gemini 3 also refuses: steps of the current turn whose first call has no signature."""
    contents = cast("list[Object]", cast("Object", body)["contents"])
    turns = [cast("list[Object]", content["parts"]) for content in contents]
    asked = [index for index, parts in enumerate(turns)
             if contents[index]["role"] == "user" and not _named(parts, "functionResponse")]  # fmt: skip
    faults: list[str] = []
    for index, parts in enumerate(turns):
        called = [part for part in parts if "functionCall" in part]
        if called and index > max(asked, default=-1) and "thoughtSignature" not in called[0]:
            faults.append(f"contents.{index}: the first call of a step in the current turn has no signature")
    return faults


def _named(parts: list[Object], kind: str) -> list[tuple[object, object]]:
    found = [cast("Object", part[kind]) for part in parts if kind in part]
    return [(call.get("name"), call.get("id")) for call in found]


def _system_faults(body: Object) -> Iterator[str]:
    if "systemInstruction" not in body:
        return
    parts = cast("list[Object]", cast("Object", body["systemInstruction"]).get("parts", []))
    if not parts or any(part.keys() != {"text"} or not str(part["text"]).strip() for part in parts):
        yield "systemInstruction: something else than text"


def _tool_faults(body: Object) -> Iterator[str]:
    declared: list[str] = []
    for tool in cast("list[Object]", body.get("tools", [])):
        for function in cast("list[Object]", tool.get("functionDeclarations", [])):
            declared.append(str(function.get("name", "")))
            if not _NAME.fullmatch(declared[-1]):
                yield f"tools: illegal name {declared[-1]!r}"
            if {"parameters", "parametersJsonSchema"} <= function.keys():
                yield "tools: two schemas of one tool"
            if not isinstance(function.get("parametersJsonSchema", {}), dict):
                yield "tools: a schema is no object"
    if len(set(declared)) != len(declared):
        yield "tools: one name for two"
    config = cast("Object", cast("Object", body.get("toolConfig", {})).get("functionCallingConfig", {}))
    allowed = cast("list[str]", config.get("allowedFunctionNames", []))
    if "toolConfig" in body and (not declared or not set(allowed) <= set(declared)):
        yield "toolConfig: of tools that are not there"
    if allowed and config.get("mode") != "ANY":
        yield "toolConfig: names that no mode asks for"
    if cast("int", cast("Object", body.get("generationConfig", {})).get("maxOutputTokens", 1)) < 1:
        yield "generationConfig.maxOutputTokens: less than 1"


def _is_base64(value: object) -> bool:
    if not isinstance(value, str) or not value:
        return False
    try:
        plain = value.replace("-", "+").replace("_", "/").rstrip("=")
        base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except binascii.Error:
        return False
    return True
