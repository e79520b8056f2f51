"""A response while it is streamed, and the message to record if the stream is cut."""

from collections.abc import Iterable

from lanebus.bus.messages.assistant import AssistantMessage, StopReason
from lanebus.bus.messages.content import Block, TextBlock, ThinkingBlock
from lanebus.bus.messages.llm import now_ms
from lanebus.bus.messages.usage import Usage
from lanebus.bus.whole_text import whole_text
from lanebus.handlers.agent.models.model import Model, ModelRequest, Pricing
from lanebus.handlers.agent.models.usage_estimate import UsageEstimate
from lanebus.handlers.providers.common.answer import Begun, ModelEvent, Piece

__all__ = ("PartialResponse", "cut_content")

_WRONG_EVENT = 'the model yielded a value of type {}: yield Piece("text", …), and an AssistantMessage at the end'


class PartialResponse:
    """Collects a model's events. `whole` is the complete response; None until the model has sent it."""

    def __init__(self, model: Model, request: ModelRequest | None = None) -> None:
        """
        Args:
            model: the model, for its name and prices.
            request: the request, for an estimate of a cut answer's input; None estimates the output alone.
        """
        self._model = model
        self._estimate = UsageEstimate(request)
        self._texts: dict[int, tuple[Piece, list[str]]] = {}
        self._last: AssistantMessage | None = None
        """the complete answer, even if it arrived after the stream was cut"""
        self._response_id: str | None = None
        self.whole: AssistantMessage | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was received, so the call probably cost nothing."""
        return self._last is None and not self._estimate.has_begun

    @property
    def is_ended(self) -> bool:
        """Whether the model has ended its answer, so the usage is final."""
        return self._last is not None

    @property
    def output_tokens(self) -> int:
        """An estimate of the output tokens so far, including tokens that arrived after the stream was cut."""
        return self._estimate.output_tokens

    @property
    def content(self) -> tuple[Block, ...]:
        """The text and the thinking so far; tool calls are left out, as a tool call may be incomplete."""
        return cut_content(
            (first.kind, whole_text("".join(parts))) for _, (first, parts) in sorted(self._texts.items())
        )

    def add(self, event: ModelEvent) -> None:
        """Collect the next event of the stream.

        Raises:
            TypeError: the event is not a `ModelEvent`.
        """
        self.add_usage(event)
        match event:
            case Piece():
                self._texts.setdefault(event.block, (event, []))[1].append(event.text)
            case AssistantMessage():
                self.whole = event
            case _:
                pass

    def add_usage(self, event: ModelEvent) -> None:
        """Collect only the usage of the next event, not its content.

        Raises:
            TypeError: the event is not a `ModelEvent`.
        """
        self._estimate.add(event)
        match event:
            case Piece() | Usage():
                pass
            case Begun(response_id=response_id):
                self._response_id = response_id
            case AssistantMessage():
                self._last = event
            case _:  # possible with an adapter that is not type-checked
                raise TypeError(_WRONG_EVENT.format(type(event).__name__))

    def cut(self, stop_reason: StopReason, reason: str) -> AssistantMessage:
        """Return the text so far as a failed message. The usage is an estimate unless the provider has reported it."""
        return self._failed(stop_reason, reason, self.content)

    def without_content(self, reason: str) -> AssistantMessage:
        """Return a failed message without content, with the usage of the call."""
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


def cut_content(blocks: Iterable[tuple[str, str]]) -> tuple[Block, ...]:
    """Return the blocks of a cut message. Tool calls are left out, as they are incomplete.

    Args:
        blocks: kind and text of each block so far.
    """
    return tuple(
        ThinkingBlock(text=text) if kind == "thinking" else TextBlock(text=text)
        for kind, text in blocks
        if kind in {"text", "thinking"}
    )
