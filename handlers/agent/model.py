"""What an agent asks of a model: one method that streams."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bus.messages.media import MediaRef
from handlers.context.fold import Context
from handlers.providers.answer import ModelEvent
from handlers.providers.tools import ToolSpec

__all__ = ("DEFAULT_MAX_TOKENS", "Model", "ModelRequest")

DEFAULT_MAX_TOKENS = 4096


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call of a model. The model's adapter puts it into its provider's form."""

    context: Context
    tools: Sequence[ToolSpec] = ()
    max_tokens: int = DEFAULT_MAX_TOKENS
    """most tokens of the answer"""
    media: Mapping[str, MediaRef] = field(default_factory=dict[str, MediaRef])
    """what the context's references into the media store stand for, as `resolve_media` gives it"""
    key: str | None = None
    """Names this call, so that a provider that heard it before may know it again. The same call made once more, as it
    is not known whether it was heard, has the same key; a call after one that failed has another, as a provider may
    keep its answer for the key, a failure too."""


class Model(Protocol):
    """A model of a provider."""

    @property
    def provider(self) -> str:
        """Who runs it, such as "anthropic"."""
        ...

    @property
    def name(self) -> str:
        """What the provider calls it."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Speak the answer: pieces and usage as they come, then the whole message, which ends it.

        The whole message has its blocks, stop reason with the provider's own word, and usage with the provider's own
        object. A call that failed ends in a message too, with what was said so far, stop reason "error" and the
        reason; raising is for what nobody foresaw. A generator that is closed or cancelled lets go of the provider at
        once. The message's ids and turn are the caller's to set.
        """
        ...
