"""Render the blocks of one message in Anthropic's form.

Content that the API cannot represent is left out and reported as a loss.
"""

import json
from collections.abc import Iterable, Sequence

from pydantic import JsonValue

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import (
    Block,
    DocumentBlock,
    ImageBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    UnknownBlock,
)
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.handlers.providers.anthropic.media import document_block, image_block
from lanebus.handlers.providers.common.blocks import (
    NO_OUTPUT,
    arguments_of,
    called,
    copied,
    flat,
    is_failed,
    rendered_blocks,
)
from lanebus.handlers.providers.common.request import Json
from lanebus.handlers.providers.common.target import Target
from lanebus.handlers.providers.common.thinking import as_text
from lanebus.handlers.providers.common.wire_ids import WireNames

__all__ = ("PROVIDER", "assistant_blocks", "result_block", "system_blocks", "user_blocks")

PROVIDER = "anthropic"

_SERVER_SIDE = frozenset(
    {
        "server_tool_use",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "container_upload",
        "compaction",
    }
)
"""Types of the blocks that the provider's own tools write. The API accepts such blocks back in a later request.

After a pause, the API continues from such a block.
"""


def system_blocks(message: LlmMessage, target: Target, losses: list[str]) -> list[Json]:
    """Render instructions. Content other than text is a loss, because the API accepts only text in instructions."""
    return _filled(message.content, target, losses, (TextBlock,), "in instructions only text is taken")


def user_blocks(message: LlmMessage, target: Target, losses: list[str]) -> list[Json]:
    """Render a user message. The message holds no tool results: the context has them as separate messages."""
    return _filled(message.content, target, losses, (TextBlock, ImageBlock, DocumentBlock), "users cannot send it")


def assistant_blocks(
    message: AssistantMessage, ids: Sequence[str], names: WireNames, target: Target, losses: list[str]
) -> tuple[list[Json], bool]:
    """Render an assistant message. The order of its blocks is kept.

    Thinking, and the blocks of the provider's own tools, go back unchanged to the model that wrote them. The API
    accepts no message that ends with thinking, so such thinking is left out.

    Args:
        message: the message to render.
        ids: ids of the message's tool calls on the wire, in order.
        names: names of the tools on the wire.
        target: the options of the request.
        losses: list to which each loss is appended.

    Returns:
        The blocks, and whether thinking was left out.
    """
    own = target.wrote(message)
    remaining = iter(ids)
    blocks: list[Json] = []
    left_out = False
    for block in message.content:
        match block:
            case RedactedThinkingBlock(data=data) if own:
                blocks.append({"type": "redacted_thinking", "data": data})
            case ThinkingBlock(text=text, signature=str(signature)) if own and signature:
                blocks.append({"type": "thinking", "thinking": text, "signature": signature})
            case ThinkingBlock() | RedactedThinkingBlock():
                thinking = as_text(block, target)
                if thinking is None:
                    left_out = True
                else:
                    blocks.append({"type": "text", "text": thinking})
            case ToolCallBlock():
                blocks.append(_tool_use(block, next(remaining), names, losses))
            case UnknownBlock(raw=raw) if own and raw.get("type") in _SERVER_SIDE:
                blocks.append({key: copied(value) for key, value in raw.items()})
            case _:
                blocks += _filled((block,), target, losses, (TextBlock,), "assistants cannot send it")
    while blocks and blocks[-1]["type"] in {"thinking", "redacted_thinking"}:
        del blocks[-1]
        losses.append("thinking left out: it ends the message")
    return blocks, left_out


def result_block(message: ToolResultMessage, wire_id: str, target: Target, losses: list[str]) -> Json:
    """Render a tool's result. One text becomes a bare string, other content an array of blocks.

    A result without content becomes its structured JSON as text. A failed result is sent with `is_error` and only its
    text, because the API refuses other content in it.
    """
    failed = is_failed(message)
    taken = (TextBlock, DocumentBlock) if failed else (TextBlock, ImageBlock, DocumentBlock)
    reason = "the result of a failed call holds text alone" if failed else "results cannot hold it"
    blocks = _filled(flat(message.content), target, losses, taken, reason)
    if failed:
        blocks = _texts_alone(blocks, reason, losses)
    result: Json = {"type": "tool_result", "tool_use_id": wire_id}
    content: JsonValue = [*blocks]
    if not blocks:
        text = None if message.structured is None else json.dumps(message.structured, ensure_ascii=False)
        content = text or (NO_OUTPUT if failed else None)
    elif len(blocks) == 1 and blocks[0]["type"] == "text":
        content = blocks[0]["text"]
    if content is not None:
        result["content"] = content
    if failed:
        result["is_error"] = True
    return result


def _texts_alone(blocks: Iterable[Json], reason: str, losses: list[str]) -> list[Json]:
    """Return only the text blocks. A document that is plain text becomes a text block; other blocks are losses."""
    texts: list[Json] = []
    for block in blocks:
        match block:
            case {"type": "document", "source": {"type": "text", "data": text}}:
                texts.append({"type": "text", "text": text})
            case {"type": "text"}:
                texts.append(block)
            case _:
                losses.append(f"{block['type']} left out: {reason}")
    return texts


def _filled(
    content: Iterable[Block], target: Target, losses: list[str], taken: tuple[type[Block], ...], reason: str
) -> list[Json]:
    return rendered_blocks(content, lambda block: _rendered(block, target), taken=taken, reason=reason, losses=losses)


def _rendered(block: Block, target: Target) -> Json | str | None:
    """Return the block's JSON, the reason as text if the block cannot be sent, or None if the block is empty.

    Text of only white space is empty, because the API refuses it.
    """
    match block:
        case TextBlock(text=text):
            return {"type": "text", "text": text} if text.strip() else None
        case ImageBlock():
            return image_block(target.resolved(block.media))
        case DocumentBlock():
            return document_block(block, target.resolved(block.media))
        case _:
            return "there is no form for it"


def _tool_use(call: ToolCallBlock, wire_id: str, names: WireNames, losses: list[str]) -> Json:
    name = called(call, names, losses)
    return {"type": "tool_use", "id": wire_id, "name": name, "input": arguments_of(call, losses)}
