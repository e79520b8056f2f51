"""Store how a message's JSON was spelled, to write that JSON back unchanged."""

import copy
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from pydantic import JsonValue

from lanebus.bus.messages import LlmMessage
from lanebus.handlers.context import Object
from lanebus.handlers.formats.codec import ORIGIN
from lanebus.handlers.formats.round_trip import changes, equal, put_at, value_at

# Patches that apply only if the value at their path has not changed since the patch was made.
#
# A patch is `[path, digest, value]`: the path, a digest of the old value, and the new value. The digest is None if
# there was no old value; the new value is absent if the patch removes the field. A field that has changed since keeps
# its new value. Such patches preserve JSON that lanebus messages have no field for, without a rule for each case.

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


# The origin: what a message stores about the JSON that it was read from, to write that JSON back unchanged.

_SPELLINGS = frozenset({"codec", "sparse", "words", "beside", "bare", "calls", "residue"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageOrigin:
    """The parts of one graph message that lanebus messages have no field for."""

    is_sparse: bool = False
    """Whether the graph message left out empty keys."""
    has_int_id: bool = False
    """Whether the graph message's id was a number. The lanebus id is the number as text."""
    spellings: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """Path → spelling of the block at that path, only for blocks whose spelling is not the dialect's."""
    beside: tuple[tuple[int, int], ...] = ()
    """For a message of tool results, one pair per result: the number of blocks before and after the result."""
    is_bare: bool = False
    """Whether the graph message has the role `tool` but holds no result."""
    added_calls: int = 0
    """Number of calls at the end of the content that came from the field `tools_calls` alone."""
    residue: tuple[GuardedPatch, ...] = ()
    """Patches that turn the JSON that the other fields produce into the JSON that was read."""

    def to_json(self, codec: str) -> Object | None:
        """Return the JSON to store in the message's metadata; None if there is nothing to store."""
        flags: Object = {
            "sparse": self.is_sparse,
            "intId": self.has_int_id,
            "words": {path: [*sorted(spelling)] for path, spelling in self.spellings.items()},
            "beside": [[*pair] for pair in self.beside],
            "bare": self.is_bare,
            "calls": self.added_calls,
            "residue": [*self.residue],
        }
        stored = {key: value for key, value in flags.items() if value}
        return {"codec": codec, **stored} if stored else None


def origin_of(message: LlmMessage, codec: str) -> MessageOrigin:
    """Return the origin that the codec named `codec` stored. A missing origin and a damaged part are read as empty."""
    stored = (message.metadata or {}).get(ORIGIN)
    if not isinstance(stored, dict) or stored.get("codec") != codec:
        return MessageOrigin()
    return MessageOrigin(
        is_sparse=stored.get("sparse") is True,
        has_int_id=stored.get("intId") is True,
        spellings=_spellings(stored.get("words")),
        beside=_pairs(stored.get("beside")),
        is_bare=stored.get("bare") is True,
        added_calls=_count(stored.get("calls")),
        residue=tuple(patch for patch in _list_items(stored.get("residue")) if isinstance(patch, list)),
    )


def is_spelling(stored: Mapping[str, JsonValue]) -> bool:
    """Return whether an origin describes only spelling and omitted keys."""
    adds = any(isinstance(patch, list) and len(patch) != 2 for patch in _list_items(stored.get("residue")))
    return stored.keys() <= _SPELLINGS and not adds


def without_origin(metadata: Mapping[str, JsonValue] | None) -> Object:
    """Return a copy of the metadata without the record that a codec stored under `ORIGIN`."""
    stored = dict(metadata or {})
    match stored.get(ORIGIN):
        case {"codec": str()}:
            del stored[ORIGIN]
        case _:
            pass
    return stored


def _spellings(value: JsonValue) -> dict[str, frozenset[str]]:
    if not isinstance(value, dict):
        return {}
    return {
        path: frozenset(word for word in _list_items(spelling) if isinstance(word, str))
        for path, spelling in value.items()
    }


def _pairs(value: JsonValue) -> tuple[tuple[int, int], ...]:
    return tuple((_count(pair[0]), _count(pair[1])) for pair in map(_list_items, _list_items(value)) if len(pair) == 2)


def _list_items(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _count(value: JsonValue) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
