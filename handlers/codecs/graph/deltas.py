"""Read the graph format's live deltas as lanebus deltas. A delta is published as a preview, never stored in a lane."""

import json
from collections.abc import Iterator

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.content import Block, TextBlock, ThinkingBlock, ToolCallBlock
from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.json_parser import require_json
from lanebus.handlers.codecs.graph.blocks_in import BlockReader
from lanebus.handlers.codecs.graph.dialect import GraphDialect
from lanebus.handlers.codecs.graph.shapes import MessageShape, checked

__all__ = ("read_deltas",)

_THINKING, _TEXT, _CALLS = 0, 1, 2
"""Block indexes. A graph chunk does not name the block it extends: thinking comes first, then text, then calls."""

# Reads the spellings of both graph formats. It is never used to write.
_ANY = GraphDialect(name="", spelling={}, has_document_text=True, has_remote_calls=True, writes_iso_time=False)


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
    reader = BlockReader(_ANY)
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
