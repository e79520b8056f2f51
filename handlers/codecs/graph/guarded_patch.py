"""Patches that apply only if the value at their path has not changed since the patch was made.

A patch is `[path, digest, value]`: the path, a digest of the old value, and the new value. The digest is None if there
was no old value; the new value is absent if the patch removes the field. A field that has changed since keeps its new
value. Such patches preserve JSON that lanebus messages have no field for, without a rule for each case.
"""

import copy
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from pydantic import JsonValue

from lanebus.handlers.codecs.json_patch import changes, equal, put_at, value_at

__all__ = ("GuardedPatch", "apply_guarded", "guarded_patches", "same_literal")

GuardedPatch = list[JsonValue]
"""`[path, digest]` removes a field; `[path, digest, value]` sets it. `digest` is of the old value; None for a new
field."""


def same_literal(one: JsonValue, other: JsonValue) -> bool:
    """Return whether two values are the same, including the type of each number: 1 is not 1.0, 0.0 is not -0.0."""
    return equal(one, other) and str(one) == str(other)


def guarded_patches(source: JsonValue, target: JsonValue) -> Iterator[GuardedPatch]:
    """Return the patches that turn `source` into `target`."""
    for path, before, after in changes(source, target, same=same_literal):
        yield [[*path], _digest(before[0]) if before else None, *after]


def apply_guarded(source: JsonValue, patches: Iterable[GuardedPatch]) -> JsonValue:
    """Apply each patch whose digest still matches to a copy of `source`, and return the copy. Ignore damaged
    patches."""
    result = copy.deepcopy(source)
    for patch in patches:
        with suppress(LookupError, TypeError):
            match patch:
                case [[_, *_] as path, digest, *new] if len(new) <= 1 and _digest_at(result, path) == digest:
                    put_at(result, path, *new)
                case _:
                    continue
    return result


def _digest_at(value: JsonValue, path: Sequence[JsonValue]) -> str | None:
    try:
        return _digest(value_at(value, path))
    except KeyError:  # there is no such field yet
        return None


def _digest(value: JsonValue) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:12]
