"""What has to be done to one JSON value to make another of it: small where the two are almost the same.

A codec writes a message in one way, while its system knows several. The edits lead from the one to what was read.
Each is an object: `at`, a list of keys and indexes, and `value`, or `from`, where the same text already stands; with
neither of the two the field is taken away.
"""

import copy
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError

__all__ = ("Place", "differences", "edited", "edits_between")

Key = str | int
Place = tuple[Key, ...]

_LONG = 32  # a shorter text costs less than saying where it stands


def edits_between(made: JsonValue, given: JsonValue) -> list[JsonValue]:
    """The edits that make `given` of `made`; none if they are the same value. No long text stands in them that also
    stands in `made`: media and outputs are not stored twice."""
    return list(_edits(made, given, (), dict(_long_texts(made, ()))))


def edited(made: JsonValue, edits: JsonValue) -> JsonValue:
    """What the edits make of `made`, which stays as it is.

    Raises:
        DecodeError: they are none, or not for this value.
    """
    result: list[JsonValue] = [copy.deepcopy(made)]
    try:
        for edit in _objects(edits):
            at: list[Key] = [0, *_keys(edit["at"])]
            parent = _found(result, at[:-1])
            if "value" in edit:
                _put(parent, at[-1], copy.deepcopy(edit["value"]))
            elif "from" in edit:
                _put(parent, at[-1], _found(made, _keys(edit["from"])))
            else:
                del _as_dict(parent)[str(at[-1])]
    except (KeyError, IndexError, TypeError):
        raise DecodeError("", "edits that fit another value") from None
    return result[0]


def differences(one: JsonValue, other: JsonValue, at: Place = ()) -> Iterator[Place]:
    """Where two values differ, as deep as can be said; true is not 1, 1 is 1.0."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            if key in one and key in other:
                yield from differences(one[key], other[key], (*at, key))
            else:
                yield (*at, key)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            yield from differences(mine, theirs, (*at, index))
    elif isinstance(one, bool) != isinstance(other, bool) or one != other:
        yield at


def _edits(made: JsonValue, given: JsonValue, at: Place, texts: Mapping[str, Place]) -> Iterator[JsonValue]:
    if isinstance(made, dict) and isinstance(given, dict):
        yield from (_edit((*at, key)) for key in made if key not in given)
        for key, item in given.items():
            if key in made:
                yield from _edits(made[key], item, (*at, key), texts)
            else:
                yield from _additions(item, (*at, key), texts)
    elif isinstance(made, list) and isinstance(given, list) and len(made) == len(given):
        for index, (mine, theirs) in enumerate(zip(made, given, strict=True)):
            yield from _edits(mine, theirs, (*at, index), texts)
    elif isinstance(made, bool) != isinstance(given, bool) or made != given:
        yield from _additions(given, at, texts)


def _additions(given: JsonValue, at: Place, texts: Mapping[str, Place]) -> Iterator[JsonValue]:
    if isinstance(given, str) and given in texts:
        yield _edit(at, {"from": [*texts[given]]})
    elif not any(text in texts for text, _ in _long_texts(given, ())):
        yield _edit(at, {"value": given})
    elif isinstance(given, dict):
        yield _edit(at, {"value": {}})
        for key, item in given.items():
            yield from _additions(item, (*at, key), texts)
    elif isinstance(given, list):
        yield _edit(at, {"value": []})
        for index, item in enumerate(given):
            yield from _additions(item, (*at, index), texts)


def _edit(at: Place, what: dict[str, JsonValue] | None = None) -> JsonValue:
    return {"at": [*at], **(what or {})}


def _long_texts(value: JsonValue, at: Place) -> Iterator[tuple[str, Place]]:
    if isinstance(value, str):
        if len(value) >= _LONG:
            yield value, at
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _long_texts(item, (*at, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _long_texts(item, (*at, index))


def _objects(edits: JsonValue) -> Iterator[dict[str, JsonValue]]:
    if not isinstance(edits, list):
        raise TypeError
    yield from (_as_dict(edit) for edit in edits)


def _keys(place: JsonValue) -> list[Key]:
    if not isinstance(place, list):
        raise TypeError
    return [key if isinstance(key, int) else str(key) for key in place]


def _found(value: JsonValue, place: list[Key]) -> JsonValue:
    for key in place:
        value = value[key] if isinstance(value, list) and isinstance(key, int) else _as_dict(value)[str(key)]
    return value


def _put(parent: JsonValue, key: Key, value: JsonValue) -> None:
    if not isinstance(parent, list):
        _as_dict(parent)[str(key)] = value
    elif isinstance(key, int) and key == len(parent):
        parent.append(value)
    elif isinstance(key, int):
        parent[key] = value
    else:
        raise TypeError


def _as_dict(value: JsonValue) -> dict[str, JsonValue]:
    if not isinstance(value, dict):
        raise TypeError
    return value
