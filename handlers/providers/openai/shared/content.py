"""Convert the content of messages into parts. Content that an API cannot represent is left out, which is a loss."""

import json
from collections.abc import Iterable

from lanebus.bus.messages.content import AudioBlock, Block, DocumentBlock, ImageBlock, TextBlock
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.handlers.providers.common.blocks import NO_OUTPUT, flat, is_failed, name_of
from lanebus.handlers.providers.common.target import Target
from lanebus.handlers.providers.openai.shared.media import audio_part, document_part, image_part
from lanebus.handlers.providers.openai.shared.parts import Part, Text
from lanebus.handlers.providers.openai.shared.wire import Api

__all__ = ("MOVED", "parts_of", "result_parts", "texts_of")

MOVED = "(see the next message)"
"""Text of a result that has only media, if the API accepts no media in results."""


def parts_of(content: Iterable[Block], api: Api, target: Target, losses: list[str]) -> list[Part]:
    """Return the content as parts, in order. White space is kept; empty text is left out."""
    parts: list[Part] = []
    for block in content:
        part = _part(block, api, target)
        if not isinstance(part, str):
            parts += [part] if part else []
        elif isinstance(block, AudioBlock) and block.transcript:
            parts.append(Text(block.transcript))
            losses.append(f"audio sent as its transcript: {part}")
        else:
            losses.append(f"{name_of(block)} left out: {part}")
    return parts


def texts_of(content: Iterable[Block], losses: list[str], reason: str) -> list[str]:
    """Return the texts, in order. All other blocks are left out; each is a loss with this `reason`."""
    blocks = list(content)
    losses += [f"{name_of(block)} left out: {reason}" for block in blocks if not isinstance(block, TextBlock)]
    return [block.text for block in blocks if isinstance(block, TextBlock) and block.text]


def result_parts(message: ToolResultMessage, api: Api, target: Target, losses: list[str]) -> list[Part]:
    """Return a tool's result as parts: the content, or the structured JSON as text if there is no content.

    No OpenAI API has a field for failures, so a failed result starts with `error_prefix`.
    """
    parts: list[Part] = parts_of(flat(message.content), api, target, losses)
    if not parts and message.structured is not None:
        parts.append(Text(json.dumps(message.structured, ensure_ascii=False)))
    if api == "chat" and parts and not any(isinstance(part, Text) for part in parts):
        parts.insert(0, Text(MOVED))
    return _failed(parts, target.error_prefix) if is_failed(message) else parts


def _failed(parts: list[Part], prefix: str) -> list[Part]:
    """Put the prefix before the first text. If there is no text, add the prefix as a text of its own."""
    for at, part in enumerate(parts):
        if isinstance(part, Text):
            return [*parts[:at], Text(f"{prefix}{part.text}"), *parts[at + 1 :]]
    alone = prefix if parts else f"{prefix}{NO_OUTPUT}"
    return [Text(alone), *parts] if alone else parts


def _part(block: Block, api: Api, target: Target) -> Part | str | None:
    """Return the part, the reason as text if the block cannot be sent, or None if the block is empty."""
    match block:
        case TextBlock(text=text):
            return Text(text) if text else None
        case ImageBlock():
            return image_part(block, target.resolved(block.media), api)
        case AudioBlock():
            return audio_part(target.resolved(block.media), api)
        case DocumentBlock():
            return document_part(block, target.resolved(block.media), api)
        case _:
            return "there is no form for it"
