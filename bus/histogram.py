"""Counts of values by size. Adding one takes well under a microsecond, so the hot path can count."""

from bisect import bisect_left
from collections.abc import Sequence

__all__ = ("Histogram",)


class Histogram:
    """Counts values by range, and sums all values. Values can be added, but not removed."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """
        Args:
            bounds: the highest value of each range, ascending. A last range has all higher values.
        """
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        """the number of values in each range; not cumulative"""
        self.total = 0.0
        """the sum of all values"""

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def merge(self, other: "Histogram") -> None:
        """Add the counts and the sum of another histogram, which must have the same bounds."""
        for at, count in enumerate(other.counts):
            self.counts[at] += count
        self.total += other.total
