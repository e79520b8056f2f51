"""`LanebusSession`: the history of a conversation of OpenAI's Agents SDK, kept in a session of lanebus."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Any, NamedTuple, TypeVar, cast
from weakref import ref

from agents import RunContextWrapper, SessionSettings, TResponseInputItem
from agents.memory.session_settings import coerce_session_settings, resolve_session_limit
from agents.usage import RequestUsage
from agents.usage import Usage as RunUsage
from pydantic import JsonValue

from lanebus import (
    AssistantMessage,
    Bus,
    Cursor,
    ExtensionMessage,
    ImageBlock,
    MediaRef,
    MessageError,
    SystemMessage,
    TextBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from lanebus.errors import InvalidArgument
from lanebus.handlers.integrations.bounds import DEFAULT_SESSION_BOUNDS, SessionBounds
from lanebus.handlers.integrations.session_states import SessionStates, load_value, session_id_of, store_value
from lanebus.integration import Object, cut_text, now_ms, output_blocks, parse_json, read_call, require_text
from lanebus.messages import (
    Block,
    Compaction,
    DeveloperMessage,
    DocumentBlock,
    LeafMove,
    Prune,
    Publishable,
    UnknownBlock,
)

# Items of the SDK as messages of the LLM lane, for the page, usage and turns. They need not be exact.
#
# Consecutive items of one answer become one message: its thinking, texts and calls. Each tool's output is a message of
# its own.

_SPEAKERS: dict[str, type[SystemMessage | DeveloperMessage | UserMessage]] = {
    "user": UserMessage,
    "system": SystemMessage,
    "developer": DeveloperMessage,
}
_PARTS_OF_CALL = frozenset({"type", "id", "call_id", "name", "status"})


ShownMessage = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolResultMessage


class ShownItem(NamedTuple):
    """A message of the LLM lane, and the number of items that it shows."""

    message: ShownMessage
    items: int


def messages_of(texts: Sequence[str | None], *, limit_bytes: int) -> list[ShownItem]:
    """Return the messages that show items, in order. Together they show all items.

    Args:
        texts: each item as JSON text; None for a part of an answer that is not at hand.
        limit_bytes: maximum size of a message's JSON. A larger message shows the start of its text.
    """
    items = [_parsed_item(text) for text in texts]
    shown: list[ShownItem] = []
    for is_answer, group in groupby(items, _is_answer):
        members = [*group]
        parts = [members] if is_answer else [[item] for item in members]
        shown += [ShownItem(_limited(_message(part), limit_bytes), len(part)) for part in parts]
    return shown


def _parsed_item(text: str | None) -> Object:
    """Return an item. One that the bus could not store as JSON becomes a message of the user with its text."""
    if text is None:
        return {"role": "assistant", "content": "[stored apart]"}
    try:
        value = parse_json(_without_surrogates(text))
    except MessageError:
        return {"role": "user", "content": _without_surrogates(text)}
    return value if isinstance(value, dict) else {"role": "user", "content": json.dumps(value)}


def _without_surrogates(text: str) -> str:
    r"""Return JSON text with `?` in place of lone surrogates, such as `\ud800`, which the bus refuses."""
    if "\\ud" not in text:
        return text
    try:
        return json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8", "replace").decode()
    except (ValueError, RecursionError):
        return text.encode("utf-8", "replace").decode()


def _is_answer(item: Object) -> bool:
    kind = item.get("type")
    if kind is None or kind == "message":
        return item.get("role") == "assistant"
    return not (isinstance(kind, str) and kind.endswith(("_output", "_response")))


def _message(items: Sequence[Object]) -> ShownMessage:
    first = items[0]
    if _is_answer(first):
        content = tuple(block for item in items for block in _answer_blocks(item))
        called = any(block.type == "toolCall" for block in content)
        return AssistantMessage(content=content, stop_reason="toolUse" if called else "stop", timestamp=now_ms())
    call_id = first.get("call_id")
    if isinstance(call_id, str) and str(first.get("type")).endswith("_output"):
        return ToolResultMessage(tool_call_id=call_id, content=_blocks(first.get("output")), timestamp=now_ms())
    speaker = _SPEAKERS.get(str(first.get("role")), UserMessage)
    content = _blocks(first["content"]) if "content" in first else (UnknownBlock(raw=first),)
    return speaker(content=content, timestamp=now_ms())


def _answer_blocks(item: Object) -> Sequence[Block]:
    try:
        match item:
            case {"role": "assistant", "content": str(text)}:
                return (TextBlock(text=text),)
            case {"role": "assistant", "content": list()}:
                return output_blocks({**item, "type": "message"}, "", {})
            case {"type": str(kind), "call_id": str(call_id)} if kind.endswith("_call") and kind != "function_call":
                name = item.get("name")
                rest = {key: value for key, value in item.items() if key not in _PARTS_OF_CALL}
                call = read_call(call_id, name if isinstance(name, str) else kind.removesuffix("_call"), "", {})
                return (call.model_copy(update={"arguments": rest, "call_type": kind}),)
            case _:
                return output_blocks(item, "", {})
    except MessageError:
        return (UnknownBlock(raw=item),)


def _blocks(content: JsonValue) -> tuple[Block, ...]:
    if isinstance(content, str):
        return (TextBlock(text=content),)
    parts = content if isinstance(content, list) else [content]
    return tuple(_block(part) for part in parts)


def _block(part: JsonValue) -> Block:
    try:
        match part:
            case str(text) | {"text": str(text)}:
                return TextBlock(text=text)
            case {"type": "input_image", "image_url": str(url)}:
                return ImageBlock(media=MediaRef.from_url(url))
            case {"type": "input_image", "file_id": str(file_id)}:
                return ImageBlock(media=MediaRef(kind="file_id", file_id=file_id))
            case {"type": "input_file", "file_data": str(url)} | {"type": "input_file", "file_url": str(url)}:
                return DocumentBlock(media=MediaRef.from_url(url))
            case {"type": "input_file", "file_id": str(file_id)}:
                return DocumentBlock(media=MediaRef(kind="file_id", file_id=file_id))
            case _:
                pass
    except MessageError:
        pass
    return UnknownBlock(raw=part) if isinstance(part, dict) else TextBlock(text=json.dumps(part))


def _limited(message: ShownMessage, limit_bytes: int) -> ShownMessage:
    """Return the message. If it is too large, return one with the start of its text and the names of its calls."""
    if len(message.to_json_bytes()) <= limit_bytes:
        return message
    # A character of a text takes at most six bytes as JSON.
    text = cut_text(message.text_with_results(), limit_bytes // 12) + " […]"
    calls = message.tool_calls() if isinstance(message, AssistantMessage) else ()
    short = [call.model_copy(update={"arguments": {}, "arguments_raw": None, "signature": None}) for call in calls]
    content: tuple[Block, ...] = (TextBlock(text=text), *short)
    limited = message.model_copy(update={"content": content})
    if len(limited.to_json_bytes()) <= limit_bytes:
        return limited
    return message.model_copy(update={"content": content[:1]})


# The usage of model calls, as the SDK's run context reports it.


def usage_of(request: RequestUsage | RunUsage) -> Usage:
    """Return the usage of one model call. In the SDK the cached tokens are part of the input, here they are not."""
    read, write = request.input_tokens_details.cached_tokens, request.input_tokens_details.cache_write_tokens
    return Usage(
        input=max(request.input_tokens - read - write, 0),
        output=request.output_tokens,
        reasoning=request.output_tokens_details.reasoning_tokens,
        cache_read=read,
        cache_write=write,
        total_tokens=request.total_tokens,
    )


class UsageReader:
    """Finds the calls of a run that were made since its last append. Remembers only the newest run."""

    def __init__(self) -> None:
        self._usage: ref[RunUsage] | None = None
        self._seen = 0

    def with_usage(self, shown: Sequence[ShownItem], wrapper: RunContextWrapper[object] | None) -> list[ShownItem]:
        """Return the messages with the usage of the newest calls: the last call belongs to the last answer.

        Args:
            shown: the messages of an append.
            wrapper: the context of the run; None if there is no run, so no usage is known.
        """
        return [*shown] if wrapper is None else _with_usage(shown, self._new(wrapper.usage))

    def _new(self, usage: RunUsage) -> list[RequestUsage]:
        if self._usage is None or self._usage() is not usage:
            self._usage, self._seen = ref(usage), 0
        new = usage.request_usage_entries[self._seen :]
        self._seen = len(usage.request_usage_entries)
        return new


def _with_usage(shown: Sequence[ShownItem], requests: Iterable[RequestUsage]) -> list[ShownItem]:
    answers = [index for index, each in enumerate(shown) if isinstance(each.message, AssistantMessage)]
    result = [*shown]
    for index, request in zip(reversed(answers), islice(reversed([*requests]), len(answers)), strict=False):
        message, items = result[index]
        if isinstance(message, AssistantMessage):
            result[index] = ShownItem(message.model_copy(update={"usage": usage_of(request)}), items)
    return result


# The list of a session's items, folded from the log, and the entries that change it.
#
# The entries are extension messages. Each follows, in the same step, the messages of the LLM lane that show its items:
#
# - `store.openai_agents.added`: `items`, each the JSON text of an item or its place in the media store; `shown`, for
#   each item how many positions before this entry the message is that shows it
# - `store.openai_agents.popped`: the last item is removed; `again`, how many of the items before it are shown once
#   more, by the message one position before this entry
# - `store.openai_agents.replaced`: the items from `keep` on are removed, and the first `dropped`
# - `store.openai_agents.cleared`: all items are removed

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
    _apply_entry(history.settled, cursor.position, message)


def fold_imported(history: ItemHistory, cursor: Cursor, message: Publishable) -> None:
    """Add one imported entry. It changes only the items that the entries directly before it imported."""
    _apply_entry(history.imported, cursor.position, message, is_imported=True)


def _apply_entry(items: list[Item], position: int, message: Publishable, *, is_imported: bool = False) -> None:
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


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The last items of a session, and a function that replaces them if nothing has changed meanwhile.

    Source: `agents.memory.session._CompactionSnapshot`, which the SDK's compaction reads by these names.
    """

    items: list[TResponseInputItem]
    complete: bool
    """whether `items` are all items of the session"""
    replace_suffix: Callable[[int, list[TResponseInputItem]], Awaitable[bool]]


