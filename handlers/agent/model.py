"""What an agent asks of a model: one method that streams."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from pydantic import JsonValue

from bus.messages.message import AssistantMessage
from bus.messages.usage import Usage
from handlers.context.fold import Context

__all__ = ("DEFAULT_MAX_TOKENS", "Model", "ModelEvent", "ModelRequest", "Piece", "ToolSpec")

DEFAULT_MAX_TOKENS = 4096


class ToolSpec(NamedTuple):
    """A tool as a model sees it."""

    name: str
    description: str
    schema: dict[str, JsonValue]
    """JSON schema of its arguments, an object"""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call of a model. The model's adapter puts it into its provider's form."""

    context: Context
    tools: Sequence[ToolSpec] = ()
    max_tokens: int = DEFAULT_MAX_TOKENS
    """most tokens of the answer"""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of the answer, as the model speaks it."""

    kind: Literal["text", "thinking", "toolCall"]
    text: str
    """to append; for a tool call a fragment of its JSON arguments"""
    block: int = 0
    """which block of the answer it belongs to, from 0"""
    tool_name: str | None = None
    """of a tool call, on its first piece"""


ModelEvent = Piece | Usage | AssistantMessage
"""A piece; the usage so far, each replacing the one before; at the very end the whole message."""


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
