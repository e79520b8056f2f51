"""The difference between two JSON values, and patches that turn one value into the other.

Another system accepts several spellings of a message, and a lanebus codec writes one of them. The patch turns the
written JSON into the JSON that was read. A patch is a list of edits, each with the path `at`. An edit with `value` puts
that value at the path. An edit with `from` copies the source's value from the path `from`. Any other edit removes the
field.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError

__all__ = ("Change", "Path", "apply_patch", "changes", "differences", "equal", "make_patch", "put_at", "value_at")

Path = tuple[str | int, ...]

_LONG = 32  # a shorter text takes fewer bytes than the path to it


class Change(NamedTuple):
    """One place at which two values differ. The place is as deep inside the values as possible."""

    path: Path
    before: tuple[JsonValue, ...]
    """The old value; empty if the field is new."""
    after: tuple[JsonValue, ...]
    """The new value; empty if the field is removed."""


def equal(one: JsonValue, other: JsonValue) -> bool:
    """Return whether two values are the same: true is not 1, and 1 is 1.0."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def changes(
    before: JsonValue,
    after: JsonValue,
    path: Path = (),
    *,
    same: Callable[[JsonValue, JsonValue], bool] = equal,
    removed_first: bool = False,
) -> Iterator[Change]:
    """Yield the changes from `before` to `after`.

    Objects are compared key by key, in the order of the keys of `after`. Lists of the same length are compared item by
    item.

    Args:
        path: prefix of the path of each change.
        same: returns whether two values are the same. Called for values that are not compared key by key or item by
            item.
        removed_first: True yields the removed fields of an object before its other changes; False yields them after.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        removed = [key for key in before if key not in after]
        for key in (*removed, *after) if removed_first else (*after, *removed):
            if key in before and key in after:
                yield from changes(before[key], after[key], (*path, key), same=same, removed_first=removed_first)
            else:
                was, now = ((value[key],) if key in value else () for value in (before, after))
                yield Change((*path, key), was, now)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from changes(old, new, (*path, index), same=same, removed_first=removed_first)
    elif not same(before, after):
        yield Change(path, (before,), (after,))


def differences(one: JsonValue, other: JsonValue) -> Iterator[Path]:
    """Return the paths at which two values differ; true is not 1, and 1 is 1.0."""
    return (change.path for change in changes(other, one))


def make_patch(source: JsonValue, target: JsonValue) -> list[JsonValue]:
    """Return the patch that turns `source` into `target`; empty if they are the same value.

    The patch refers to a long text that `source` contains instead of repeating it. So media and outputs are not stored
    twice.
    """
    texts = dict(_long_texts(source, ()))
    patch: list[JsonValue] = []
    for path, _, after in changes(source, target, removed_first=True):
        if after:
            patch += _additions(after[0], path, texts)
        else:
            patch.append({"at": [*path]})
    return patch


def apply_patch(source: JsonValue, patch: JsonValue) -> JsonValue:
    """Return a copy of `source` with the patch applied. `source` itself does not change.

    Raises:
        DecodeError: `patch` is not a patch, or it is a patch of another value.
    """
    result: list[JsonValue] = [copy.deepcopy(source)]
    try:
        for edit in patch if isinstance(patch, list) else [patch]:
            match edit:
                case {"at": [*path], "value": value}:
                    put_at(result, [0, *path], value)
                case {"at": [*path], "from": [*place]}:
                    put_at(result, [0, *path], value_at(source, place))
                case {"at": [*path], **rest} if not rest:
                    put_at(result, [0, *path])
                case _:
                    raise TypeError
    except (LookupError, TypeError):
        raise DecodeError("", "is not a patch for this value") from None
    return result[0]


def value_at(value: JsonValue, path: Sequence[JsonValue]) -> JsonValue:
    """Return the value at a path.

    Raises:
        LookupError, TypeError: there is no value at the path.
    """
    for key in path:
        match value, key:
            case list(), int() if key >= 0:
                value = value[key]
            case dict(), str():
                value = value[key]
            case _:
                raise TypeError
    return value


def put_at(root: JsonValue, path: Sequence[JsonValue], *new: JsonValue) -> None:
    """Put a copy of `new` at a path inside `root`; without `new`, remove the field. A list can grow by one item.

    Raises:
        LookupError, TypeError: `root` has no such path.
    """
    key = path[-1]
    match value_at(root, path[:-1]), key:
        case dict() as parent, str():
            if new:
                parent[key] = copy.deepcopy(new[0])
            else:
                del parent[key]
        case list() as parent, int() if new and 0 <= key <= len(parent):
            parent[key : key + 1] = [copy.deepcopy(new[0])]
        case _:
            raise TypeError


def _additions(value: JsonValue, path: Path, texts: Mapping[str, Path]) -> Iterator[JsonValue]:
    if isinstance(value, str) and value in texts:
        yield {"at": [*path], "from": [*texts[value]]}
    elif isinstance(value, dict | list) and any(text in texts for text, _ in _long_texts(value, ())):
        yield {"at": [*path], "value": type(value)()}
        for key, item in _items(value):
            yield from _additions(item, (*path, key), texts)
    else:
        yield {"at": [*path], "value": value}


def _long_texts(value: JsonValue, path: Path) -> Iterator[tuple[str, Path]]:
    if isinstance(value, str) and len(value) >= _LONG:
        yield value, path
    for key, item in _items(value):
        yield from _long_texts(item, (*path, key))


def _items(value: JsonValue) -> Iterator[tuple[str | int, JsonValue]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)
