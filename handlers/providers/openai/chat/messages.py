"""The messages of a Chat Completions request."""

from collections.abc import Sequence
from typing import assert_never

from pydantic import JsonValue

from lanebus.bus.messages.content import AudioBlock, RedactedThinkingBlock, TextBlock, ThinkingBlock, ToolCallBlock
from lanebus.bus.messages.message import AssistantMessage
from lanebus.handlers.providers.common.blocks import called, name_of
from lanebus.handlers.providers.common.request import Json
from lanebus.handlers.providers.common.target import Target
from lanebus.handlers.providers.common.thinking import as_text
from lanebus.handlers.providers.common.wire_ids import WireNames
from lanebus.handlers.providers.openai.shared.calls import arguments_text
from lanebus.handlers.providers.openai.shared.parts import Audio, File, Image, Part, Text

__all__ = ("assistant_message", "content_of", "media_message", "result_message")


def content_of(parts: Sequence[Part], *, is_plain: bool = True) -> JsonValue:
    """Return a bare string for one text or none, and an array for more.

    Args:
        parts: the parts of the content.
        is_plain: False if a text stands in for something else, such as a document: then always an array.
    """
    if not parts:
        return ""
    first = parts[0]
    if is_plain and len(parts) == 1 and isinstance(first, Text):
        return first.text
    return [_part(part) for part in parts]


def assistant_message(
    message: AssistantMessage, ids: Sequence[str], names: WireNames, target: Target, losses: list[str]
) -> tuple[Json | None, bool]:
    """Render an assistant message; None if it is empty.

    Text and calls have a field each, so their relative order is lost. There is no field for thinking: also the model's
    own is sent as text or left out.

    Args:
        message: the message to render.
        ids: ids of its tool calls on the wire, in order.
        names: names of the tools on the wire.
        target: the options of the request.
        losses: what is left out is appended here.

    Returns:
        The message, and whether thinking was left out.
    """
    texts: list[Part] = []
    calls: list[JsonValue] = []
    left_out = False
    for block in message.content:
        match block:
            case TextBlock(text=text):
                texts += [Text(text)] if text else []
            case ThinkingBlock() | RedactedThinkingBlock():
                thinking = as_text(block, target)
                texts += [Text(thinking)] if thinking else []
                left_out = left_out or thinking is None
            case AudioBlock(transcript=str(transcript_text)) if transcript_text:
                texts.append(Text(transcript_text))
                losses.append("audio sent as its transcript: assistants cannot send it")
            case ToolCallBlock():
                calls.append(_call(block, ids[len(calls)], names, losses))
            case _:
                losses.append(f"{name_of(block)} left out: assistants cannot send it")
    wire: Json = {"role": "assistant"}
    if texts:
        wire["content"] = content_of(texts)
    if calls:
        wire["tool_calls"] = calls
    return wire if len(wire) > 1 else None, left_out


def result_message(wire_id: str, parts: Sequence[Part]) -> tuple[Json, list[Part]]:
    """Render a tool's result, which can only be text. Return also the media that the next user message has to hold."""
    texts = [part for part in parts if isinstance(part, Text)]
    media: list[Part] = [part for part in parts if not isinstance(part, Text)]
    return {"role": "tool", "tool_call_id": wire_id, "content": content_of(texts)}, media


def media_message(moved: Sequence[tuple[str, Sequence[Part]]]) -> Json:
    """Render the media that results cannot hold as a user message, each after the id of its call. Source: pi."""
    parts = [part for wire_id, media in moved for part in (Text(f"Media in the result of call {wire_id}:"), *media)]
    return {"role": "user", "content": content_of(parts)}


def _call(call: ToolCallBlock, wire_id: str, names: WireNames, losses: list[str]) -> Json:
    function: Json = {"name": called(call, names, losses), "arguments": arguments_text(call, losses)}
    return {"id": wire_id, "type": "function", "function": function}


def _part(part: Part) -> Json:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Image(url=url, detail=detail):
            return {"type": "image_url", "image_url": {"url": url, **({"detail": detail} if detail else {})}}
        case Audio(data=data, format=audio_format):
            return {"type": "input_audio", "input_audio": {"data": data, "format": audio_format}}
        case File(data=None, file_id=file_id):
            return {"type": "file", "file": {"file_id": file_id}}
        case File(data=data, filename=filename):
            return {"type": "file", "file": {"file_data": data, "filename": filename}}
        case _:
            assert_never(part)
