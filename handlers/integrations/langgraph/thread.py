"""The entries of a thread, and its state folded from them: checkpoints, values and pending writes, all still packed.

Also which messages of a graph's state the LLM lane shows, and how the lane writes them.
"""

from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Annotated, Final, NamedTuple, cast

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from pydantic import Field, JsonValue

from lanebus import (
    AssistantMessage,
    BusError,
    Cursor,
    ExtensionMessage,
    LlmMessage,
    MediaRef,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from lanebus import SystemMessage as Instruction
from lanebus.errors import DecodeError
from lanebus.integration import ExtensionData, Positions, Wire, cut_text, media_block
from lanebus.messages import Block, Publishable, StopReason, ThinkingBlock, UnknownBlock

# The entries that hold a thread: extension messages of kinds `store.langgraph.…`.

Version = str | int | float
"""The version of a channel, as LangGraph counts it."""

Texts = Annotated[tuple[str, ...], Field(strict=False)]


class Packed(Wire):
    """A value that a serializer wrote."""

    type: str
    """the serializer's name for the form of the bytes"""
    value: JsonValue
    """the bytes: base64, or their SHA-256 in the media store"""


class ValueStored(ExtensionData):
    """The value of a channel at a version. A list refers to an earlier version for its first elements."""

    KIND = "store.langgraph.value"
    namespace: str
    channel: str
    version: Version
    packed: Packed
    """the value; of a list, its elements from `keep` on"""
    after: Version | None = None
    """the version that the list shares its first elements with; None if `packed` is the whole value"""
    keep: Annotated[int, Field(ge=0)] = 0
    """number of elements that the list shares with the version `after`"""
    digests: Texts | None = None
    """one digest for each element in `packed`; None if the value is no list"""


class CheckpointStored(ExtensionData):
    """A checkpoint without its values."""

    KIND = "store.langgraph.checkpoint"
    thread: str
    namespace: str
    id: str
    parent: str | None = None
    """id of the checkpoint that this one follows"""
    checkpoint: Packed
    metadata: Packed


class Write(Wire):
    """One write of a task."""

    index: int
    """number of the write among those of its task; negative for errors, interrupts and the like"""
    channel: str
    packed: Packed


class WritesStored(ExtensionData):
    """Writes of one task that no checkpoint includes yet."""

    KIND = "store.langgraph.writes"
    namespace: str
    checkpoint: str
    """id of the checkpoint that the task ran on"""
    task: str
    path: str = ""
    writes: Annotated[tuple[Write, ...], Field(strict=False)]


class CheckpointsDeleted(ExtensionData):
    """Checkpoints and their writes were deleted."""

    KIND = "store.langgraph.deleted"
    checkpoints: Annotated[tuple[Annotated[tuple[str, str], Field(strict=False)], ...] | None, Field(strict=False)] = (
        None
    )
    """namespace and id of each; None means the whole thread"""


class ThreadNamed(ExtensionData):
    """The thread of this session, if the session's id is a hash of it. The first entry of a copied thread."""

    KIND = "store.langgraph.thread"
    thread: str


class MessagesShown(ExtensionData):
    """The entries before this one, in the LLM lane, show messages of the graph's state."""

    KIND = "store.langgraph.shown"
    messages: Texts
    """one digest for each message, in order"""
    path: str | None = None
    """digest of the messages that a leaf move before these messages went to; None if there was no leaf move"""
    pruned: Positions | None = None
    """positions that a prune before these messages left out; None if there was no prune"""
    counted: Texts = ()
    """ids of those messages that report their usage"""


ThreadEntry = ValueStored | CheckpointStored | WritesStored | CheckpointsDeleted | ThreadNamed | MessagesShown

_CLASSES: Final = {
    each.KIND: each
    for each in (ValueStored, CheckpointStored, WritesStored, CheckpointsDeleted, ThreadNamed, MessagesShown)
}

KINDS = frozenset(_CLASSES)


def read_entry(message: object) -> ThreadEntry | None:
    """Return what an extension message holds; None if it is of another kind, or unreadable."""
    if not isinstance(message, ExtensionMessage) or message.kind not in _CLASSES:
        return None
    try:
        return _CLASSES[message.kind].read(message.data)
    except DecodeError:
        return None


# Which messages of a graph's state the LLM lane shows, and how the lane gets to another list of messages.
#
# The lane is a tree: new messages follow the leaf. If the state went back to an earlier list, the leaf moves there. If
# messages were removed from the list, a prune leaves them out.


@dataclass(frozen=True, slots=True)
class Node:
    """A message that is shown, after others."""

    message: str
    """digest of the message"""
    entry: int
    """position of the message"""
    leaf: int
    """position that the leaf moves to, to show the messages up to this one"""
    path: str
    """digest of the messages up to this one"""
    parent: "Node | None"


@dataclass(slots=True)
class ShownGraph:
    """What the LLM lane shows, and showed before."""

    leaf: Node | None = None
    """the last message that is shown; None if none is"""
    nodes: dict[str, Node] = field(default_factory=dict[str, Node])
    """digest of messages → the last of them, for each list that was shown"""
    counted: set[str] = field(default_factory=set[str])
    """ids of the messages whose usage is in the log"""

    def path(self) -> list[Node]:
        """Return what is shown, in order."""
        return [*self._back()][::-1]

    def add(self, position: int, entry: MessagesShown) -> None:
        """Fold in an entry at a position. The entries of its messages come directly before it."""
        first = position - len(entry.messages)
        if entry.pruned is not None:
            kept = [node for node in self.path() if node.entry not in entry.pruned]
            self.leaf = None
            for node in kept:
                self.leaf = self._node(node.message, node.entry, first - 1)
            self._keep()
        elif entry.path is not None:
            self.leaf = self.nodes.get(entry.path)
        for index, message in enumerate(entry.messages):
            self.leaf = self._node(message, first + index, first + index)
            self._keep()
        self.counted.update(entry.counted)

    def clear(self) -> None:
        """Show nothing. Usage that was counted stays counted."""
        self.leaf = None
        self.nodes.clear()

    def _back(self) -> Iterator[Node]:
        node = self.leaf
        while node is not None:
            yield node
            node = node.parent

    def _node(self, message: str, entry: int, leaf: int) -> Node:
        path = _extended(self.leaf.path if self.leaf else "", message)
        return Node(message, entry, leaf, path, self.leaf)

    def _keep(self) -> None:
        if self.leaf is not None:
            self.nodes[self.leaf.path] = self.leaf


class ShownStep(NamedTuple):
    """How the lane gets to a list of messages."""

    start: int
    """number of first messages that need not be appended"""
    pruned: tuple[int, ...] | None = None
    """positions to prune first; None prunes nothing"""
    target: Node | None = None
    """the message to move the leaf to first. If it is None and `is_moved`, the leaf moves before the first message"""
    is_moved: bool = False


def step_to(shown: ShownGraph, messages: Sequence[str]) -> ShownStep:
    """Return how to show a list of messages. Pure.

    Args:
        shown: what is shown.
        messages: a digest of each message.
    """
    start, target, path = 0, None, ""
    for index, message in enumerate(messages):
        path = _extended(path, message)
        if (node := shown.nodes.get(path)) is not None:
            start, target = index + 1, node
    if target is shown.leaf:
        return ShownStep(start)
    current = shown.path()
    kept, gone = 0, list[int]()
    for node in current:
        if kept < len(messages) and messages[kept] == node.message:
            kept += 1
        else:
            gone.append(node.entry)
    # A message that is shown already and would be appended again has moved: then the rest is shown anew.
    if kept > start and not {node.message for node in current}.intersection(messages[kept:]):
        return ShownStep(kept, pruned=tuple(gone))
    return ShownStep(start, target=target, is_moved=True)


def _extended(path: str, message: str) -> str:
    return urlsafe_b64encode(blake2b(f"{path} {message}".encode(), digest_size=15).digest()).decode()


# The state of a thread, folded from its session: checkpoints, values and pending writes, all still packed.


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a channel at a version."""

    packed: Packed
    base: "Value | None" = None
    """the earlier value of a list that it shares its first elements with"""
    keep: int = 0
    """number of shared elements"""
    is_list: bool = False

    def parts(self) -> Iterator[tuple[Packed, int | None]]:
        """Yield the lists that a list consists of, the last first, each with the number of its elements to take.

        None means all elements.
        """
        value: Value | None = self
        end: int | None = None
        while value is not None:
            taken = None if end is None else max(end - value.keep, 0)
            if taken != 0:
                yield value.packed, taken
            end = value.keep if end is None else min(end, value.keep)
            value = value.base if end else None


class Newest(NamedTuple):
    """The newest version of a list, with a digest of each element."""

    version: Version
    digests: list[str]


class PendingWrite(NamedTuple):
    """One write with the path of its task."""

    path: str
    write: Write


@dataclass(slots=True)
class Namespace:
    """What a thread holds in one checkpoint namespace."""

    checkpoints: dict[str, CheckpointStored] = field(default_factory=dict[str, CheckpointStored])
    writes: dict[str, dict[tuple[str, int], PendingWrite]] = field(
        default_factory=dict[str, dict[tuple[str, int], PendingWrite]]
    )
    """checkpoint id → (task, index) → write"""
    values: dict[tuple[str, Version], Value] = field(default_factory=dict[tuple[str, Version], Value])
    newest: dict[str, Newest] = field(default_factory=dict[str, Newest])
    """channel → its newest list; a list is stored as what follows the elements that it shares with this one"""
    latest: str = ""
    """the greatest id of a checkpoint; empty if there is none"""

    def add(self, entry: CheckpointStored) -> None:
        """Add a checkpoint."""
        self.checkpoints[entry.id] = entry
        self.latest = max(self.latest, entry.id)

    def remove(self, checkpoint: str) -> None:
        """Remove a checkpoint and its writes, if they are there."""
        self.checkpoints.pop(checkpoint, None)
        self.writes.pop(checkpoint, None)
        if checkpoint == self.latest:
            self.latest = max(self.checkpoints, default="")


Namespaces = dict[str, Namespace]
"""Name of a checkpoint namespace → what it holds."""


@dataclass(slots=True)
class Thread:
    """What a thread holds."""

    name: str | None = None
    """the thread's id; None until it has a checkpoint"""
    namespaces: Namespaces = field(default_factory=dict[str, Namespace])
    imported: Namespaces = field(default_factory=dict[str, Namespace])
    """what an import appended. It is shown as data, and never mixed with `namespaces`: a checkpoint of a graph finds no
    imported value, write or version"""
    shown: ShownGraph = field(default_factory=ShownGraph)

    @property
    def is_empty(self) -> bool:
        """Whether the thread holds nothing."""
        return not self.namespaces and not self.imported

    def namespace(self, name: str) -> Namespace:
        """Return a namespace; an empty one if nothing is stored in it. Nothing is changed."""
        return self.namespaces.get(name) or Namespace()


def fold(thread: Thread, cursor: Cursor, message: Publishable) -> None:
    """Add one entry of the session. Unknown and unreadable entries change nothing."""
    entry = read_entry(message)
    match entry:
        case CheckpointStored() if thread.name is None:
            thread.name = entry.thread
        case CheckpointsDeleted():
            _delete(thread.imported, entry)
            if entry.checkpoints is None:
                thread.shown.clear()
        case MessagesShown():
            thread.shown.add(cursor.position, entry)
        case ThreadNamed():
            thread.name = entry.thread
        case _:
            pass
    _store(thread.namespaces, entry)


def fold_imported(thread: Thread, cursor: Cursor, message: Publishable) -> None:
    """Add one imported entry, as data. It changes neither the thread's own checkpoints, nor its name, nor what the LLM
    lane shows."""
    del cursor
    _store(thread.imported, read_entry(message))


def _store(spaces: Namespaces, entry: ThreadEntry | None) -> None:
    match entry:
        case ValueStored():
            _add_value(spaces.setdefault(entry.namespace, Namespace()), entry)
        case CheckpointStored():
            spaces.setdefault(entry.namespace, Namespace()).add(entry)
        case WritesStored():
            writes = spaces.setdefault(entry.namespace, Namespace()).writes.setdefault(entry.checkpoint, {})
            writes |= {(entry.task, write.index): PendingWrite(entry.path, write) for write in entry.writes}
        case CheckpointsDeleted():
            _delete(spaces, entry)
        case _:
            pass


def _add_value(space: Namespace, entry: ValueStored) -> None:
    is_list = entry.digests is not None
    base = None if entry.after is None else space.values.get((entry.channel, entry.after))
    newest = space.newest.get(entry.channel)
    space.values[entry.channel, entry.version] = Value(entry.packed, base, entry.keep if base else 0, is_list)
    space.newest.pop(entry.channel, None)
    if entry.digests is None:
        return
    if entry.after is None:
        space.newest[entry.channel] = Newest(entry.version, [*entry.digests])
    elif newest is not None and newest.version == entry.after:
        space.newest[entry.channel] = Newest(entry.version, [*newest.digests[: entry.keep], *entry.digests])


def _delete(spaces: Namespaces, entry: CheckpointsDeleted) -> None:
    if entry.checkpoints is None:
        spaces.clear()
        return
    for name, checkpoint in entry.checkpoints:
        space = spaces.get(name) or Namespace()
        space.remove(checkpoint)
        if not space.checkpoints and not space.writes:
            spaces.pop(name, None)


_STOP_REASONS: Final[Mapping[str, StopReason]] = {
    "length": "length",
    "max_tokens": "length",
    "MAX_TOKENS": "length",
    "tool_calls": "toolUse",
    "tool_use": "toolUse",
    "content_filter": "guardRail",
    "refusal": "guardRail",
}


def lane_message(message: BaseMessage, *, limit_bytes: int) -> LlmMessage:
    """Return a message of the LLM lane. Never fails: content that cannot be shown is left out.

    Args:
        message: the message of the graph's state.
        limit_bytes: of a message with more JSON, without its media, only the start of its text is shown.
    """
    try:
        shown = _with_content(
            message, tuple(map(_lane_block, cast("list[Mapping[str, JsonValue]]", message.content_blocks)))
        )
        media = sum(len(each.data or "") for block in shown.content if (each := getattr(block, "media", None)))
        if len(shown.to_json_bytes()) - media <= limit_bytes:
            return shown
    except Exception:  # noqa: BLE001, S110  # a checkpoint must not fail because its message cannot be shown
        pass
    text = str(message.text).encode("utf-8", "replace").decode()
    return _with_content(message, (TextBlock(text=cut_text(text, limit_bytes // 8)),))


def _with_content(message: BaseMessage, content: tuple[Block, ...]) -> LlmMessage:
    match message:
        case AIMessage():
            said = cast("Mapping[str, object]", message.response_metadata)
            reason = _first_text(said, "finish_reason", "stop_reason")
            has_calls = any(isinstance(block, ToolCallBlock) for block in content)
            stop: StopReason = _STOP_REASONS.get(reason or "") or ("toolUse" if has_calls else "stop")
            return AssistantMessage(
                content=content,
                id=message.id,
                name=message.name,
                model=_first_text(said, "model_name", "model"),
                provider=_first_text(said, "model_provider", "ls_provider"),
                usage=_usage_of(message),
                stop_reason=stop,
                raw_stop_reason=reason,
            )
        case ToolMessage():
            return ToolResultMessage(
                content=content,
                id=message.id,
                tool_call_id=message.tool_call_id,
                tool_name=message.name,
                is_error=message.status == "error",
            )
        case SystemMessage():
            return Instruction(content=content, id=message.id, name=message.name)
        case _:
            return UserMessage(content=content, id=message.id, name=message.name)


def _lane_block(block: Mapping[str, JsonValue]) -> Block:
    """Return one block of content. A block of an unknown type, or with wrong fields, is kept as it is."""
    try:
        match block:
            case {"type": "text" | "text-plain", "text": str(text)}:
                return TextBlock(text=text)
            case {"type": "reasoning"}:
                return ThinkingBlock(text=_first_text(block, "reasoning") or "")
            case {"type": "tool_call", "name": str(name), "args": arguments}:
                return ToolCallBlock(id=_first_text(block, "id") or "", name=name, arguments=arguments)
            case {"type": "invalid_tool_call"}:
                name, raw = _first_text(block, "name") or "", _first_text(block, "args")
                return ToolCallBlock(id=_first_text(block, "id") or "", name=name, arguments_raw=raw)
            case {"type": "image" | "audio" | "video" | "file"}:
                return media_block(_media_ref(block))
            case _:
                return UnknownBlock(raw=dict(block))
    except BusError:
        return UnknownBlock(raw={"type": block.get("type")})


def _media_ref(block: Mapping[str, JsonValue]) -> MediaRef:
    mime_type = _first_text(block, "mime_type") or f"{block['type']}/*"
    if data := _first_text(block, "base64"):
        return MediaRef(kind="data", data=data, mime_type=mime_type)
    if url := _first_text(block, "url"):
        return MediaRef.from_url(url, mime_type=mime_type)
    return MediaRef(kind="file_id", file_id=_first_text(block, "file_id"), mime_type=mime_type)


def _usage_of(message: AIMessage) -> Usage | None:
    """Return the usage that the model reported. LangChain counts cached tokens as part of the input."""
    said = message.usage_metadata
    if said is None:
        return None
    cached = said.get("input_token_details", {})
    read, written = cached.get("cache_read") or 0, cached.get("cache_creation") or 0
    return Usage(
        input=max(said["input_tokens"] - read - written, 0),
        output=said["output_tokens"],
        reasoning=said.get("output_token_details", {}).get("reasoning") or 0,
        cache_read=read,
        cache_write=written,
        total_tokens=said["total_tokens"],
    )


def _first_text(fields: Mapping[str, object], *names: str) -> str | None:
    """Return the first of the fields that is a text; None if none is."""
    return next((value for name in names if isinstance(value := fields.get(name), str)), None)
