"""Render the parts of one message in Gemini's form.

Content that the API cannot represent is left out and reported as a loss.
"""

import json
import re
from collections.abc import Iterable
from typing import NamedTuple

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import (
    AudioBlock,
    Block,
    DocumentBlock,
    ImageBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    UnknownBlock,
    VideoBlock,
)
from lanebus.bus.messages.json_parser import parse_json
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.handlers.providers.common.blocks import (
    NO_OUTPUT,
    arguments_of,
    copied,
    flat,
    is_failed,
    joined,
    name_of,
    rendered_blocks,
)
from lanebus.handlers.providers.common.request import Json
from lanebus.handlers.providers.common.target import Target
from lanebus.handlers.providers.common.thinking import as_text
from lanebus.handlers.providers.gemini.media import media_part

__all__ = (
    "PROVIDER",
    "WireCall",
    "assistant_parts",
    "is_before_gemini_3",
    "result_parts",
    "system_texts",
    "user_parts",
)

PROVIDER = "google"

_MEDIA = (ImageBlock, AudioBlock, VideoBlock, DocumentBlock)
_SERVER_SIDE = frozenset(
    {"executableCode", "codeExecutionResult", "toolCall", "toolResponse"}
    | {"executable_code", "code_execution_result", "tool_call", "tool_response"}
)
"""Keys of the parts that the provider's own tools write. The API accepts such parts back in a later request."""

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")

_BEFORE_GEMINI_3 = re.compile(r"(.*/)?(gemini-[12]\b|gemma)")
_IN_RESULTS = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"})
"""Media types that a function response may contain. Source: the API's page on function calling, Gemini 3."""


class WireCall(NamedTuple):
    """Name and id of a tool call in the request. The call's result must have the same name and id."""

    name: str
    id: str | None


def system_texts(message: LlmMessage, losses: list[str]) -> list[str]:
    """Return the texts of instructions. Other content is a loss, because the API accepts only text in instructions."""
    losses += [
        f"{name_of(block)} left out: in instructions only text is taken"
        for block in message.content
        if not isinstance(block, TextBlock)
    ]
    return [block.text for block in message.content if isinstance(block, TextBlock) and block.text.strip()]


def user_parts(message: LlmMessage, target: Target, losses: list[str]) -> list[Json]:
    """Render a user message. The message holds no tool results: the context has them as separate messages."""
    return _filled(message.content, target, losses, (TextBlock, *_MEDIA), "users cannot send it")


def assistant_parts(
    message: AssistantMessage, calls: Iterable[WireCall], target: Target, losses: list[str]
) -> tuple[list[Json], bool]:
    """Render an assistant message. The order of its blocks is kept.

    Thinking, signatures, generated media, and the parts of the provider's own tools go back only to the model that
    wrote the message. Signatures of other models are useless and are left out without a warning.

    Args:
        message: the message to render.
        calls: the message's tool calls on the wire, in order.
        target: the options of the request.
        losses: list to which each loss is appended.

    Returns:
        The parts, and whether thinking was left out.
    """
    own = target.wrote(message)
    remaining = iter(calls)
    taken = (TextBlock, *_MEDIA) if own else (TextBlock,)
    parts: list[Json] = []
    left_out = False
    for block in message.content:
        match block:
            # The API seldom signs a thought; it signs the next part. So the model's own thoughts go back unsigned, too.
            case ThinkingBlock() if own:
                thought: Json = {"text": block.text, "thought": True}
                parts += [_signed(thought, block.signature, losses)] if block.text or block.signature else []
            case ThinkingBlock() | RedactedThinkingBlock():
                thinking = as_text(block, target)
                if thinking is None:
                    left_out = True
                else:
                    parts.append({"text": thinking})
            case ToolCallBlock():
                parts.append(_function_call(block, next(remaining), own=own, losses=losses))
            case TextBlock() if own and block.text + (block.signature or ""):
                parts.append(_signed({"text": block.text}, block.signature, losses))
            case UnknownBlock(raw=raw) if own and not _SERVER_SIDE.isdisjoint(raw):
                parts.append({key: copied(value) for key, value in raw.items()})
            case _:
                signature = block.signature if own and isinstance(block, ImageBlock) else None
                rendered = _filled((block,), target, losses, taken, "assistants cannot send it")
                parts += [_signed(part, signature, losses) for part in rendered]
    return parts, left_out


