"""Keep null arguments of tool calls in JSON, although other fields that are None are left out.

A serializer of the block in Python would make writing every message with a tool call a third slower. Null arguments are
rare. So they are detected first, which costs almost nothing, and then added to the finished JSON.
"""

import json
from collections.abc import Iterable

from pydantic import JsonValue

from lanebus.bus.messages.content import Block, ToolCallBlock, ToolResultBlock

__all__ = ("has_null_arguments", "with_null_arguments")


def has_null_arguments(blocks: Iterable[Block]) -> bool:
    """Return whether a tool call in the blocks, or in a tool result among them, has null arguments."""
    for block in blocks:
        if type(block) is ToolCallBlock:
            if block.arguments is None:
                return True
        elif type(block) is ToolResultBlock and has_null_arguments(block.content):
            return True
    return False


def with_null_arguments(data: bytes, blocks: Iterable[Block]) -> bytes:
    """Return a message's JSON with `"arguments":null` added to each tool call whose arguments are None.

    Args:
        data: the message's JSON, which leaves out fields that are None.
        blocks: the message's content.
    """
    message: JsonValue = json.loads(data)
    _add_nulls(message, blocks)
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()


def _add_nulls(holder: JsonValue, blocks: Iterable[Block]) -> None:
    content = holder.get("content") if isinstance(holder, dict) else None
    for written, block in zip(content if isinstance(content, list) else [], blocks, strict=True):
        if isinstance(block, ToolResultBlock):
            _add_nulls(written, block.content)
        elif isinstance(block, ToolCallBlock) and block.arguments is None and isinstance(written, dict):
            written["arguments"] = None
