"""The origin: what a message stores about the JSON that it was read from, to write that JSON back unchanged."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from lanebus.bus.messages.llm import LlmMessage
from lanebus.handlers.codecs.codec import ORIGIN
from lanebus.handlers.codecs.graph.guarded_patch import GuardedPatch
from lanebus.handlers.json_fields import Object

__all__ = ("MessageOrigin", "is_spelling", "origin_of", "without_origin")

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
        residue=tuple(patch for patch in _items(stored.get("residue")) if isinstance(patch, list)),
    )


def is_spelling(stored: Mapping[str, JsonValue]) -> bool:
    """Return whether an origin describes only spelling and omitted keys."""
    adds = any(isinstance(patch, list) and len(patch) != 2 for patch in _items(stored.get("residue")))
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
        path: frozenset(word for word in _items(spelling) if isinstance(word, str)) for path, spelling in value.items()
    }


def _pairs(value: JsonValue) -> tuple[tuple[int, int], ...]:
    return tuple((_count(pair[0]), _count(pair[1])) for pair in map(_items, _items(value)) if len(pair) == 2)


def _items(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _count(value: JsonValue) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
