"""Split a long sequence into batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ("batched",)

T = TypeVar("T")


def batched(items: Sequence[T], count: int) -> Iterable[Sequence[T]]:
    """Return the items in groups of `count`; the last group may be smaller."""
    return (items[at : at + count] for at in range(0, len(items), count))
