"""An answer while it is spoken: what is known of it should the model never come to its end."""

from collections.abc import Iterable

from bus.messages.content import Block, TextBlock, ThinkingBlock
from bus.messages.message import AssistantMessage, StopReason, now_ms
from bus.messages.usage import Usage
from handlers.agent.model import Model
from handlers.providers.answer import ModelEvent, Piece

__all__ = ("Draft", "cut_content")


class Draft:
    """Collects what a model streams. `whole` is the answer, once there is one."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._texts: dict[int, tuple[Piece, list[str]]] = {}
        self._usage: Usage | None = None
        self._is_counted = False
        self.whole: AssistantMessage | None = None

    @property
    def is_empty(self) -> bool:
        """Nothing was said and nothing is known to have been paid for."""
        return self.whole is None and not self._texts and self._usage is None

    @property
    def is_counted(self) -> bool:
        """It is known what the call took, or that nothing more will be told of it."""
        return self._is_counted

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
        match event:
            case Usage():
                self._usage = event
            case AssistantMessage():
                self._usage = event.usage or self._usage
                self._is_counted = True
            case _:
                pass

    def cut(self, stop_reason: StopReason, reason: str) -> AssistantMessage:
        """The text so far as a message that failed."""
        spoken = ((first.kind, "".join(parts)) for _, (first, parts) in sorted(self._texts.items()))
        return self._failed(stop_reason, reason, cut_content(spoken))

    def without_content(self, reason: str) -> AssistantMessage:
        """A message that failed and holds nothing but what it cost."""
        return self._failed("error", reason, ())

    def _failed(self, stop_reason: StopReason, reason: str, content: tuple[Block, ...]) -> AssistantMessage:
        return AssistantMessage(
            content=content,
            stop_reason=stop_reason,
            error_message=reason,
            provider=self._model.provider,
            model=self._model.name,
            usage=self._usage,
            timestamp=now_ms(),
        )


def cut_content(spoken: Iterable[tuple[str, str]]) -> tuple[Block, ...]:
    """The blocks of a message that was cut, from the kind and text of each as far as it was spoken.

    Calls of tools that nobody finished asking for are left out.
    """
    return tuple(
        ThinkingBlock(text=text) if kind == "thinking" else TextBlock(text=text)
        for kind, text in spoken
        if kind in {"text", "thinking"}
    )
