"""A mapping that makes each value when it is first accessed. Reading the names imports nothing."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

__all__ = ("Lazy",)

T = TypeVar("T")


class Lazy(Mapping[str, T]):
    """A mapping from names to values. A value is made once, at its first access. Iteration and `in` make no values."""

    def __init__(self, makers: Mapping[str, Callable[[], T]]) -> None:
        self._makers = dict(makers)
        self._made: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)
