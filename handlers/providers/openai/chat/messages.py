"""Render the messages of a Chat Completions request."""

from collections.abc import Sequence
from typing import assert_never

from pydantic import JsonValue

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import AudioBlock, RedactedThinkingBlock, TextBlock, ThinkingBlock, ToolCallBlock
from lanebus.handlers.providers.common.blocks import called, name_of
from lanebus.handlers.providers.common.request import Json
from lanebus.handlers.providers.common.target import Target
from lanebus.handlers.providers.common.thinking import as_text
from lanebus.handlers.providers.common.wire_ids import WireNames
from lanebus.handlers.providers.openai.shared.calls import arguments_text
from lanebus.handlers.providers.openai.shared.parts import Audio, File, Image, Part, Text

__all__ = ("assistant_message", "content_of", "media_message", "result_message")


def content_of(parts: Sequence[Part], *, is_plain: bool = True) -> JsonValue:
    """Return the parts as the API's `content`: a bare string for at most one text, otherwise an array.

    Args:
        parts: the parts of the content.
        is_plain: False returns an array also for one text. Used if a text replaces other content, such as a document.
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
    """Render an assistant message.

    The API has one field for texts and one for calls, so the order between texts and calls is lost. It has no field for
    thinking. So all thinking, also of the same model, is sent as text or left out.

    Args:
        message: the message to render.
        ids: ids of the message's tool calls on the wire, in order.
        names: names of the tools on the wire.
        target: the options of the request.
        losses: list to which each loss is appended.

    Returns:
        The message, or None if nothing of it can be sent; and whether thinking was left out.
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
    """Render a tool's result, which can only be text. Also return the media for the user message that follows."""
    texts = [part for part in parts if isinstance(part, Text)]
    media: list[Part] = [part for part in parts if not isinstance(part, Text)]
    return {"role": "tool", "tool_call_id": wire_id, "content": content_of(texts)}, media


def media_message(moved: Sequence[tuple[str, Sequence[Part]]]) -> Json:
    """Render the media of results as a user message. The id of the call precedes its media. Source: pi."""
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
