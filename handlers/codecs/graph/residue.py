"""The difference between two JSON values, small and guarded: what turns the one we would write into the one we read.

A patch says where, what stood there (a digest, None for nothing), and what is to stand there (absent: nothing). It
takes effect only where what we would write is still the same, so that a message that was changed since keeps its
change. Whatever our messages have no field for survives this way, without a rule for each such thing.
"""

import copy
import hashlib
import json
from collections.abc import Iterable, Iterator

from pydantic import JsonValue

__all__ = ("Patch", "differences", "restored")

Patch = list[JsonValue]
"""`[path, digest or None]` where nothing is to stand, else `[path, digest or None, value]`."""

Key = str | int


def differences(wanted: JsonValue, found: JsonValue, path: tuple[Key, ...] = ()) -> Iterator[Patch]:
    """The patches that turn `found` into `wanted`. Numbers are told apart by their type: 1 is not 1.0, nor true."""
    match wanted, found:
        case dict(), dict():
            for key in (*wanted, *(key for key in found if key not in wanted)):
                place = (*path, key)
                if key not in found:
                    yield [[*place], None, wanted[key]]
                elif key not in wanted:
                    yield [[*place], _digest(found[key])]
                else:
                    yield from differences(wanted[key], found[key], place)
        case list(), list() if len(wanted) == len(found):
            for index, (one, other) in enumerate(zip(wanted, found, strict=True)):
                yield from differences(one, other, (*path, index))
        case _:
            # As text too: 1 equals 1.0 and true, and 0.0 equals -0.0.
            if wanted != found or str(wanted) != str(found):
                yield [[*path], _digest(found), wanted]


def restored(value: JsonValue, patches: Iterable[Patch]) -> JsonValue:
    """A copy of `value` with the patches that still fit; `value` itself stays as it is."""
    result = copy.deepcopy(value)
    for patch in patches:
        match patch:
            case [[*path, key], was, *new] if len(new) <= 1:
                _apply(result, path, key, was, new)
            case _:  # not ours, or damaged
                continue
    return result


def _apply(root: JsonValue, path: list[JsonValue], key: JsonValue, was: JsonValue, new: list[JsonValue]) -> None:
    parent = root
    for step in path:
        match parent, step:
            case dict(), str() if step in parent:
                parent = parent[step]
            case list(), int() if 0 <= step < len(parent):
                parent = parent[step]
            case _:
                return
    match parent, key:
        case dict(), str() if (_digest(parent[key]) if key in parent else None) == was:
            if new:
                parent[key] = copy.deepcopy(new[0])
            else:
                del parent[key]
        case list(), int() if new and 0 <= key < len(parent) and _digest(parent[key]) == was:
            parent[key] = copy.deepcopy(new[0])
        case _:
            return


def _digest(value: JsonValue) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:12]
