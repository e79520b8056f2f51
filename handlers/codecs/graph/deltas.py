"""Their live deltas as ours. No durable lane holds one: it is published as a preview, or not at all."""

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
"""Their chunks do not say which block they go on with: thinking comes first, then text, then calls."""

# Every name of either year is understood; what is written is no question here.
_ANY = GraphDialect(name="", spelling={}, has_document_text=True, has_remote_calls=True, writes_iso_time=False)


def read_deltas(value: JsonValue) -> tuple[Delta, ...]:
    """A message of theirs with `delta: true` as pieces of the whole message that will have its id.

    Text, thinking and the arguments of tool calls are pieces; media come with the whole message.

    Raises:
        DecodeError: it is none, it has no id, or it has not their shape.
    """
    if not isinstance(value, dict):
        raise DecodeError("", "a message is a JSON object")
    require_json(value)
    shape = checked(MessageShape, value, "", {})
    if not shape.delta:
        raise DecodeError("delta", "a whole message is no delta: read it with the codec")
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
            raise DecodeError("content", "want a list of blocks, or text")
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
