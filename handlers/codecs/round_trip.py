"""Make a codec from a dialect. The codec writes JSON that it has read back unchanged, and reports every loss.

A dialect reads and writes one message in one spelling, with only the fields of lanebus. Other spellings, and keys that
lanebus has no field for, are stored as a patch in `metadata[ORIGIN]`. To find losses, the codec reads the written JSON
again and compares the result with the original.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, MessageError
from lanebus.bus.messages.content import Block, ToolCallBlock
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.handlers.codecs.codec import ORIGIN, Codec, Written, written
from lanebus.handlers.codecs.json_object import plain
from lanebus.handlers.codecs.json_patch import Path, apply_patch, differences, make_patch
from lanebus.handlers.json_fields import Object

__all__ = ("Dialect", "round_trip_codec")

Group = tuple[Publishable, ...]
"""The lanebus messages that become one message of the other system: a single message, or the results of one batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one other system represents the fields of lanebus messages."""

    name: str
    about: str
    read: Callable[[JsonValue], Group]
    """Reads one message of the other system. Ignores keys that lanebus has no field for. Raises DecodeError."""
    write: Callable[[Group], JsonValue | None]
    """Writes a group as one message of the other system. Returns None if the other system has no such message.

    Ignores lanebus fields that the other system does not have.
    """
    can_say: Callable[[Block], bool]
    """Returns whether the other system has a block for a lanebus block. Fields of that block may still be lost."""
    same: Callable[[Publishable], Publishable] = lambda message: message
    """Normalizes fields that differ only in spelling."""
    prepare: Callable[[JsonValue], JsonValue] = lambda value: value
    """Changes a message of the other system before it is read. Writing does not undo this change."""
    names_results: bool = True
    """Whether a tool result contains the tool's name. If False, only the tool call names the tool."""


def round_trip_codec(dialect: Dialect) -> Codec:
    """Return the codec of a dialect."""

    def read(value: JsonValue) -> Group:
        return _read(dialect, plain(dialect.prepare(plain(value))))

    def write(messages: Sequence[Publishable], lossy: bool) -> Written:
        values, losses = list[JsonValue](), list[str]()
        names, batches = dict[str, str](), set[str | None]()
        for first, group in _grouped(messages):
            value, lost = _written(dialect, group, names)
            values += value
            losses += [f"{first + offset}{path}" for offset, path in lost]
            if (batch := _batch(group[0])) is not None and batch in batches:
                losses.append(f"{first}.batchId")  # other messages stand between the parts of this batch
            batches.add(batch)
            names |= {call.id: call.name for message in group for call in _calls(message)}
        return written(dialect.name, values, losses, lossy=lossy)

    return Codec(name=dialect.name, about=dialect.about, read=read, write=write)


def _read(dialect: Dialect, value: JsonValue) -> Group:
    group = dialect.read(value)
    patch = make_patch(dialect.write(group), value)
    if not patch:
        return group
    return _with_origin(group[0], {"codec": dialect.name, "edits": patch}), *group[1:]


def _written(dialect: Dialect, group: Group, names: dict[str, str]) -> tuple[list[JsonValue], list[tuple[int, str]]]:
    """Return the JSON value of the group in a list, and the losses. The list is empty if the group cannot be written.

    Each loss is the message's index in the group, and the path inside that message.
    """
    ours = tuple(_without_origin(message, dialect.name) for message in group)
    cut = tuple(_cut(message, dialect.can_say) for message in ours)
    value = dialect.write(tuple(message for message, _ in cut))
    if value is None:
        return [], [(offset, f" ({_kind(message)})") for offset, message in enumerate(group)]
    value = _as_it_was(dialect, group[0], ours, value)
    try:
        again = dialect.read(value)
    except DecodeError as error:
        # For example, a number is out of the other system's range. Half of the message would mean something else.
        return [], [(offset, f" ({_kind(message)}: {error})") for offset, message in enumerate(group)]
    losses = list[tuple[int, str]]()
    for offset, (message, back) in enumerate(zip(ours, again, strict=True)):
        kept = cut[offset][1]
        losses += [(offset, f".content.{index} ({block.type})") for index, block in _left_out(message, kept)]
        one, other = _comparable(dialect, cut[offset][0], names), _comparable(dialect, back, names)
        losses += [(offset, _path(place, kept)) for place in differences(one, other)]
    return [value], losses


