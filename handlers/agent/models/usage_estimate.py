"""What a call has used so far, while it is streamed: what its provider has reported, and an estimate of the rest."""

import json

from lanebus.bus.messages.message import AssistantMessage
from lanebus.bus.messages.usage import Usage
from lanebus.handlers.agent.models.model import ModelRequest
from lanebus.handlers.context.tokens import BY_BYTES, context_tokens
from lanebus.handlers.providers.common.answer import ModelEvent, Piece

__all__ = ("UsageEstimate",)

_BYTES_A_TOKEN = 4


class UsageEstimate:
    """The usage of one call, counted along with its events."""

    def __init__(self, request: ModelRequest | None) -> None:
        """
        Args:
            request: what was asked; without it nothing can be guessed of what went in.
        """
        self._request = request
        self._told: Usage | None = None
        self._bytes, self._thinking_bytes = 0, 0
        self.has_begun = False
        """the provider has taken the request: it costs something from here on"""

    @property
    def spoken_tokens(self) -> int:
        """A guess at the tokens that were spoken so far, thinking and the arguments of calls too."""
        return -(-self._bytes // _BYTES_A_TOKEN)

    def hear(self, event: ModelEvent) -> None:
        """Take in the next event."""
        self.has_begun = self.has_begun or not isinstance(event, AssistantMessage)
        match event:
            case Piece(kind=kind, text=text):
                size_bytes = len(text.encode(errors="replace"))
                self._bytes += size_bytes
                self._thinking_bytes += size_bytes if kind == "thinking" else 0
            case Usage():
                self._told = event
            case _:
                pass

    def usage(self) -> Usage | None:
        """What the call took until now, by what was told of it and a guess at the rest; None if it has not begun.

        Input that was told is taken as it is. Output that was told in the middle of an answer is a count so far: of it
        and the guess at what was spoken the larger one counts. Thinking that is not shown cannot be guessed.
        """
        if not self.has_begun:
            return None
        told = self._told or Usage()
        is_told = bool(told.input or told.cache_read or told.cache_write)
        asked = told.input if is_told else _asked_tokens(self._request)
        output = max(told.output, self.spoken_tokens)
        return Usage(
            input=asked,
            output=output,
            reasoning=max(told.reasoning, -(-self._thinking_bytes // _BYTES_A_TOKEN)),
            cache_read=told.cache_read,
            cache_write=told.cache_write,
            total_tokens=asked + output + told.cache_read + told.cache_write,
            image_tokens=told.image_tokens,
            audio_tokens=told.audio_tokens,
            # A price that was told stands for the tokens that were told with it, and no others.
            cost=told.cost if is_told and output == told.output else None,
            estimated=True,
            raw=told.raw,
        )


def _asked_tokens(request: ModelRequest | None) -> int:
    if request is None:
        return 0
    context = request.context
    tokens = context_tokens(context)
    if any(isinstance(message, AssistantMessage) and message.usage for message in context.messages):
        return tokens  # counted by a provider, with the tools
    return tokens + sum(
        BY_BYTES.text(spec.name + spec.description + json.dumps(spec.schema, ensure_ascii=False))
        for spec in request.tools
    )
