"""Inspect the schema of a projection's state."""

from collections.abc import Iterable, Iterator, Mapping
from typing import cast

__all__ = ("structured_key",)

_STRUCTURED = frozenset(
    {"tuple", "list", "set", "frozenset", "dict", "model", "dataclass", "typed-dict", "generator", "call"}
)


def structured_key(schema: object) -> str | None:
    """Return the first type of mapping keys that cannot be read back from JSON, such as a tuple.

    JSON writes keys as text. Return None if all keys of all mappings can be read back.

    Args:
        schema: pydantic's core schema of the state.
    """
    for mapping in _mappings(schema):
        keys = mapping.get("keys_schema")
        kind = cast("Mapping[str, object]", keys).get("type") if isinstance(keys, Mapping) else None
        if kind in _STRUCTURED:
            return str(kind)
    return None


def _mappings(schema: object) -> Iterator[Mapping[str, object]]:
    """Yield the schema of every mapping inside a schema. Recursive types are references, so the search ends."""
    parts: Iterable[object] = ()
    if isinstance(schema, Mapping):
        part = cast("Mapping[str, object]", schema)
        if part.get("type") == "dict":
            yield part
        parts = part.values()
    elif isinstance(schema, list | tuple):
        parts = cast("list[object]", schema)
    for each in parts:
        yield from _mappings(each)
