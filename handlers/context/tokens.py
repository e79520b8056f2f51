"""How large a context is, in tokens: what the provider counted last, and an estimate of what came after it.

An estimate needs no tokenizer and is wrong by some tens of percent; one that knows a model's tokenizer can take its
place wherever a `TokenEstimator` is asked for.
"""

import json
from collections.abc import Iterable
from typing import Protocol

from pydantic import JsonValue

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
from lanebus.bus.messages.media import MediaRef
from lanebus.bus.messages.message import AssistantMessage, LlmMessage, ToolResultMessage
from lanebus.bus.messages.usage import Usage
from lanebus.handlers.context.fold import Context
from lanebus.handlers.context.summaries import branch_message

__all__ = ("BY_BYTES", "BY_CHARACTERS", "TokenEstimator", "context_tokens", "usage_tokens")

_OVERLAYS = (Compaction, LoopCompaction, Prune)
_IMAGE_BYTES_A_TOKEN = 750
_IMAGE_LEAST, _IMAGE_MOST = 85, 16_000
_IMAGE_CHARACTERS = 4_800


class TokenEstimator(Protocol):
    """Guesses tokens. Pure: the same text gives the same number."""

    def text(self, text: str) -> int:
        """Tokens of a text."""
        ...

    def message(self, message: LlmMessage) -> int:
        """Tokens of a message with everything in it that a model reads."""
        ...


class _ByBytes:
    """A token for four bytes of UTF-8, begun ones whole. Source: seed 001."""

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
    """A token for four characters of the whole message, and at least one. Source: seed 000, pi."""

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
"""seed 001's; an image counts by its size"""
BY_CHARACTERS: TokenEstimator = _ByCharacters()
"""seed 000's; an image counts as 1,200 tokens"""


def usage_tokens(usage: Usage, *, cached: bool = True) -> int:
    """The size of the context that a model call's usage tells of, its answer too.

    Args:
        cached: with the tokens that were read from a cache or written to it, which are in the context all the same.
            Seed 000's own figure is without them.
    """
    return usage.input + usage.output + (usage.cache_read + usage.cache_write if cached else 0)


def context_tokens(context: Context, estimator: TokenEstimator = BY_BYTES) -> int:
    """The size of a context: by the usage of its last answer that has one, with an estimate of what stands behind it.

    All of it is estimated where there is no such answer, or where it came before the last compaction or prune: what it
    counted is no longer what is read. Source: pi, seed 001.
    """
    overlays = [stood.position for stood in context.path if isinstance(stood.message, _OVERLAYS)]
    changed = max(overlays, default=0)
    trailing = 0
    for stood in reversed(context.path):
        message = stood.message
        if stood.position <= changed:
            break
        if isinstance(message, AssistantMessage):
            if message.is_failed:
                continue
            if message.usage and (counted := usage_tokens(message.usage)):
                return counted + trailing
        if isinstance(message, LlmMessage):
            trailing += estimator.message(message)
        elif isinstance(message, BranchSummary) and (told := branch_message(message)):
            trailing += estimator.message(told)
    return sum(map(estimator.message, (*context.system, *context.messages)))


def _texts(block: Block) -> Iterable[str]:
    """What a model would read of a block as text."""
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
    """The JSON that a model reads as the result, where there is nothing else to read."""
    return "" if result.content or result.structured is None else _compact(result.structured)


def _compact(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _media(block: Block) -> Iterable[MediaRef]:
    """What a model would look at or listen to."""
    match block:
        case ImageBlock(media=media) | AudioBlock(media=media) | VideoBlock(media=media):
            return (media,)
        case DocumentBlock(text=None, media=media):
            return (media,)
        case ToolResultBlock(content=content):
            return [media for part in content for media in _media(part)]
        case _:
            return ()