def result_parts(
    message: ToolResultMessage, call: WireCall, target: Target, losses: list[str]
) -> tuple[Json, list[Json]]:
    """Render a tool's result. Return the function response, and the media to add after all responses of the batch."""
    rest = (block for block in flat(message.content) if not isinstance(block, TextBlock))
    media = _filled(rest, target, losses, _MEDIA, "results cannot hold it")
    response: Json = {"name": call.name, "response": _response(message, target)}
    if call.id is not None:
        response["id"] = call.id
    inside: list[JsonValue] = [part for part in media if _may_stand_inside(part, target)]
    if inside:
        response["parts"] = inside
    return {"functionResponse": response}, [part for part in media if not _may_stand_inside(part, target)]


def _response(message: ToolResultMessage, target: Target) -> Json:
    """Return the response object that the API requires.

    A structured result that is a JSON object stays as it is. Other JSON and text become the field `result`.
    """
    text, value = joined(message.content), message.structured
    failed = is_failed(message)
    if value is not None and (not text.strip() or _has_same_json(text, value)):
        if not failed:
            same = copied(value)
            return same if isinstance(same, dict) else {"result": same}
        text = json.dumps(value, ensure_ascii=False)
    return {"result": target.error_prefix + (text if text.strip() else NO_OUTPUT) if failed else text}


def _has_same_json(text: str, value: JsonValue) -> bool:
    try:
        return parse_json(text) == value
    except DecodeError:
        return False


def _may_stand_inside(part: Json, target: Target) -> bool:
    blob = part.get("inlineData")
    return isinstance(blob, dict) and blob.get("mimeType") in _IN_RESULTS and not is_before_gemini_3(target.model)


def _filled(
    content: Iterable[Block], target: Target, losses: list[str], taken: tuple[type[Block], ...], reason: str
) -> list[Json]:
    return rendered_blocks(
        content, lambda block: _rendered(block, target, losses), taken=taken, reason=reason, losses=losses
    )


def _rendered(block: Block, target: Target, losses: list[str]) -> Json | str | None:
    """Return the part, the reason as text if the block cannot be sent, or None if the block is empty.

    Text of only white space is empty, because the API refuses it.
    """
    match block:
        case TextBlock(text=text):
            return {"text": text} if text.strip() else None
        case ImageBlock() | AudioBlock() | VideoBlock() | DocumentBlock():
            return media_part(block, target.resolved(block.media), losses)
        case _:
            return "there is no form for it"


def is_before_gemini_3(model: str) -> bool:
    """Return whether a model is known to be older than Gemini 3. Return False for an unknown name."""
    return _BEFORE_GEMINI_3.match(model) is not None


def _function_call(block: ToolCallBlock, call: WireCall, *, own: bool, losses: list[str]) -> Json:
    named: Json = {"name": call.name, "args": arguments_of(block, losses)}
    if call.id is not None:
        named["id"] = call.id
    return _signed({"functionCall": named}, block.signature if own else None, losses)


def _signed(part: Json, signature: str | None, losses: list[str]) -> Json:
    """Return the part with the signature. A signature that is not base64 is left out and appended to `losses`.

    The API accepts both base64 alphabets, with or without padding.
    """
    if not signature:
        return part
    if not _BASE64.fullmatch(signature):
        losses.append("signature left out: it is not base64")
        return part
    return {**part, "thoughtSignature": signature}
