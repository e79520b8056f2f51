"""What an agent asks of a model: one method that streams."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from pydantic import JsonValue

from lanebus.bus.messages.media import MediaRef
from lanebus.bus.messages.message import AssistantMessage
from lanebus.bus.messages.usage import Usage
from lanebus.handlers.context.fold import Context
from lanebus.handlers.providers.common.answer import ModelEvent
from lanebus.handlers.providers.common.tools import ToolSpec

__all__ = ("DEFAULT_MAX_TOKENS", "SILENCE_SECONDS", "Model", "ModelRequest", "Optioned", "Pricing", "Settling")

DEFAULT_MAX_TOKENS = 4096

SILENCE_SECONDS = 300.0
"""how long a model may say nothing, before its first piece or between two"""


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

    @property
    def context_window(self) -> int | None:
        """How many tokens fit into a request and its answer; None if that is not known."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Speak the answer: pieces and usage as they come, then the whole message, which ends it.

        The whole message has its blocks, stop reason with the provider's own word, and usage with the provider's own
        object. A call that failed ends in a message too, with what was said so far, stop reason "error", the reason and
        a `ModelFailure`; raising is for what nobody foresaw. A generator that is closed or cancelled lets go of the
        provider at once. The message's ids and turn are the caller's to set.
        """
        ...


@runtime_checkable
class Optioned(Protocol):
    """A model that tells how it forms its requests, so that the log can tell it too."""

    @property
    def api(self) -> str:
        """A name in `PROVIDERS`."""
        ...

    @property
    def request_options(self) -> Mapping[str, JsonValue]:
        """What it was made with that shows in its requests, as JSON. Nothing that is secret."""
        ...


@runtime_checkable
class Pricing(Protocol):
    """A model that knows what its tokens cost."""

    def price(self, usage: Usage) -> Usage:
        """The usage with its cost, where it has none and that is known."""
        ...


@runtime_checkable
class Settling(Protocol):
    """A model whose provider can be asked afterwards what a call took."""

    async def settle(self, message: AssistantMessage) -> Usage | None:
        """What the call that this message came of really took; None if that cannot be learnt, or not yet.

        Never raises for what the provider does; it may be asked again.
        """
        ...
