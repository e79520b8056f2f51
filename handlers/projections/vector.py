"""A long frozen sequence that is cheap to change at any place: a tuple of tuples of 64.

A flat tuple is copied whole at each change, which makes a fold over n entries take n² steps.
"""

from collections.abc import Iterator
from typing import TypeVar

__all__ = ("CHUNK", "Vector", "at", "items", "pushed", "replaced", "size")

T = TypeVar("T")

Vector = tuple[tuple[T, ...], ...]
"""All chunks but the last are full, so a place is found by division."""

CHUNK = 64


def size(vector: Vector[T]) -> int:
    """How many items there are."""
    return (len(vector) - 1) * CHUNK + len(vector[-1]) if vector else 0


def at(vector: Vector[T], index: int) -> T:
    """The item at a place from 0."""
    return vector[index // CHUNK][index % CHUNK]


def items(vector: Vector[T]) -> Iterator[T]:
    """Every item, in order."""
    return (item for chunk in vector for item in chunk)


def pushed(vector: Vector[T], item: T) -> Vector[T]:
    """The same with one item more at its end."""
    if not vector or len(vector[-1]) == CHUNK:
        return (*vector, (item,))
    return (*vector[:-1], (*vector[-1], item))


def replaced(vector: Vector[T], index: int, item: T) -> Vector[T]:
    """The same with another item at a place."""
    place, offset = divmod(index, CHUNK)
    chunk = vector[place]
    return (*vector[:place], (*chunk[:offset], item, *chunk[offset + 1 :]), *vector[place + 1 :])
