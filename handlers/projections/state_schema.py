"""What the schema of a state says of its JSON."""

from collections.abc import Iterable, Iterator, Mapping
from typing import cast

__all__ = ("structured_key",)

_STRUCTURED = frozenset(
    {"tuple", "list", "set", "frozenset", "dict", "model", "dataclass", "typed-dict", "generator", "call"}
)


def structured_key(schema: object) -> str | None:
    """Return the type of a mapping's keys that JSON writes as text and does not read back; None if there is no such.

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
    """Yield every mapping's schema inside of a schema. Recursive types are references, so it ends."""
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
