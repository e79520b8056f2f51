"""The blocks of one message as Anthropic's API takes them. What it cannot take is left out, and told."""

import json
from collections.abc import Iterable, Sequence

from pydantic import JsonValue

from bus.messages.content import (
    Block,
    DocumentBlock,
    ErrorBlock,
    ImageBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from bus.messages.message import AssistantMessage, LlmMessage, ToolResultMessage
from handlers.providers.anthropic.media import document_block, image_block
from handlers.providers.request import Json
from handlers.providers.target import Target
from handlers.providers.wire_ids import WireNames

__all__ = ("PROVIDER", "assistant_blocks", "result_block", "system_blocks", "user_blocks")

PROVIDER = "anthropic"

NO_OUTPUT = "(no output)"
"""stands in a failed tool's empty result: the API refuses an error without content"""


def system_blocks(message: LlmMessage, target: Target, losses: list[str]) -> list[Json]:
    """Instructions: text is all that the API takes there."""
    return _filled(message.content, target, losses, (TextBlock,), "in instructions only text is taken")


def user_blocks(message: LlmMessage, target: Target, losses: list[str]) -> list[Json]:
    """What a user said. Results are no part of it: the fold has made messages of them."""
    return _filled(message.content, target, losses, (TextBlock, ImageBlock, DocumentBlock), "users cannot send it")


def assistant_blocks(
    message: AssistantMessage, ids: Sequence[str], names: WireNames, target: Target, losses: list[str]
) -> list[Json]:
    """What a model said, in its order.

    Thinking goes back verbatim to the model that wrote it. Another's is left out without a word, as `foreign_thinking`
    is the word on it; no API takes thinking that is the end of a message.

    Args:
        ids: what the tool calls are called on the wire, one each, in order.
    """
    own = target.wrote(message)
    remaining = iter(ids)
    blocks: list[Json] = []
    for block in message.content:
        match block:
            case ThinkingBlock():
                blocks += _thinking(block, target, own=own)
            case RedactedThinkingBlock(data=data):
                if own:
                    blocks.append({"type": "redacted_thinking", "data": data})
            case ToolCallBlock():
                blocks.append(_tool_use(block, next(remaining), names, losses))
            case _:
                blocks += _filled((block,), target, losses, (TextBlock,), "assistants cannot send it")
    while blocks and blocks[-1]["type"] in {"thinking", "redacted_thinking"}:
        del blocks[-1]
        losses.append("thinking left out: it ends the message")
    return blocks


def result_block(message: ToolResultMessage, wire_id: str, target: Target, losses: list[str]) -> Json:
    """A tool's result: a bare string if it is one text, an array if it is more, its JSON if there is nothing else."""
    failed = message.is_error or message.status == "failed"
    blocks = _filled(
        _flat(message.content), target, losses, (TextBlock, ImageBlock, DocumentBlock), "results cannot hold it"
    )
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


def _filled(
    content: Iterable[Block], target: Target, losses: list[str], taken: tuple[type[Block], ...], reason: str
) -> list[Json]:
    blocks: list[Json] = []
    for block in content:
        rendered = _rendered(block, target) if isinstance(block, taken) else reason
        if isinstance(rendered, dict):
            blocks.append(rendered)
        elif rendered:
            losses.append(f"{_name(block)} left out: {rendered}")
    return blocks


def _rendered(block: Block, target: Target) -> Json | str | None:
    """The block, or why it cannot go, or None if there is nothing in it: the API refuses a text of white space."""
    match block:
        case TextBlock(text=text):
            return {"type": "text", "text": text} if text.strip() else None
        case ImageBlock():
            return image_block(target.resolved(block.media))
        case DocumentBlock():
            return document_block(block, target.resolved(block.media))
        case _:
            return "there is no form for it"


def _thinking(block: ThinkingBlock, target: Target, *, own: bool) -> list[Json]:
    if own and block.signature:
        return [{"type": "thinking", "thinking": block.text, "signature": block.signature}]
    if target.foreign_thinking == "text" and block.text.strip():
        return [{"type": "text", "text": f"[Reasoning] {block.text}"}]
    return []


def _tool_use(call: ToolCallBlock, wire_id: str, names: WireNames, losses: list[str]) -> Json:
    name = names.of(call.name)
    if name != call.name:
        losses.append(f"tool name {call.name!r} sent as {name!r}")
    arguments: JsonValue = call.arguments
    if call.arguments_raw is not None and not arguments:
        arguments = call.arguments_raw
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        losses.append(f"arguments of tool call {call.id!r} are no object, sent as {{'value': …}}")
        arguments = {"value": arguments}
    return {"type": "tool_use", "id": wire_id, "name": name, "input": arguments}


def _flat(content: Iterable[Block]) -> Iterable[Block]:
    """A result inside a result gives its content: there are no results in results on the wire."""
    for block in content:
        if isinstance(block, ToolResultBlock):
            yield from _flat(block.content)
        else:
            yield block


def _name(block: Block) -> str:
    return f"error {block.message!r}" if isinstance(block, ErrorBlock) else block.type
