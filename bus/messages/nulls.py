"""Null arguments in JSON. Fields that are None are left out of it, but a call's arguments may be null and say so.

A serializer of the block's own, in Python, would make every message with a call a third slower to write. The case is
rare, so it is looked for first, which costs next to nothing, and mended in what was written.
"""

import json
from collections.abc import Iterable

from pydantic import JsonValue

from lanebus.bus.messages.content import Block, ToolCallBlock, ToolResultBlock

__all__ = ("has_null_arguments", "with_null_arguments")


def has_null_arguments(blocks: Iterable[Block]) -> bool:
    """Whether a call among the blocks, or in a result among them, has null for its arguments."""
    for block in blocks:
        if type(block) is ToolCallBlock:
            if block.arguments is None:
                return True
        elif type(block) is ToolResultBlock and has_null_arguments(block.content):
            return True
    return False


def with_null_arguments(data: bytes, blocks: Iterable[Block]) -> bytes:
    """A message's JSON with the arguments of these blocks, its content, where they are null."""
    message: JsonValue = json.loads(data)
    _mend(message, blocks)
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()


def _mend(holder: JsonValue, blocks: Iterable[Block]) -> None:
    content = holder.get("content") if isinstance(holder, dict) else None
    for written, block in zip(content if isinstance(content, list) else [], blocks, strict=True):
        if isinstance(block, ToolResultBlock):
            _mend(written, block.content)
        elif isinstance(block, ToolCallBlock) and block.arguments is None and isinstance(written, dict):
            written["arguments"] = None
