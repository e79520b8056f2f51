"""`LanebusStore`: LangGraph's store of items on a bus. Items are folded from a session, and searches match them."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import ge, gt, le, lt
from typing import Annotated, Any, Final, TypedDict, cast

from langgraph.store.base import BaseStore, GetOp, Item, ListNamespacesOp, Op, PutOp, Result, SearchItem, SearchOp
from pydantic import Field, JsonValue

from lanebus import Bus, Cursor, ExtensionMessage
from lanebus.errors import DecodeError, InvalidArgument
from lanebus.handlers.integrations.blocking import BusInThread, BusLoop
from lanebus.handlers.integrations.bounds import DEFAULT_BACKEND_BOUNDS, BackendBounds
from lanebus.handlers.integrations.session_states import SessionStates, load_value, session_id_of
from lanebus.integration import ExtensionData, now_ms, parse_json
from lanebus.messages import Publishable

# The items of a store, folded from a session, and which of them a search or a filter matches.

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


class _Fields(TypedDict):
    """The fields of an item, as LangGraph names them."""

    namespace: Path
    key: str
    value: dict[str, Any]
    created_at: datetime
    updated_at: datetime


class LanebusStore(BaseStore):
    """A store for LangGraph that keeps items in sessions of the bus: one session for each first name of a namespace.

    Each change is an entry, so a session also has the history of its items. The items of the sessions in use are in
    memory, and a read fetches only the entries since the last read.

    Imported items are read like others, as plain JSON. They change and delete no item that a program has stored.

    Operations of one batch that read see none of its puts. The puts of one session are appended in one step.

    Items do not expire, so a `ttl` is refused. There is no index for a search by meaning: a `query` is refused, and
    `index` is ignored.
    """

    supports_ttl = False

    def __init__(
        self,
        bus: Bus | BusInThread,
        *,
        agent: str = "langgraph-store",
        bounds: BackendBounds = DEFAULT_BACKEND_BOUNDS,
    ) -> None:
        """
        Args:
            bus: a bus that was opened on the running event loop, or the result of `bus_in_thread`.
            agent: the agent that the sessions belong to. Stores with different agents share nothing.
            bounds: the number of sessions in memory, and the sizes from which values go to the media store.

        Raises:
            RuntimeError: `bus` is a `Bus` and no event loop is running.
        """
        self._loop, self._agent, self._bounds = BusLoop(bus), agent, bounds
        self._bus = self._loop.bus
        self._states = SessionStates[Items](
            self._bus.session,
            dict,
            fold_item,
            kinds={ItemStored.KIND},
            fold_imported=fold_imported_item,
            agent=agent,
            bounds=bounds,
        )

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations. The result of each is at its index.

        If the call is cancelled, the puts of each session are all stored or none of them.

        Raises:
            InvalidArgument: an operation has a `query` or a `ttl`, a namespace is empty, or a value is no JSON. Nothing
                was stored.
            Unavailable: the server cannot be reached. The puts of some sessions may be stored.
            Closed: the event loop of the bus has ended.
        """
        return await self._loop.run(self._batch(list(ops)))

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations as `abatch` does, and block until they are done.

        Raises:
            WouldBlock: the current thread runs the event loop of the bus. Nothing was done.
            BusError: the errors of `abatch`.
        """
        return self._loop.wait("batch", self._batch(list(ops)))

    async def _batch(self, ops: Sequence[Op]) -> list[Result]:
        puts = dict[str, dict[tuple[Path, str], bytes | None]]()
        for op in ops:
            if isinstance(op, SearchOp) and op.query:
                raise InvalidArgument("query", op.query, "leave it out: lanebus has no index for a search by meaning")
            if isinstance(op, PutOp):
                of_session = puts.setdefault(self._session_of(op.namespace), {})
                of_session[op.namespace, op.key] = _stored_value(op)
        results = [await self._read(op) for op in ops]
        for session_id, changes in puts.items():
            await self._put(session_id, changes)
        return results

    async def _read(self, op: Op) -> Result:
        match op:
            case GetOp():
                async with self._states.newest(self._session_of(op.namespace)) as items:
                    found = items.get(op.namespace, {}).get(op.key)
                return None if found is None else Item(**await self._fields(found))
            case SearchOp():
                return await self._search(op)
            case ListNamespacesOp():
                return await self._namespaces(op)
            case PutOp():
                return None

    async def _search(self, op: SearchOp) -> list[SearchItem]:
        prefix, found = op.namespace_prefix, list[StoredItem]()
        for session_id in [self._session_of(prefix)] if prefix else await self._sessions():
            async with self._states.newest(session_id) as items:
                found += [
                    item
                    for namespace, of_namespace in items.items()
                    if namespace[: len(prefix)] == prefix
                    for item in of_namespace.values()
                ]
        if op.filter:
            loaded = [(item, await self._value(item)) for item in found]
            found = [item for item, value in loaded if is_match(value, op.filter)]
        chosen = found[op.offset : op.offset + op.limit]
        return [SearchItem(**await self._fields(item)) for item in chosen]

    async def _namespaces(self, op: ListNamespacesOp) -> list[Path]:
        conditions, found = op.match_conditions or (), set[Path]()
        first = {each.path[0] for each in conditions if each.match_type == "prefix" and each.path} - {"*"}
        sessions: Collection[str] = {self._session_of((str(name),)) for name in first} or await self._sessions()
        for session_id in sessions:
            async with self._states.newest(session_id) as items:
                found |= {
                    namespace[: op.max_depth]
                    for namespace in items
                    if all(has_path(namespace, each.path, is_suffix=each.match_type == "suffix") for each in conditions)
                }
        return sorted(found)[op.offset : op.offset + op.limit]

    async def _put(self, session_id: str, changes: dict[tuple[Path, str], bytes | None]) -> None:
        now, room, entries = now_ms(), self._bounds.batch_bytes, list[ItemStored]()
        for (namespace, key), data in changes.items():
            entry = ItemStored(namespace=namespace, key=key, at=now)
            if data is not None and len(data) <= min(self._bounds.inline_bytes, room):
                room -= len(data)
                entry = ItemStored(namespace=namespace, key=key, at=now, value=json.loads(data))
            elif data is not None:
                sha256 = await self._bus.media.put_if_absent(data)
                entry = ItemStored(
                    namespace=namespace, key=key, at=now, media={"sha256": sha256, "sizeBytes": len(data)}
                )
            entries.append(entry)

        def decide(items: Items) -> list[ExtensionMessage]:
            known = [each for each in entries if not each.is_deleted or each.key in items.get(each.namespace, {})]
            return [each.as_extension() for each in known]

        await self._states.append(session_id, decide)

    async def _fields(self, item: StoredItem) -> _Fields:
        entry = item.entry
        return {
            "namespace": entry.namespace,
            "key": entry.key,
            "value": await self._value(item),
            "created_at": _utc_time(item.created),
            "updated_at": _utc_time(entry.at),
        }

    async def _value(self, item: StoredItem) -> dict[str, object]:
        """Return a copy of the value, which the caller may change."""
        if item.entry.value is None:
            value = parse_json(await load_value(self._bus.media, item.entry.media))
            if not isinstance(value, dict):
                raise DecodeError("media", "a stored item is not an object")
            return cast("dict[str, object]", value)
        return cast("dict[str, object]", deepcopy(item.entry.value))

    async def _sessions(self) -> list[str]:
        return sorted(head.session for head in await self._bus.sessions(agent=self._agent) if not head.is_erased)

    def _session_of(self, namespace: Path) -> str:
        if not namespace:
            raise InvalidArgument("namespace", namespace, "pass at least one name")
        return session_id_of(f"{self._agent}\0{namespace[0]}", prefix="langgraph-store")


def _stored_value(op: PutOp) -> bytes | None:
    if op.ttl is not None:
        raise InvalidArgument("ttl", op.ttl, "leave it out: items of lanebus do not expire")
    if op.value is None:
        return None
    try:
        return json.dumps(dict(op.value), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise InvalidArgument("value", op.value, f"pass JSON: {error}") from None


def _utc_time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
