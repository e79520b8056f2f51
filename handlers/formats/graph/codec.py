"""The codecs of the two graph formats, `GRAPH_V1` and `GRAPH_V2`."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import AssistantMessage, LlmMessage, Publishable, ToolResultMessage
from lanebus.handlers.context import Object
from lanebus.handlers.formats.codec import ORIGIN, Codec, Written, written
from lanebus.handlers.formats.graph.reader import grouped, read
from lanebus.handlers.formats.graph.shapes import (
    GraphDialect,
    MessageOrigin,
    apply_guarded,
    is_spelling,
    origin_of,
    same_literal,
    without_origin,
)
from lanebus.handlers.formats.graph.writer import plain
from lanebus.handlers.formats.round_trip import Path, changes

# Each message that is written is read back at once and compared with the original. Every difference is reported as a
# loss with its path, so no list of known losses is needed.


def graph_codec(dialect: GraphDialect, about: str) -> Codec:
    """Return the codec of a dialect."""
    return Codec(name=dialect.name, about=about, read=partial(read, dialect=dialect), write=partial(_write, dialect))


def _write(dialect: GraphDialect, messages: Sequence[Publishable], lossy: bool) -> Written:
    values: list[JsonValue] = []
    losses: list[str] = []
    names: dict[str, str] = {}
    place = 0
    for group in grouped(messages):
        sayable = [message for message in group if isinstance(message, LlmMessage)]
        if sayable:
            value, lost = _written_group(sayable, place, names, dialect)
            values += value
            losses += lost
        else:
            losses += [f"{place}: {_unsaid(message)}" for message in group]
        place += len(group)
    return written(dialect.name, values, losses, lossy=lossy)


def _written_group(
    messages: list[LlmMessage], place: int, names: dict[str, str], dialect: GraphDialect
) -> tuple[list[JsonValue], list[str]]:
    """Return the graph message, and the losses with their paths. Without a graph message, the list is empty.

    Metadata can be forged, so an origin may describe another message. The origin is used only if this adds no loss.

    Args:
        messages: one message, or the results of one batch.
        place: index of the first message, for the paths.
        names: call id → tool name, for all earlier calls. The calls in `messages` are added.
        dialect: the dialect to write.
    """
    origin = origin_of(messages[0], dialect.name)
    ways: list[tuple[list[JsonValue], list[str]]] = []
    for way in (origin, replace(origin, residue=()), MessageOrigin()):
        ways.append(_written_by(way, messages, place, names, dialect))
        if not ways[-1][1]:
            break
    plainest = ways[-1]
    value, losses = next((way for way in ways if way[0] and {*way[1]} <= {*plainest[1]}), plainest)
    for message in messages:
        if isinstance(message, AssistantMessage):
            names.update((call.id, call.name) for call in message.tool_calls())
    forgotten = [index for index, message in enumerate(messages) if _is_forgotten(message, index, dialect)]
    return value, [*(f"{place + index}.metadata.{ORIGIN}" for index in forgotten), *losses]


def _written_by(
    origin: MessageOrigin, messages: list[LlmMessage], place: int, names: dict[str, str], dialect: GraphDialect
) -> tuple[list[JsonValue], list[str]]:
    """Write `messages` as one graph message with this origin. Return the graph message and the losses."""
    form = plain(messages, origin, dialect)
    value = apply_guarded(form.value, origin.residue)
    try:
        back = read(value, dialect)
    except DecodeError as error:
        # For example, a number is out of the graph format's range. Half of the message would mean something else.
        reason = f"they have no such {type(messages[0]).__name__}: {error}"
        return [], [f"{place + index}: {reason}" for index in range(len(messages))]
    if len(back) != len(messages):
        return [], [f"{place + index}: they read {len(back)} messages" for index in range(len(messages))]
    losses = [f"{place + index}.content.{block}: {why}" for (index, block), why in form.dropped.items()]
    losses += [f"{place}: in a result, {what}" for what in form.inner]
    for index, (message, again) in enumerate(zip(messages, back, strict=True)):
        kept = [number for number in range(len(message.content)) if (index, number) not in form.dropped]
        rest = message.model_copy(update={"content": tuple(message.content[number] for number in kept)})
        original, found = (_comparable(one, names, len(messages)) for one in (rest, again))
        # Only the path: the values may be private or long.
        different = changes(found, original, same=same_literal)
        losses += [f"{place + index}.{_loss_path(change.path, kept)}" for change in different]
    return [value], losses


def _is_forgotten(message: LlmMessage, index: int, dialect: GraphDialect) -> bool:
    """Return whether the message's origin is lost: another codec stored it, or `index` is not 0.

    Only the origin of the first message of a batch is written. An origin that describes only spelling is no loss.
    """
    origin = (message.metadata or {}).get(ORIGIN)
    if not isinstance(origin, dict) or not isinstance(origin.get("codec"), str):
        return False
    return (origin["codec"] != dialect.name or index > 0) and not is_spelling(origin)


def _comparable(message: LlmMessage, names: dict[str, str], count: int) -> Object:
    """Return the message's JSON without its origin, and without fields that follow from other messages.

    Args:
        message: the message.
        names: call id → tool name, for all earlier calls.
        count: number of messages in the batch.
    """
    value: Object = message.model_dump(mode="json", by_alias=True, exclude_none=True)
    value["content"] = _without_empty(value["content"])
    if metadata := without_origin(message.metadata):
        value["metadata"] = metadata
    else:
        value.pop("metadata", None)
    if isinstance(message, ToolResultMessage):
        if count > 1:  # the name of the batch does not matter: the results are one batch on both sides
            value.pop("batchId", None)
        if message.tool_name == names.get(message.tool_call_id):  # the tool call names the tool already
            value.pop("toolName", None)
    return value


def _without_empty(content: JsonValue) -> JsonValue:
    """Remove empty lists of annotations: an empty list means the same as no list."""
    if isinstance(content, list):
        return [_without_empty(block) for block in content]
    if not isinstance(content, dict):
        return content
    if content.get("type") == "text" and content.get("annotations") == []:
        return {key: item for key, item in content.items() if key != "annotations"}
    if content.get("type") == "toolResult":
        return {**content, "content": _without_empty(content["content"])}
    return content


def _unsaid(message: Publishable) -> str:
    return f"they have no {type(message).__name__}"


def _loss_path(path: Path, kept: list[int]) -> str:
    """Convert a path in the compared message, which has only the kept blocks, to a path in the original message."""
    match path:
        case ("content", int(index), *inner):
            return ".".join(map(str, ["content", kept[index] if index < len(kept) else index, *inner]))
        case _:
            return ".".join(map(str, path))


GRAPH_V1 = graph_codec(
    GraphDialect(
        name="002",
        spelling={},
        has_document_text=False,
        has_remote_calls=False,
        writes_iso_time=True,
    ),
    "messages of a graph framework: call_id and output, ISO 8601 timestamps",
)
"""Reads the spellings of both graph formats. Writes each message in the spelling in which it was read. A message
without an origin is written in the first format's spelling.

Lossless by value: JSON that lanebus messages have no field for is stored in the message's metadata and written back.
"""


GRAPH_V2 = graph_codec(
    GraphDialect(
        name="003",
        spelling={
            "tool_result": frozenset({"tool_call_id", "content"}),
            "reasoning": frozenset({"thinking"}),
            "annotation": frozenset({"annotation"}),
            "error": frozenset({"error"}),
        },
        has_document_text=True,
        has_remote_calls=True,
        writes_iso_time=False,
    ),
    "messages of the same framework a year later: tool_call_id and content, timestamps in seconds",
)
"""Reads two spellings: the spelling of the framework's documentation and the spelling of its code.

Each block is written as it was spelled. A block without an origin gets the spelling of the documentation. If that
spelling has no key for a field (a status, details, several references, an error's data), the block gets the spelling of
the code.

Lossless by value: JSON that lanebus messages have no field for is stored in the message's metadata and written back.
Timestamps are seconds; a number over 1e11 is milliseconds, which the TypeScript client writes.
"""
