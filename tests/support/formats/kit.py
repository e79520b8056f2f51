"""What a codec's tests are made of: samples that the laws of all codecs are tried on."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus.bus.messages import Block, Publishable
from lanebus.codecs import Codec

__all__ = (
    "BAD_MEDIA",
    "GONE",
    "Blocks",
    "Faults",
    "Kit",
    "Losses",
    "Object",
    "changed",
    "lists_in",
    "places",
    "spoilt",
)
Object = dict[str, JsonValue]
Faults = Sequence[tuple[JsonValue, Mapping[str, Sequence[JsonValue]]]]
"""A message that is legal, and values that are refused at a place of it. A key is the place, or "PLACE > PATH" if the
error names another path. The place "" is the message itself."""

Blocks = Sequence[tuple[JsonValue, Block]]
"""Their spelling of a block, and ours, which may be written otherwise where the spelling is not remembered."""

Losses = Sequence[tuple[Publishable, Sequence[str]]]
"""Our message, and how each of its losses begins."""

GONE = "(gone)"
"""The value that stands for the absence of a field."""

BAD_MEDIA: tuple[JsonValue, ...] = (
    *("", "file:/etc/passwd", "FILE:///etc/passwd", "/etc/passwd", "./a.png", "../a.png", "~/a.png", "C:\\a.png"),
    *("a.png", "javascript:alert(1)", "JavaScript:alert(1)", "//host/a.png", 1),
)
"""Places that media must never have: local paths, and schemes that run code instead of fetching."""


class Kit(NamedTuple):
    """One codec, and what is known of its system."""

    codec: Codec
    content: Callable[[JsonValue], JsonValue]
    """their message of a user, with one block"""
    said: Sequence[tuple[JsonValue, Publishable]]
    """their message, and ours, each written as the other without a loss"""
    blocks: Blocks
    faults: Faults
    roles: Sequence[str]
    """roles that none of their messages has"""
    losses: Losses
    theirs: st.SearchStrategy[object]
    """any of their messages"""
    odd: st.SearchStrategy[object]
    """nearly one of their messages"""

    def __repr__(self) -> str:
        """Return its name: hypothesis prints the arguments of a test, and the strategies are long."""
        return f"Kit({self.codec.name})"


def changed(value: JsonValue, place: str, new: JsonValue) -> JsonValue:
    """Return the value with something else at a place, or without it if `new` is `GONE`."""
    if not place:
        return new
    *way, last = [int(name) if name.isdigit() else name for name in place.split(".")]
    result = copy.deepcopy(value)
    holder = cast("dict[str | int, JsonValue]", result)
    for step in way:
        holder = cast("dict[str | int, JsonValue]", holder[step])
    if new == GONE:
        del holder[last]
    else:
        holder[last] = new
    return result


def places(value: JsonValue, path: str = "") -> Iterator[tuple[str, JsonValue]]:
    """Return everything in a value, with its place."""
    found = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in found:
        at = f"{path}.{key}" if path else str(key)
        yield at, item
        yield from places(item, at)


def spoilt(faults: Faults) -> Iterator[tuple[JsonValue, str]]:
    """Return each message with a fault, and the path that its error names."""
    for value, places in faults:
        for key, bad in places.items():
            place, _, path = key.partition(" > ")
            yield from ((changed(value, place, one), path or place) for one in bad)


def lists_in(levels: int) -> JsonValue:
    """Return lists nested `levels` deep."""
    value: JsonValue = []
    for _ in range(levels - 1):
        value = [value]
    return value
