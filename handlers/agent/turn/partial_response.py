"""A response while it is streamed: what is recorded of it if the model does not come to its end."""

from collections.abc import Iterable

from lanebus.bus.messages.content import Block, TextBlock, ThinkingBlock
from lanebus.bus.messages.message import AssistantMessage, StopReason, now_ms
from lanebus.bus.messages.usage import Usage
from lanebus.handlers.agent.models.model import Model, ModelRequest, Pricing
from lanebus.handlers.agent.models.usage_estimate import UsageEstimate
from lanebus.handlers.providers.common.answer import Begun, ModelEvent, Piece

__all__ = ("PartialResponse", "cut_content")


class PartialResponse:
    """Collects what a model streams. `whole` is the response, once there is one."""

    def __init__(self, model: Model, request: ModelRequest | None = None) -> None:
        """
        Args:
            request: what was asked; without it an answer that is cut has an estimate of its output alone.
        """
        self._model = model
        self._estimate = UsageEstimate(request)
        self._texts: dict[int, tuple[Piece, list[str]]] = {}
        self._last: AssistantMessage | None = None
        """the answer as its provider ended it, also where nobody wanted it any more"""
        self._response_id: str | None = None
        self.whole: AssistantMessage | None = None

    @property
    def is_empty(self) -> bool:
        """Nothing was said and nothing is known to have been paid for."""
        return self._last is None and not self._estimate.has_begun

    @property
    def is_ended(self) -> bool:
        """The model has come to its end: nothing more will be told of what the call took."""
        return self._last is not None

    @property
    def spoken_tokens(self) -> int:
        """A guess at the tokens that the model has spoken, what was overheard too."""
        return self._estimate.spoken_tokens

    def add(self, event: ModelEvent) -> None:
        """Take the next event of the stream."""
        self.overhear(event)
        match event:
            case Piece():
                self._texts.setdefault(event.block, (event, []))[1].append(event.text)
            case AssistantMessage():
                self.whole = event
            case _:
                pass

    def overhear(self, event: ModelEvent) -> None:
        """Take from the next event what it tells of the call's usage, and nothing of what is said in it."""
        self._estimate.hear(event)
        match event:
            case Begun(response_id=response_id):
                self._response_id = response_id
            case AssistantMessage():
                self._last = event
            case _:
                pass

    def cut(self, stop_reason: StopReason, reason: str) -> AssistantMessage:
        """Return the text so far as a message that failed. Its usage is an estimate unless the provider reported it."""
        spoken = ((first.kind, "".join(parts)) for _, (first, parts) in sorted(self._texts.items()))
        return self._failed(stop_reason, reason, cut_content(spoken))

    def without_content(self, reason: str) -> AssistantMessage:
        """Return a message that failed and holds nothing but its usage."""
        return self._failed("error", reason, ())

    def _failed(self, stop_reason: StopReason, reason: str, content: tuple[Block, ...]) -> AssistantMessage:
        return AssistantMessage(
            content=content,
            stop_reason=stop_reason,
            error_message=reason,
            provider=self._model.provider,
            model=self._model.name,
            usage=self._usage(),
            response_id=self._last.response_id if self._last else self._response_id,
            timestamp=now_ms(),
        )

    def _usage(self) -> Usage | None:
        if self._last is not None:
            return self._last.usage
        usage = self._estimate.usage()
        return self._model.price(usage) if usage is not None and isinstance(self._model, Pricing) else usage


def cut_content(spoken: Iterable[tuple[str, str]]) -> tuple[Block, ...]:
    """Return the blocks of a message that was cut, from the kind and text of each so far.

    Tool calls are left out, as they are not complete.
    """
    return tuple(
        ThinkingBlock(text=text) if kind == "thinking" else TextBlock(text=text)
        for kind, text in spoken
        if kind in {"text", "thinking"}
    )
