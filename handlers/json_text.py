"""Compact JSON text, put together without parsing again what is JSON already."""

import json
from collections.abc import Mapping

__all__ = ("compact", "spliced")


def compact(value: object) -> str:
    """A value as one line of JSON, not escaped to ASCII."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def spliced(values: Mapping[str, object], name: str, text: str) -> str:
    """An object of these values, one or more, and of a last one that is JSON text.

    A message writes its own JSON: to parse it and write it again costs ten times as much.
    """
    return f'{compact(values)[:-1]},"{name}":{text}}}'
