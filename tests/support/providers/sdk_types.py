"""Check a value against an SDK's types strictly: without coercion, and without ignoring any part.

pydantic's `TypeAdapter` over the same types is too weak. It drops unknown keys of a TypedDict, leaves an `Iterable`
unread, coerces numbers, and accepts nearly anything for a response model in a union.
"""

import json
import types
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Literal, NamedTuple, NotRequired, Required, Union, cast, get_args, get_origin

from typing_extensions import get_type_hints, is_typeddict

__all__ = ("body_faults", "type_faults")
_TAGS = ("type", "role")
_UNIONS: tuple[object, ...] = (Union, types.UnionType)
_OBJECTS: tuple[object, ...] = (dict, Mapping)
_ARRAYS: tuple[object, ...] = (list, Iterable)
_PLAIN: tuple[object, ...] = (str, int, bool, float, type(None))
_WRAPPERS: tuple[object, ...] = (Required, NotRequired, Annotated)


def body_faults(body: object, plain: object, streaming: object) -> list[str]:
    """Return where a body violates the SDK's types for a request that streams or not, or JSON."""
    faults = type_faults(body, streaming if _streams(body) else plain, "body")
    if not faults:
        json.dumps(body, allow_nan=False)
    return faults


def _streams(body: object) -> bool:
    return isinstance(body, dict) and cast("dict[str, object]", body).get("stream") is True


def type_faults(value: object, form: object, path: str = "") -> list[str]:
    """Return the faults of `value` as a `form`, each with its path; empty if there are none."""
    origin, args, is_typed_dict = _parts(form)
    if form is object:
        return []
    if origin in _WRAPPERS:
        return type_faults(value, args[0], path)
    if origin in _UNIONS:
        return _union_faults(value, args, path)
    if origin is Literal:
        return [] if any(type(value) is type(arg) and value == arg for arg in args) else [f"{path}: not one of {args}"]
    if is_typed_dict:
        return _dict_faults(value, cast("type", form), path)
    if origin in _OBJECTS:
        return _mapping_faults(value, args, path)
    if origin in _ARRAYS or getattr(origin, "__name__", None) == "SequenceNotStr":  # the SDKs' array of strings
        if not isinstance(value, list):
            return [f"{path}: not an array"]
        items = cast("list[object]", value)
        return [fault for index, item in enumerate(items) for fault in type_faults(item, args[0], f"{path}.{index}")]
    if form in _PLAIN:
        # isinstance takes True for an int, but it is not a JSON number
        found = cast("object", type(value))
        return [] if found is form else [f"{path}: {found} is not {form}"]
    return [f"{path}: {form} is no form of JSON"]  # response models, files


def _union_faults(value: object, members: tuple[object, ...], path: str) -> list[str]:
    fitting = [member for member in members if _may_be(value, member)]
    if not fitting:
        return [f"{path}: fits no member of the union"]
    found = [type_faults(value, member, path) for member in fitting]
    return min(found, key=len)


def _may_be(value: object, member: object) -> bool:
    """Return whether the discriminators match this member. Its other faults then count; no other member is tried."""
    if not isinstance(value, dict) or not _parts(member).is_typed_dict:
        return True
    fields = cast("dict[str, object]", value)
    hints = _hints(cast("type", member))
    return all(not type_faults(fields[tag], hints[tag]) for tag in _TAGS if tag in hints and tag in fields)


def _dict_faults(value: object, form: type, path: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{path}: not an object"]
    fields, hints = cast("dict[str, object]", value), _hints(form)
    faults = [f"{path}.{key}: unknown to {form.__name__}" for key in fields if key not in hints]
    faults += [f"{path}.{key}: missing" for key in sorted(_required(form) - fields.keys())]
    for key in fields.keys() & hints.keys():
        faults += type_faults(fields[key], hints[key], f"{path}.{key}")
    return faults


def _mapping_faults(value: object, args: tuple[object, ...], path: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{path}: not an object"]
    items = cast("dict[object, object]", value).items()
    faults = [f"{path}: key {key!r} is not text" for key, _ in items if not isinstance(key, str)]
    return faults + [fault for key, item in items for fault in type_faults(item, args[1], f"{path}.{key}")]


class _Parts(NamedTuple):
    """The analysis of a form. It is kept, because it takes longer than a check."""

    origin: object
    args: tuple[object, ...]
    is_typed_dict: bool


@cache
def _parts(form: object) -> _Parts:
    return _Parts(get_origin(form), get_args(form), is_typeddict(form))


@cache
def _required(form: type) -> frozenset[str]:
    return frozenset(key for key, hint in _hints(form).items() if get_origin(hint) is Required)


@cache
def _hints(form: type) -> dict[str, object]:
    return get_type_hints(form, include_extras=True)
