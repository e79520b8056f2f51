"""Measure a context in tokens: the provider's last count, plus an estimate of the messages after that count.

The estimators need no tokenizer and are wrong by some tens of percent. Functions that take a `TokenEstimator` also
accept an estimator that uses the model's tokenizer.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import JsonValue

from lanebus.bus.errors import require_count, require_flag, require_share
from lanebus.bus.messages import (
    AssistantMessage,
    AudioBlock,
    Block,
    BranchSummary,
    Compaction,
    DocumentBlock,
    ErrorBlock,
    ImageBlock,
    LlmMessage,
    LoopCompaction,
    MediaRef,
    Prune,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolResultMessage,
    Usage,
    VideoBlock,
)
from lanebus.handlers.context.fold import Context, branch_message

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


# Decide when to compact a context, and which part of the context to keep. Pure.


@dataclass(frozen=True, slots=True, kw_only=True)
class ReserveTrigger:
    """Compact when the context would use tokens that are reserved for the answer. Source: pi and the `coding-agent`
    system.

    Args:
        window: the model's context window, in tokens.
        reserve: tokens kept free for the answer.
        is_enabled: whether to compact at all.
    """

    window: int
    reserve: int = 8_192
    is_enabled: bool = True

    def __post_init__(self) -> None:
        """Check the fields. Raises InvalidArgument if a field has a wrong type or a number is out of range."""
        require_count("window", self.window, least=1)
        require_count("reserve", self.reserve)
        require_flag("is_enabled", self.is_enabled)

    def fires(self, tokens: int) -> bool:
        """Return whether a context of this many tokens is too large."""
        return self.is_enabled and tokens > self.window - self.reserve


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadroomTrigger:
    """Compact when the context, with its instructions, fills more than `full` minus `least_free` of the window. Source:
    the `two-lane-agent` system.

    Args:
        window: the model's context window, in tokens.
        system: tokens of the instructions. The argument of `fires` does not include these tokens.
        full: share of the window that counts as full, from 0 to 1.
        least_free: share of the window to keep free below `full`. By default, `fires` is True above 85% of the window.
    """

    window: int = 100_000
    system: int = 4_000
    full: float = 0.90
    least_free: float = 0.05

    def __post_init__(self) -> None:
        """Check the fields. Raises InvalidArgument if a field has a wrong type or a number is out of range."""
        require_count("window", self.window, least=1)
        require_count("system", self.system)
        require_share("full", self.full)
        require_share("least_free", self.least_free)

    def fires(self, tokens: int) -> bool:
        """Return whether a context of this many tokens, without its instructions, is too large."""
        return self.full - self.system / self.window - tokens / self.window < self.least_free


Spoken = LlmMessage | BranchSummary


def first_to_keep(
    context: Context,
    tokens: int = 16_384,
    estimator: TokenEstimator = BY_BYTES,
    *,
    is_most: bool = False,
    up_to: int | None = None,
) -> int | None:
    """Return the position of the first entry to keep, so that about the last `tokens` of the context stay.

    A cut never separates a call from its result. If a cut is not allowed at the place computed from `tokens`, the next
    allowed place is used. If no allowed place follows, the last allowed place is used.

    Args:
        context: the context to cut.
        tokens: size in tokens of the part that stays.
        estimator: measures the messages.
        is_most: True computes a place that keeps at most `tokens`; False computes a place that keeps at least `tokens`.
        up_to: the entry at this position and everything after it stay. None sets no such limit.

    Returns:
        A position; None if a cut is allowed nowhere.
    """
    require_count("tokens", tokens)
    require_flag("is_most", is_most)
    require_count("up_to", up_to, is_optional=True)
    candidates = [(entry.position, message) for entry in context.path if isinstance(message := entry.message, Spoken)]
    kept, cut = 0, len(candidates)
    while cut and kept < tokens:
        cut -= 1
        kept += _size(candidates[cut][1], estimator)
    if is_most and kept > tokens:
        cut += 1
    places = _places([message for _, message in candidates])
    if up_to is not None:
        places = [at for at in places if candidates[at][0] <= up_to]
    if not places:
        return None
    return candidates[next((at for at in places if at >= cut), places[-1])][0]


def _places(candidates: Sequence[Spoken]) -> list[int]:
    """Return the indexes of the messages before which a cut is allowed."""
    called: dict[str, int] = {}
    parting: set[int] = set()
    for at, message in enumerate(candidates):
        if isinstance(message, AssistantMessage) and not message.is_failed:
            called.update((call.id, at) for call in message.tool_calls())
        for result in _results(message):
            parting.update(range(called.pop(result, at) + 1, at + 1))
    return [
        at for at, message in enumerate(candidates) if at not in parting and not isinstance(message, ToolResultMessage)
    ]


def _results(message: Spoken) -> list[str]:
    """Return the ids of the calls that a message answers."""
    if isinstance(message, ToolResultMessage):
        return [message.tool_call_id]
    if isinstance(message, BranchSummary):
        return []
    return [block.tool_call_id for block in message.content if isinstance(block, ToolResultBlock)]


def _size(message: LlmMessage | BranchSummary, estimator: TokenEstimator) -> int:
    shown = branch_message(message) if isinstance(message, BranchSummary) else message
    return estimator.message(shown) if shown else 0
