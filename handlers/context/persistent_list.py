"""An immutable sequence that is cheap to append to and to change at any place.

After every entry, the context is a new value, with perhaps 10,000 messages. A tuple would be copied completely each
time, so a fold over n entries would take n² steps. A changed sequence shares all chunks but one with the original
sequence. Measured at 10,000 items: 0.2 µs to append, 1 µs to replace one; a tuple takes 14 µs.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Self, TypeVar, cast, get_args, overload

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

T = TypeVar("T")

_SIZE = 64
"""Number of items in a full chunk. Appending copies half a chunk on average. Stored states of projections contain
chunks of this size."""


class _Index:
    """The places of items by one of their attributes. Lists share it that begin with the same items."""

    __slots__ = ("attribute", "places", "values")

    def __init__(self, attribute: str, items: Iterable[object]) -> None:
        self.attribute = attribute
        self.values: list[object] = []
        self.places: dict[object, tuple[int, ...]] = {}
        for item in items:
            self.add(getattr(item, attribute))

    def add(self, value: object) -> None:
        self.places[value] = (*self.places.get(value, ()), len(self.values))
        self.values.append(value)

    def follows(self, place: int, items: Iterable[object]) -> bool:
        """Note the items of a longer list. Return False if another list has other items at these places."""
        for at, item in enumerate(items, place):
            value: object = getattr(item, self.attribute)
            if at == len(self.values):
                self.add(value)
            elif self.values[at] != value:
                return False
        return True


class PersistentList(Sequence[T]):
    """An immutable sequence. `appended` and `replaced` return a new sequence; a slice is a tuple.

    A pydantic model stores a field of this type as a list of chunks.
    """

    __hash__ = None  # type: ignore[assignment]  # like a list: compared by its items, which need not be hashable
    __slots__ = ("_full", "_index", "_tail")

    def __init__(self, items: Iterable[T] = ()) -> None:
        whole = tuple(items)
        cut = len(whole) - len(whole) % _SIZE
        self._full = tuple(whole[at : at + _SIZE] for at in range(0, cut, _SIZE))
        self._tail = whole[cut:]
        self._index: _Index | None = None

    @property
    def chunks(self) -> tuple[tuple[T, ...], ...]:
        """The items in tuples of 64; the last tuple may be shorter, and no tuple is empty."""
        return (*self._full, self._tail) if self._tail else self._full

    def appended(self, *items: T) -> Self:
        """Return this sequence with `items` at its end."""
        full, tail = self._full, (*self._tail, *items)
        while len(tail) >= _SIZE:
            full, tail = (*full, tail[:_SIZE]), tail[_SIZE:]
        index = self._index if self._index is not None and self._index.follows(len(self), items) else None
        return self._of(full, tail, index)

    def replaced(self, index: int, item: T) -> Self:
        """Return this sequence with another item at `index`, counted from 0.

        Raises:
            IndexError: there is no item at that index. Negative indexes are refused.
        """
        if not 0 <= index < len(self):
            raise IndexError(index)
        number, place = divmod(index, _SIZE)
        known = self._index if self._index is not None and self._index.follows(index, (item,)) else None
        if number == len(self._full):
            return self._of(self._full, (*self._tail[:place], item, *self._tail[place + 1 :]), known)
        chunk = self._full[number]
        changed = (*chunk[:place], item, *chunk[place + 1 :])
        return self._of((*self._full[:number], changed, *self._full[number + 1 :]), self._tail, known)

    def places(self, attribute: str, value: object) -> tuple[int, ...]:
        """Return the indexes of the items whose `attribute` is `value`, which must be hashable.

        The first call for an attribute looks at all items. Lists that are made from this one share what it found.
        """
        if self._index is None or self._index.attribute != attribute:
            self._index = _Index(attribute, self)
        return tuple(place for place in self._index.places.get(value, ()) if place < len(self))

    def beginning(self, length: int) -> Self:
        """Return the first `length` items, or all items if there are fewer."""
        number, place = divmod(max(0, min(length, len(self))), _SIZE)
        rest = self._full[number] if number < len(self._full) else self._tail
        return self._of(self._full[:number], rest[:place], self._index)

    def __len__(self) -> int:
        return len(self._full) * _SIZE + len(self._tail)

    def __iter__(self) -> Iterator[T]:
        return chain(chain.from_iterable(self._full), self._tail)

    def __reversed__(self) -> Iterator[T]:
        return chain.from_iterable(map(reversed, reversed(self.chunks)))

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            return tuple(self[at] for at in range(*index.indices(len(self))))
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(index)
        number, place = divmod(at, _SIZE)
        return self._tail[place] if number == len(self._full) else self._full[number][place]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PersistentList):
            return NotImplemented
        return tuple(self) == tuple(other)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]

    def __repr__(self) -> str:
        return f"PersistentList({list(self)!r})"

    @classmethod
    def _of(cls, full: tuple[tuple[T, ...], ...], tail: tuple[T, ...], index: _Index | None) -> Self:
        result = cls.__new__(cls)
        result._full, result._tail, result._index = full, tail, index
        return result

    @classmethod
    def _joined(cls, chunks: tuple[tuple[T, ...], ...]) -> Self:
        return cls(chain.from_iterable(chunks))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[object], handler: GetCoreSchemaHandler) -> CoreSchema:
        (item,) = cast("tuple[type[object], ...]", get_args(source))
        chunks = handler.generate_schema(tuple[tuple[item, ...], ...])  # type: ignore[valid-type]  # known at run time
        return core_schema.json_or_python_schema(
            json_schema=core_schema.no_info_after_validator_function(cls._joined, chunks),
            python_schema=core_schema.is_instance_schema(cls),
            serialization=core_schema.plain_serializer_function_ser_schema(_chunks_of, return_schema=chunks),
        )


class FlatList(PersistentList[T]):
    """A persistent list that equals a tuple of the same items, and that a pydantic model stores as a plain list."""

    __slots__ = ()
    __hash__ = None

    def __eq__(self, other: object) -> bool:
        return tuple(self) == other if isinstance(other, tuple) else super().__eq__(other)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[object], handler: GetCoreSchemaHandler) -> CoreSchema:
        (item,) = cast("tuple[type[object], ...]", get_args(source))
        items = handler.generate_schema(tuple[item, ...])  # type: ignore[valid-type]  # known at run time
        made = core_schema.no_info_after_validator_function(cls, items)
        return core_schema.json_or_python_schema(
            json_schema=made,
            python_schema=core_schema.union_schema([core_schema.is_instance_schema(cls), made]),
            serialization=core_schema.plain_serializer_function_ser_schema(_items_of, return_schema=items),
        )


def _items_of(items: FlatList[T]) -> tuple[T, ...]:
    return tuple(items)


def _chunks_of(items: PersistentList[T]) -> tuple[tuple[T, ...], ...]:
    return items.chunks
