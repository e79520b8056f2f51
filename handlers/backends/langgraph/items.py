"""The items of a store, folded from a session, and which of them a search or a filter matches."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import ge, gt, le, lt
from typing import Annotated, Final, cast

from pydantic import Field, JsonValue

from lanebus.bus.errors import DecodeError, InvalidArgument
from lanebus.bus.messages.extension import ExtensionData, ExtensionMessage
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.wire.envelope import Cursor

__all__ = ("ItemStored", "Items", "StoredItem", "fold_imported_item", "fold_item", "has_path", "is_match")

Path = tuple[str, ...]


class ItemStored(ExtensionData):
    """An item was stored or deleted."""

    KIND = "store.langgraph.item"
    namespace: Annotated[Path, Field(strict=False)]
    key: str
    at: int
    """time of the change by the author's clock, in milliseconds since 1970 UTC"""
    value: dict[str, JsonValue] | None = None
    """the value; None if it is in the media store, or if the item was deleted"""
    media: JsonValue = None
    """the value's JSON in the media store; None if it is not there"""

    @property
    def is_deleted(self) -> bool:
        """Whether the item was deleted."""
        return self.value is None and self.media is None


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item as it is now."""

    entry: ItemStored
    created: int
    """time in milliseconds since 1970 UTC"""
    is_imported: bool = False
    """whether the item is of an import; an import changes and deletes only such items"""


Items = dict[Path, dict[str, StoredItem]]
"""namespace → key → item."""


def fold_item(items: Items, cursor: Cursor, message: Publishable) -> None:
    """Add one entry of the session. Unknown and unreadable entries change nothing."""
    del cursor
    _fold(items, message, is_imported=False)


def fold_imported_item(items: Items, cursor: Cursor, message: Publishable) -> None:
    """Add one imported entry. It neither changes nor deletes an item that a program has stored."""
    del cursor
    _fold(items, message, is_imported=True)


def _fold(items: Items, message: Publishable, *, is_imported: bool) -> None:
    if not isinstance(message, ExtensionMessage) or message.kind != ItemStored.KIND:
        return
    with suppress(DecodeError):
        entry = ItemStored.read(message.data)
        known = items.get(entry.namespace, {})
        before = known.get(entry.key)
        if is_imported and before is not None and not before.is_imported:
            return
        if not entry.is_deleted:
            created = before.created if before is not None and before.is_imported == is_imported else entry.at
            items.setdefault(entry.namespace, {})[entry.key] = StoredItem(entry, created, is_imported)
        elif known.pop(entry.key, None) is not None and not known:
            del items[entry.namespace]


def has_path(namespace: Path, path: Sequence[str], *, is_suffix: bool) -> bool:
    """Return whether a namespace begins or ends with a path, in which "*" stands for any name."""
    part = namespace[len(namespace) - len(path) :] if is_suffix else namespace[: len(path)]
    return len(namespace) >= len(path) and all(wanted in {name, "*"} for name, wanted in zip(part, path, strict=False))


def is_match(value: object, wanted: object) -> bool:
    """Return whether a value matches a filter: equal, or as its operators such as {"$gte": 4} say.

    Raises:
        InvalidArgument: the filter has an unknown operator.
    """
    if isinstance(wanted, Mapping):
        fields = cast("Mapping[str, object]", wanted)
        if any(name.startswith("$") for name in fields):
            return all(_compares(value, name, bound) for name, bound in fields.items())
        if not isinstance(value, Mapping):
            return False
        inner = cast("Mapping[str, object]", value)
        return all(is_match(inner.get(name), each) for name, each in fields.items())
    if isinstance(wanted, list | tuple):
        if not isinstance(value, list):
            return False
        known, items = cast("list[object]", value), cast("Sequence[object]", wanted)
        return len(known) == len(items) and all(map(is_match, known, items))
    return value == wanted


_ORDERS: Final[Mapping[str, Callable[[float, float], bool]]] = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}


def _compares(value: object, operator: str, bound: object) -> bool:
    if operator in {"$eq", "$ne"}:
        return (value == bound) == (operator == "$eq")
    if operator not in _ORDERS:
        raise InvalidArgument("filter", operator, "use $eq, $ne, $gt, $gte, $lt or $lte")
    try:
        return _ORDERS[operator](float(cast("float", value)), float(cast("float", bound)))
    except (TypeError, ValueError):  # what is no number is in no order
        return False