def _as_it_was(dialect: Dialect, first: Publishable, ours: Group, value: JsonValue) -> JsonValue:
    """Return the JSON that was originally read. If a message has changed since, return `value`.

    Args:
        dialect: the other system's dialect.
        first: the first message of the group, which stores the origin.
        ours: the group without origins.
        value: the group as the dialect writes it.
    """
    origin = _metadata(first).get(ORIGIN)
    if not isinstance(origin, dict) or origin.get("codec") != dialect.name:
        return value
    try:
        was = apply_patch(value, origin.get("edits"))
        again = dialect.read(was)
        is_same = len(again) == len(ours) and not any(
            any(differences(_native(one), _native(other))) for one, other in zip(ours, again, strict=True)
        )
        return was if is_same else value
    except MessageError:  # metadata can be forged: the patch may produce no message, or a message of another role
        return value


def _grouped(messages: Sequence[Publishable]) -> Iterable[tuple[int, Group]]:
    first = 0
    while first < len(messages):
        end = first + 1
        batch = _batch(messages[first])
        while batch is not None and end < len(messages) and _batch(messages[end]) == batch:
            end += 1
        yield first, tuple(messages[first:end])
        first = end


def _batch(message: Publishable) -> str | None:
    return message.batch_id if isinstance(message, ToolResultMessage) else None


def _calls(message: Publishable) -> list[ToolCallBlock]:
    content = message.content if isinstance(message, LlmMessage) else ()
    return [block for block in content if isinstance(block, ToolCallBlock)]


def _cut(message: Publishable, can_say: Callable[[Block], bool]) -> tuple[Publishable, tuple[int, ...]]:
    """Return the message with only the blocks for which `can_say` is true, and the original indexes of these blocks."""
    if not isinstance(message, LlmMessage):
        return message, ()
    kept = tuple(index for index, block in enumerate(message.content) if can_say(block))
    if len(kept) == len(message.content):
        return message, kept
    return message.model_copy(update={"content": tuple(message.content[index] for index in kept)}), kept


def _left_out(message: Publishable, kept: tuple[int, ...]) -> list[tuple[int, Block]]:
    content = message.content if isinstance(message, LlmMessage) else ()
    return [(index, block) for index, block in enumerate(content) if index not in kept]


def _comparable(dialect: Dialect, message: Publishable, names: dict[str, str]) -> Object:
    if (
        isinstance(message, ToolResultMessage)
        and not dialect.names_results
        and message.tool_name == names.get(message.tool_call_id)
    ):
        message = message.model_copy(update={"tool_name": None})
    return _native(dialect.same(message))


def _native(message: Publishable) -> Object:
    """Return the message's JSON without its batch id. Batch ids are not compared: a group is one batch anyway."""
    if isinstance(message, ToolResultMessage):
        message = message.model_copy(update={"batch_id": None})
    native: Object = message.model_dump(mode="json", by_alias=True, exclude_none=True)
    return native


def _path(place: Path, kept: tuple[int, ...]) -> str:
    match place:
        case ("content", int(index), *rest):
            place = ("content", kept[index], *rest)
        case _:
            pass
    return "".join(f".{key}" for key in place)


def _kind(message: Publishable) -> str:
    native = _native(message)
    return " ".join(str(native[name]) for name in ("role", "kind") if name in native)


def _metadata(message: Publishable) -> Object:
    """Return the object that stores a message's origin: the metadata, or the data of an extension message."""
    if isinstance(message, ExtensionMessage):
        return message.data if isinstance(message.data, dict) else {}
    return message.metadata or {}


def _with_origin(message: Publishable, origin: Object) -> Publishable:
    return _with_metadata(message, {**_metadata(message), ORIGIN: origin})


def _without_origin(message: Publishable, codec: str) -> Publishable:
    metadata = _metadata(message)
    origin = metadata.get(ORIGIN)
    if not isinstance(origin, dict) or origin.get("codec") != codec:
        return message
    return _with_metadata(message, {key: item for key, item in metadata.items() if key != ORIGIN})


def _with_metadata(message: Publishable, metadata: Object) -> Publishable:
    if isinstance(message, ExtensionMessage):
        return message.model_copy(update={"data": metadata})
    return message.model_copy(update={"metadata": metadata or None})
