"""The usage of a model call while the answer is streamed: reported by the provider if possible, else estimated."""

import json

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.usage import Usage
from lanebus.handlers.agent.models.model import ModelRequest
from lanebus.handlers.context.tokens import BY_BYTES, context_tokens
from lanebus.handlers.providers.common.answer import ModelEvent, Piece

__all__ = ("UsageEstimate",)

_BYTES_A_TOKEN = 4


class UsageEstimate:
    """The usage of one call, updated with each event."""

    def __init__(self, request: ModelRequest | None) -> None:
        """
        Args:
            request: the request, for an estimate of the input; None estimates the output alone.
        """
        self._request = request
        self._reported: Usage | None = None
        self._bytes, self._thinking_bytes = 0, 0
        self.has_begun = False
        """the provider has accepted the request, so the call costs something"""

    @property
    def output_tokens(self) -> int:
        """An estimate of the output tokens so far, including thinking and tool arguments."""
        return -(-self._bytes // _BYTES_A_TOKEN)

    def add(self, event: ModelEvent) -> None:
        """Add the next event."""
        self.has_begun = self.has_begun or not isinstance(event, AssistantMessage)
        match event:
            case Piece(kind=kind, text=text):
                size_bytes = len(text.encode(errors="replace"))
                self._bytes += size_bytes
                self._thinking_bytes += size_bytes if kind == "thinking" else 0
            case Usage():
                self._reported = event
            case _:
                pass

    def usage(self) -> Usage | None:
        """Return the usage so far; None if the call has not begun.

        Input is estimated only if the provider has not reported it. Reported output may lag behind the stream, so the
        larger of the reported and the estimated number is used. Thinking that the provider does not send cannot be
        estimated.
        """
        if not self.has_begun:
            return None
        reported = self._reported or Usage()
        has_input = bool(reported.input or reported.cache_read or reported.cache_write)
        input_tokens = reported.input if has_input else _input_tokens(self._request)
        output = max(reported.output, self.output_tokens)
        return Usage(
            input=input_tokens,
            output=output,
            reasoning=max(reported.reasoning, -(-self._thinking_bytes // _BYTES_A_TOKEN)),
            cache_read=reported.cache_read,
            cache_write=reported.cache_write,
            total_tokens=input_tokens + output + reported.cache_read + reported.cache_write,
            image_tokens=reported.image_tokens,
            audio_tokens=reported.audio_tokens,
            # A reported cost is valid only for the reported tokens.
            cost=reported.cost if has_input and output == reported.output else None,
            estimated=True,
            raw=reported.raw,
        )


def _input_tokens(request: ModelRequest | None) -> int:
    if request is None:
        return 0
    context = request.context
    tokens = context_tokens(context)
    if any(isinstance(message, AssistantMessage) and message.usage for message in context.messages):
        return tokens  # the count is based on a provider's, which includes the tools
    return tokens + sum(
        BY_BYTES.text(spec.name + spec.description + json.dumps(spec.schema, ensure_ascii=False))
        for spec in request.tools
    )
