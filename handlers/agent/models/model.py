"""The protocol of a model: one method that streams an answer."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from pydantic import JsonValue

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.media import MediaRef
from lanebus.bus.messages.usage import Usage
from lanebus.handlers.context.fold import Context
from lanebus.handlers.providers.common.answer import ModelEvent
from lanebus.handlers.providers.common.tools import ToolSpec

__all__ = ("DEFAULT_MAX_TOKENS", "SILENCE_SECONDS", "Model", "ModelRequest", "Optioned", "Pricing", "Settling")

DEFAULT_MAX_TOKENS = 4096

SILENCE_SECONDS = 300.0
"""longest time to wait for a model's first event, or for its next event"""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call. The model's adapter converts it to the provider's form."""

    context: Context
    tools: Sequence[ToolSpec] = ()
    max_tokens: int = DEFAULT_MAX_TOKENS
    """maximum number of tokens of the answer"""
    media: Mapping[str, MediaRef] = field(default_factory=dict[str, MediaRef])
    """references to media in the context, resolved by `resolve_media`"""
    key: str | None = None
    """Idempotency key for the provider. If a call is repeated because its outcome is unknown, the key stays the same.
    After a failed call, the next call has a new key: a provider may store the response for a key, even a failure."""


class Model(Protocol):
    """A model of a provider."""

    @property
    def provider(self) -> str:
        """The provider's name, such as "anthropic"."""
        ...

    @property
    def name(self) -> str:
        """The model's name at the provider, such as "gpt-5"."""
        ...

    @property
    def context_window(self) -> int | None:
        """Maximum number of tokens of a request and its answer together; None if unknown."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Stream the answer: pieces and usage as they arrive, then the whole message as the last event.

        The whole message has the blocks, the stop reason with the provider's own value, and the usage with the
        provider's own object. The caller sets the message's ids and turn.

        A failed call also ends with a message: the text so far, stop reason "error", the error text and a
        `ModelFailure`. Raise only for unexpected errors.

        Closing or cancelling the generator releases the provider's connection at once.
        """
        ...


@runtime_checkable
class Optioned(Protocol):
    """A model that reports how it forms its requests, so that the log can record it."""

    @property
    def api(self) -> str:
        """Name of the model's API, a key of `PROVIDERS`."""
        ...

    @property
    def request_options(self) -> Mapping[str, JsonValue]:
        """The model's options that are part of its requests, as JSON and without secrets."""
        ...


@runtime_checkable
class Pricing(Protocol):
    """A model that knows the price of its tokens."""

    def price(self, usage: Usage) -> Usage:
        """Return the usage with its cost. A cost that `usage` already has is kept. If the prices are unknown, no cost
        is added."""
        ...


@runtime_checkable
class Settling(Protocol):
    """A model whose provider can report the usage of an earlier call."""

    async def settle(self, message: AssistantMessage) -> Usage | None:
        """Return the actual usage of the call that led to a message; None if the provider has not reported it.

        Errors of the provider are not raised. It is safe to call this method again.
        """
        ...