class LanebusSession:
    """The history of one conversation, for the argument `session` of the SDK's `Runner`.

    Each append is one entry of a session of lanebus, with the messages that the page, usage and turns read. Items come
    back as they were added. Nothing is rewritten or deleted: a pop, a clear or a compaction appends an entry.

    Imported items are read as texts: a message of a user or of the model as its text, and any other item, such as a
    call or an approval, as its JSON in a message of the model.

    Ordering: the appends of several processes are in one order. Atomicity: all items of a call are appended, or none.

    Cancellation: a change that has begun completes, and the cancellation is raised afterwards, as in the SDK's own
    sessions. A cancelled read changes nothing.

    Source: the protocol `agents.Session` (0.24), with the argument `wrapper` for the run's usage.
    """

    session_settings: SessionSettings | None

    def __init__(
        self,
        session_id: str,
        bus: Bus,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,  # Any: as in the SDK's own sessions
        agent: str | None = None,
        bounds: SessionBounds = DEFAULT_SESSION_BOUNDS,
    ) -> None:
        """
        Args:
            session_id: id of the conversation, any text. It is the id of the session of lanebus too if it matches
                `[A-Za-z0-9_-]{1,64}`, see `bus_session`.
            bus: the open bus. Use the session in the event loop of the bus.
            session_settings: the default limit of `get_items`.
            agent: the agent that a new session belongs to; None means the bus's default agent. No worker is woken.
            bounds: sizes of what is stored.

        Raises:
            InvalidArgument: `session_id` is not a text.
            InvalidName: `agent` does not match `[A-Za-z0-9_.-]{1,64}`.
        """
        require_text("session_id", session_id)
        self.session_id = session_id
        self.session_settings = coerce_session_settings(session_settings or {})
        self._states = SessionStates(
            bus.session,
            ItemHistory,
            fold,
            kinds=KINDS,
            fold_imported=fold_imported,
            agent=agent,
            bounds=bounds.store,
        )
        self._bounds = bounds
        self._usage = UsageReader()
        self.bus_session = self._states.session(session_id_of(session_id, prefix="openai"))
        """the session of lanebus: read, follow, fork or archive it"""

    async def get_items(
        self, limit: int | None = None, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> list[TResponseInputItem]:
        """Return the newest items, oldest first.

        Args:
            limit: maximum number of items; 0 or less returns none. None means the limit of `session_settings`, and
                without one all items.
            wrapper: the context of the run; not used.

        Raises:
            MediaMissing: the media store no longer has a large item.
            BusError: the errors of `Session.read`.
        """
        del wrapper
        wanted = resolve_session_limit(limit, self.session_settings)
        if wanted is not None and wanted <= 0:
            return []
        async with self._states.newest(self.bus_session.id) as history:
            items = [*history.items] if wanted is None else history.items[-wanted:]
        return [await self._load(item) for item in items]

    async def add_items(
        self, items: list[TResponseInputItem], *, wrapper: RunContextWrapper[Any] | None = None
    ) -> None:
        """Append items in one step.

        Args:
            items: the items, as JSON objects. Nothing is appended if there are none.
            wrapper: the context of the run. The usage of its newest model calls is stored with the answers.

        Raises:
            InvalidArgument: an item is not JSON. Nothing was appended.
            BusError: the errors of `Session.publish` and of `Session.read`.
        """
        if items:
            await _completed(self._add(items, wrapper))

    async def pop_item(self, *, wrapper: RunContextWrapper[Any] | None = None) -> TResponseInputItem | None:
        """Remove the newest item and return it. Return None if there is none.

        Args:
            wrapper: the context of the run; not used.

        Raises:
            MediaMissing: the media store no longer has the item, which was removed.
            BusError: the errors of `Session.publish` and of `Session.read`.
        """
        del wrapper
        return await _completed(self._pop())

    async def clear_session(self, *, wrapper: RunContextWrapper[Any] | None = None) -> None:
        """Remove all items. The log keeps them for people and for a later fork; `Session.erase` deletes them.

        Args:
            wrapper: the context of the run; not used.

        Raises:
            BusError: the errors of `Session.publish` and of `Session.read`.
        """
        del wrapper
        await _completed(self._append(lambda history: [*cleared()] if history.items else []))

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[TResponseInputItem], bool] | None = None
    ) -> _Snapshot | None:
        """Return the last `limit` items for the SDK's compaction. See `SQLiteSession` of the SDK, which has it too."""
        if type(self) is not LanebusSession:  # a subclass may change what it reads and writes
            return None
        async with self._states.newest(self.bus_session.id) as history:
            known = history.items[-limit:] if limit > 0 else []
            is_complete = len(known) == len(history.items)

        async def replace_suffix(start: int, output: list[TResponseInputItem]) -> bool:
            expected = known[start:]
            return bool(expected) and await _completed(self._replace(expected, output, prune_prefix))

        return _Snapshot([await self._load(item) for item in known], is_complete, replace_suffix)

    async def _atomic_replace_items(self, items: list[TResponseInputItem]) -> bool:
        """Replace all items in one step, for the SDK's compaction. Return False for a subclass. See `RedisSession`."""
        if type(self) is not LanebusSession:
            return False
        new = await self._written(items, None)
        await _completed(self._append(lambda history: [*replaced(history, 0, 0), *new]))
        return True

    async def _add(self, items: Sequence[TResponseInputItem], wrapper: RunContextWrapper[Any] | None) -> None:
        new = await self._written(items, wrapper)
        await self._append(lambda _: new)

    async def _pop(self) -> TResponseInputItem | None:
        last: Item | None = None

        def decide(history: ItemHistory) -> Sequence[Publishable]:
            nonlocal last
            last = history.items[-1] if history.items else None
            return [*popped(history, self._bounds)] if history.items else ()

        await self._append(decide)
        return None if last is None else await self._load(last)

    async def _replace(
        self,
        expected: Sequence[Item],
        output: Sequence[TResponseInputItem],
        prune_prefix: Callable[[TResponseInputItem], bool] | None,
    ) -> bool:
        new = await self._written(output, None)
        async with self._states.newest(self.bus_session.id) as history:
            older = history.items[: -len(expected)]
        dropped = 0
        while prune_prefix and dropped < len(older) and prune_prefix(await self._load(older[dropped])):
            dropped += 1
        is_replaced = False

        def decide(history: ItemHistory) -> Sequence[Publishable]:
            nonlocal is_replaced
            is_replaced = history.items[-len(expected) :] == [*expected]
            keep = len(history.items) - len(expected)
            return [*replaced(history, keep, min(dropped, keep)), *new] if is_replaced else ()

        await self._append(decide)
        return is_replaced

    async def _append(self, decide: Callable[[ItemHistory], Sequence[Publishable]]) -> None:
        await self._states.append(self.bus_session.id, decide)

    async def _written(
        self, items: Sequence[TResponseInputItem], wrapper: RunContextWrapper[Any] | None
    ) -> list[Publishable]:
        """Return the messages that add items. Large items are then in the media store."""
        if not items:
            return []
        texts = [_dumped(item) for item in items]
        budget = self._bounds.append_bytes
        limit = min(self._bounds.shown_bytes, max(budget // len(texts), 1_000))
        shown = self._usage.with_usage(messages_of(texts, limit_bytes=limit), wrapper)
        is_large = sum(map(len, texts)) > budget
        inline = 1_000 if is_large else self._bounds.store.inline_bytes
        values = [text if len(text) <= inline else await self._stored(text) for text in texts]
        return [*added(values, shown, self._bounds)]

    async def _stored(self, text: str) -> JsonValue:
        return await store_value(self.bus_session.media, text.encode(), bounds=self._bounds.store)

    async def _load(self, item: Item) -> TResponseInputItem:
        text, loaded = item.text, None
        try:
            stored = await load_value(self.bus_session.media, item.value) if text is None else text
            loaded = plain_item(parse_json(stored)) if item.is_imported else json.loads(stored)
        except MessageError as error:
            if not item.is_imported:
                raise
            loaded = plain_item({"notShown": f"not readable: {error}"[:500]})
        return cast("TResponseInputItem", loaded)


def _dumped(item: TResponseInputItem) -> str:
    try:
        return json.dumps(item)
    except (TypeError, ValueError, RecursionError):
        raise InvalidArgument("items", item, "pass items that are JSON: dicts, lists, texts, numbers") from None


async def _completed(change: Awaitable[T]) -> T:
    """Wait until a change has completed, also if the caller is cancelled meanwhile. Then raise the cancellation."""
    task = asyncio.ensure_future(change)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # else the event loop would log that it was never read
        raise cancelled
    return task.result()
