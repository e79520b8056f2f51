"""Read the graph framework's live stream: chunks as messages and previews, and deltas as lanebus deltas."""

import json
from collections.abc import Iterator

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import (
    Block,
    Delta,
    ExtensionMessage,
    Publishable,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    require_json,
)
from lanebus.handlers.formats.codec import Codec
from lanebus.handlers.formats.graph.reader import BlockReader
from lanebus.handlers.formats.graph.shapes import GraphDialect, MessageShape, checked

# The framework trims its own Redis stream to a length; lanebus never trims a log that way. So only chunks that are
# messages here may be published. Source: the code of the second graph format, `StreamChunk` and `EventModel`.

_EVENT_FIELDS = ("event", "event_type", "thread_id", "run_id", "node_name", "sequence_id", "is_error", "timestamp")
"""Fields of a chunk that become an event for UIs.

The chunk's state, content and data are left out. They repeat the model's input and output, which readers of only the
extension lane may not see.
"""


def read_chunk(value: JsonValue, codec: Codec) -> tuple[Publishable | Delta, ...]:
    """Read one chunk of the stream: a whole message, pieces of one, or an event of kind `graph.<event>`.

    Args:
        value: the chunk.
        codec: reads the whole messages.

    Raises:
        DecodeError: the chunk does not have the graph framework's form. The error names the path to the fault.
    """
    if not isinstance(value, dict):
        raise DecodeError("", "a chunk is a JSON object")
    require_json(value)
    event = value.get("event")
    if not isinstance(event, str) or not event:
        raise DecodeError("event", "a chunk needs its event")
    if event != "message":
        fields: JsonValue = {name: value[name] for name in _EVENT_FIELDS if value.get(name) is not None}
        return (ExtensionMessage.of(f"graph.{event}", fields),)
    message = value.get("message")
    try:
        if isinstance(message, dict) and message.get("delta") is True:
            return read_deltas(message)
        return tuple(codec.read(message))
    except DecodeError as error:
        raise DecodeError(".".join(filter(None, ("message", error.path))), error.reason) from None


_THINKING, _TEXT, _CALLS = 0, 1, 2
"""Block indexes. A graph chunk does not name the block it extends: thinking comes first, then text, then calls."""

# Reads the spellings of both graph formats. It is never used to write.
_ANY_DIALECT = GraphDialect(name="", spelling={}, has_document_text=True, has_remote_calls=True, writes_iso_time=False)


def read_deltas(value: JsonValue) -> tuple[Delta, ...]:
    """Return the live deltas in one graph message with `delta: true`. Each delta has the id of the whole message.

    Only text, thinking and the arguments of tool calls become deltas. Media arrive with the whole message.

    Raises:
        DecodeError: `value` is not a delta, has no id, or does not have the graph format's form.
    """
    if not isinstance(value, dict):
        raise DecodeError("", "a message is a JSON object")
    require_json(value)
    shape = checked(MessageShape, value, "", {})
    if not shape.delta:
        raise DecodeError("delta", "a whole message is not a delta. Read it with the codec")
    id = str(shape.message_id)
    if not id:
        raise DecodeError("message_id", "a delta needs the id of the message it is a piece of")
    reader = BlockReader(_ANY_DIALECT)
    blocks: list[Block] = []
    match shape.content:
        case list():
            blocks += [reader.block(block, f"content.{index}") for index, block in enumerate(shape.content)]
        case str():
            blocks.append(TextBlock(text=shape.content))
        case None:
            pass
        case _:
            raise DecodeError("content", "must be a list of blocks, or text")
    if shape.reasoning and not any(isinstance(block, ThinkingBlock) for block in blocks):
        blocks.insert(0, ThinkingBlock(text=shape.reasoning))
    return tuple(_pieces(id, blocks))


def _pieces(id: str, blocks: list[Block]) -> Iterator[Delta]:
    calls = 0
    for block in blocks:
        match block:
            case TextBlock(text=text) if text:
                yield Delta(kind="text", message_id=id, delta=text, block=_TEXT)
            case ThinkingBlock(text=text) if text:
                yield Delta(kind="thinking", message_id=id, delta=text, block=_THINKING)
            case ToolCallBlock(name=name, arguments=arguments):
                fragment = json.dumps(arguments, ensure_ascii=False) if arguments else ""
                yield Delta(kind="toolCall", message_id=id, delta=fragment, block=_CALLS + calls, tool_name=name)
                calls += 1
            case _:
                continue
