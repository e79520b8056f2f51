"""Measure a context in tokens: the provider's last count, plus an estimate of the messages after that count.

The estimators need no tokenizer and are wrong by some tens of percent. Functions that take a `TokenEstimator` also
accept an estimator that uses the model's tokenizer.
"""

import json
from collections.abc import Iterable
from typing import Protocol

from pydantic import JsonValue

from lanebus.bus.errors import require_instance, require_methods
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import (
    AudioBlock,
    Block,
    DocumentBlock,
    ErrorBlock,
    ImageBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    VideoBlock,
)
from lanebus.bus.messages.context_entry import BranchSummary, Compaction, LoopCompaction, Prune
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.media import MediaRef
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.bus.messages.usage import Usage
from lanebus.handlers.context.fold import Context, require_context
from lanebus.handlers.context.summaries import branch_message

__all__ = ("BY_BYTES", "BY_CHARACTERS", "TokenEstimator", "context_tokens", "require_estimator", "usage_tokens")

_OVERLAYS = (Compaction, LoopCompaction, Prune)
_IMAGE_BYTES_A_TOKEN = 750
_IMAGE_LEAST, _IMAGE_MOST = 85, 16_000
_IMAGE_CHARACTERS = 4_800


class TokenEstimator(Protocol):
    """Estimates numbers of tokens. Pure: the same text always has the same number."""

    def text(self, text: str) -> int:
        """Return the number of tokens of a text."""
        ...

    def message(self, message: LlmMessage) -> int:
        """Return the number of tokens of everything in a message that a model reads."""
        ...


def require_estimator(estimator: object) -> None:
    """Raise InvalidArgument unless the value is a `TokenEstimator`."""
    require_methods("estimator", estimator, ("text", "message"), "leave it out, or pass a TokenEstimator")


class _ByBytes:
    """Estimates one token per four bytes of UTF-8, rounded up. Source: the `two-lane-agent` system."""

    def text(self, text: str) -> int:
        return -(-len(text.encode()) // 4)

    def message(self, message: LlmMessage) -> int:
        tokens = sum(map(self._block, message.content))
        if isinstance(message, ToolResultMessage):
            return tokens + self.text(_json_alone(message)) + self.text(message.tool_name or "") + 8
        return tokens + 4

    def _block(self, block: Block) -> int:
        own = 8 if isinstance(block, ToolCallBlock | ToolResultBlock) else 0
        return own + sum(map(self.text, _texts(block))) + sum(map(self._media, _media(block)))

    def _media(self, media: MediaRef) -> int:
        size = len(media.data) * 3 // 4 if media.data else media.size_bytes or 0
        return min(max(size // _IMAGE_BYTES_A_TOKEN, _IMAGE_LEAST), _IMAGE_MOST)


class _ByCharacters:
    """Estimates one token per four characters of the whole message, and at least one token. Source: pi."""

    def text(self, text: str) -> int:
        return max(1, len(text) // 4)

    def message(self, message: LlmMessage) -> int:
        characters = 0
        for block in message.content:
            characters += sum(map(len, _texts(block))) + sum(_IMAGE_CHARACTERS for _ in _media(block))
        if isinstance(message, ToolResultMessage):
            characters += len(_json_alone(message))
        return max(1, characters // 4)


BY_BYTES: TokenEstimator = _ByBytes()
"""Estimates one token per four bytes of UTF-8. The tokens of an image depend on its size in bytes."""
BY_CHARACTERS: TokenEstimator = _ByCharacters()
"""Estimates one token per four characters. An image is estimated at 1,200 tokens."""


def usage_tokens(usage: Usage, *, cached: bool = True) -> int:
    """Return the number of tokens in one model call's request and answer together.

    Args:
        usage: the usage that the provider reported for the call.
        cached: whether to count the tokens that the provider read from or wrote to its cache. True gives the size of
            the context, because cached tokens are part of the request.
    """
    require_instance("usage", usage, Usage, "pass a Usage, such as `message.usage`")
    return usage.input + usage.output + (usage.cache_read + usage.cache_write if cached else 0)


def context_tokens(context: Context, estimator: TokenEstimator = BY_BYTES) -> int:
    """Return the size of a context in tokens.

    The size is the usage of the last answer that has a usage, plus an estimate of the messages after this answer. The
    whole context is estimated if no answer has a usage, or if a later compaction or prune makes the usage outdated.
    Source: pi and the `two-lane-agent` system.

    Args:
        context: the context to measure.
        estimator: estimates the messages that the provider has not counted.
    """
    require_context(context)
    require_estimator(estimator)
    overlays = [envelope.position for envelope in context.path if isinstance(envelope.message, _OVERLAYS)]
    changed = max(overlays, default=0)
    trailing = 0
    for envelope in reversed(context.path):
        message = envelope.message
        if envelope.position <= changed:
            break
        if isinstance(message, AssistantMessage):
            if message.is_failed:
                continue
            if message.usage and (counted := usage_tokens(message.usage)):
                return counted + trailing
        if isinstance(message, LlmMessage):
            trailing += estimator.message(message)
        elif isinstance(message, BranchSummary) and (summary := branch_message(message)):
            trailing += estimator.message(summary)
    return sum(map(estimator.message, (*context.system, *context.messages)))


def _texts(block: Block) -> Iterable[str]:
    """Return the parts of a block that a model reads as text."""
    match block:
        case TextBlock(text=text) | ThinkingBlock(text=text) | ErrorBlock(message=text):
            return (text,)
        case ToolCallBlock(name=name, arguments=arguments):
            return (name, _compact(arguments))
        case ToolResultBlock(content=(), structured=structured) if structured is not None:
            return (_compact(structured),)
        case ToolResultBlock(content=content):
            return [text for part in content for text in _texts(part)]
        case DocumentBlock(text=str(text)):
            return (text,)
        case RedactedThinkingBlock(data=text):
            return (text,)
        case _:
            return ()


def _json_alone(result: ToolResultMessage) -> str:
    """Return the structured JSON as text if the model reads it as the result; "" if the result has content."""
    return "" if result.content or result.structured is None else _compact(result.structured)


def _compact(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _media(block: Block) -> Iterable[MediaRef]:
    """Return the media of a block that a model sees or hears."""
    match block:
        case ImageBlock(media=media) | AudioBlock(media=media) | VideoBlock(media=media):
            return (media,)
        case DocumentBlock(text=None, media=media):
            return (media,)
        case ToolResultBlock(content=content):
            return [media for part in content for media in _media(part)]
        case _:
            return ()
