"""The list of a session's items, folded from the log, and the entries that change it.

The entries are extension messages. Each follows, in the same step, the messages of the LLM lane that show its items:

- `store.openai_agents.added`: `items`, each the JSON text of an item or its place in the media store; `shown`, for each
  item how many positions before this entry the message is that shows it
- `store.openai_agents.popped`: the last item is removed; `again`, how many of the items before it are shown once more,
  by the message one position before this entry
- `store.openai_agents.replaced`: the items from `keep` on are removed, and the first `dropped`
- `store.openai_agents.cleared`: all items are removed
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import JsonValue

from lanebus.bus.messages.context_entry import Compaction, LeafMove, Prune
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.wire.envelope import Cursor
from lanebus.handlers.backends.openai_agents.bounds import SessionBounds
from lanebus.handlers.backends.openai_items.messages import ShownItem, messages_of

__all__ = (
    "KINDS",
    "Item",
    "ItemHistory",
    "added",
    "cleared",
    "fold",
    "fold_imported",
    "plain_item",
    "popped",
    "replaced",
)

KINDS = ("store.openai_agents.*",)
"""kinds of the messages that `fold` takes"""

_ADDED = "store.openai_agents.added"
_POPPED = "store.openai_agents.popped"
_REPLACED = "store.openai_agents.replaced"
_CLEARED = "store.openai_agents.cleared"


class Item(NamedTuple):
    """One stored item. Two items are equal only if they are the same entry's."""

    place: tuple[int, int]
    """position of the entry that added it, and its index there"""
    value: JsonValue
    """its JSON text, or its place in the media store"""
    shown: int
    """position of the message of the LLM lane that shows it; 0 if none does, or if the item is imported"""
    is_imported: bool = False
    """whether an import added it. It is then only read as text, see `plain_item`"""

    @property
    def text(self) -> str | None:
        """The JSON text; None if it is in the media store."""
        return self.value if isinstance(self.value, str) else None


@dataclass(slots=True)
class ItemHistory:
    """The items of a session, oldest first."""

    settled: list[Item] = field(default_factory=list[Item])
    imported: list[Item] = field(default_factory=list[Item])
    """the newest items, if they are imported. Only imported entries that follow at once can change them"""

    @property
    def items(self) -> list[Item]:
        """All items. Change neither them nor the list."""
        return [*self.settled, *self.imported] if self.imported else self.settled


def fold(history: ItemHistory, cursor: Cursor, message: Publishable) -> None:
    """Add one entry. Entries of another form are ignored."""
    history.settled += history.imported
    history.imported.clear()
    _change(history.settled, cursor.position, message)


def fold_imported(history: ItemHistory, cursor: Cursor, message: Publishable) -> None:
    """Add one imported entry. It changes only the items that the entries directly before it imported."""
    _change(history.imported, cursor.position, message, is_imported=True)


def _change(items: list[Item], position: int, message: Publishable, *, is_imported: bool = False) -> None:
    if not isinstance(message, ExtensionMessage):
        return
    match message.kind, message.data:
        case "store.openai_agents.added", {"items": list(values), "shown": list(back)}:
            for index, (value, steps) in enumerate(zip(values, back, strict=False)):
                shown = position - steps if isinstance(steps, int) and not is_imported else 0
                items.append(Item((position, index), value, shown, is_imported))
        case "store.openai_agents.popped", {"again": int(again)}:
            del items[-1:]
            if again > 0 and not is_imported:
                items[-again:] = [item._replace(shown=position - 1) for item in items[-again:]]
        case "store.openai_agents.replaced", {"keep": int(keep), "dropped": int(dropped)}:
            items[:] = items[max(dropped, 0) : max(keep, 0)]
        case "store.openai_agents.cleared", _:
            items.clear()
        case _:
            pass


def plain_item(item: JsonValue) -> dict[str, JsonValue]:
    """Return an imported item as a message with its text, so that it neither answers, approves nor calls anything.

    The text of a message of a user or of the model stays. Any other item, such as a call or an approval, becomes a
    text of the model with the item's JSON.
    """
    match item:
        case {"role": "user" | "assistant" as role, "content": str(text)}:
            return {"role": role, "content": text}
        case {"role": "user" | "assistant" as role, "content": list(parts)}:
            texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
            if all(isinstance(text, str) for text in texts):
                return {"role": role, "content": "".join(map(str, texts))}
        case _:
            pass
    return {"role": "assistant", "content": f"[imported] {json.dumps(item, ensure_ascii=False)}"}


def added(values: Sequence[JsonValue], shown: Sequence[ShownItem], bounds: SessionBounds) -> Iterator[Publishable]:
    """Yield the messages that add items: those of the LLM lane, then as many entries as the items need.

    Args:
        values: the items as `Item.value`.
        shown: the messages that show the items.
        bounds: the size of an entry.
    """
    yield from (each.message for each in shown)
    before = [len(shown) - index for index, each in enumerate(shown) for _ in range(each.items)]
    chunk: list[JsonValue] = []
    steps: list[JsonValue] = []
    size = entries = 0
    for value, back in zip(values, before, strict=True):
        length = len(value) if isinstance(value, str) else 100
        if chunk and size + length > bounds.entry_bytes:
            yield ExtensionMessage(kind=_ADDED, data={"items": chunk, "shown": steps})
            chunk, steps, size, entries = [], [], 0, entries + 1
        chunk.append(value)
        steps.append(back + entries)
        size += length
    yield ExtensionMessage(kind=_ADDED, data={"items": chunk, "shown": steps})


def popped(history: ItemHistory, bounds: SessionBounds) -> Iterator[Publishable]:
    """Yield the messages that remove the last item. What else the same message showed is shown again."""
    *others, last = history.items
    again = 0
    while last.shown and again < len(others) and others[-1 - again].shown == last.shown:
        again += 1
    if last.shown:
        yield Prune(pruned=(last.shown,))
    if again:
        texts = [item.text for item in others[-again:]]
        shown = messages_of(texts, limit_bytes=bounds.shown_bytes)
        yield shown[0].message
    yield ExtensionMessage(kind=_POPPED, data={"again": again})


def replaced(history: ItemHistory, keep: int, dropped: int) -> Iterator[Publishable]:
    """Yield the messages that remove the items from index `keep` on, and the first `dropped`. `added` may follow."""
    if not keep:
        yield Compaction(summary="")
    elif leaf := history.items[keep - 1].shown:
        yield LeafMove(to=leaf)
    yield ExtensionMessage(kind=_REPLACED, data={"keep": keep, "dropped": dropped})


def cleared() -> Iterator[Publishable]:
    """Yield the messages that remove all items."""
    yield LeafMove(to=None)
    yield ExtensionMessage(kind=_CLEARED, data={})
