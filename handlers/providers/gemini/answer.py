"""What Gemini's API answers, whole or as a stream of such responses, as a message."""

import json
from collections.abc import Mapping

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.content import AnnotationRef, Block, TextBlock, ThinkingBlock, ToolCallBlock
from lanebus.bus.messages.json_parser import require_json
from lanebus.bus.messages.message import AssistantMessage, StopReason
from lanebus.bus.messages.usage import Rates, Usage
from lanebus.handlers.providers.common.answer import NO_NAMES, AnswerState, ModelEvent, Piece, priced
from lanebus.handlers.providers.common.request import Json
from lanebus.handlers.providers.gemini.fields import field_at, list_at, object_at, text_at
from lanebus.handlers.providers.gemini.part_reader import citations, read_part
from lanebus.handlers.providers.gemini.parts import PROVIDER
from lanebus.handlers.providers.gemini.usage import normalised

__all__ = ("GeminiAnswer", "from_gemini")

_FILTERED: StopReason = "guardRail"
_STOP_REASONS: Mapping[str, StopReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    **dict.fromkeys(("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"), _FILTERED),
    **dict.fromkeys(("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "MODEL_ARMOR"), _FILTERED),
    **dict.fromkeys(("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"), "error"),
    **dict.fromkeys(("MISSING_THOUGHT_SIGNATURE", "MALFORMED_RESPONSE"), "error"),
}
"""Of those that are not here the model stopped, for a reason that only the raw word tells."""

_KNOWN = ("candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId", "createTime", "modelStatus")


def from_gemini(
    response: Json, *, model: str | None = None, rates: Rates | None = None, names: Mapping[str, str] = NO_NAMES
) -> AssistantMessage:
    """The message that a whole response of `generateContent` is; of several candidates the first.

    Keys are read in camelCase, as the API writes them, and in snake_case, as its SDK's `model_dump(mode="json")` does.
    A call without an id gets one that no other call has; so the same response read twice gives two ids.

    Args:
        model: what was asked for; the response's own name for it if None.
        rates: what a million tokens cost you; None leaves the cost unknown.
        names: `ProviderRequest.tool_names` of the request.

    Raises:
        DecodeError: it is no response of this API.
    """
    if list_at(response, "candidates") is None and object_at(response, "promptFeedback") is None:
        raise DecodeError("candidates", "a response of generateContent has candidates, or says why it has none")
    answer = GeminiAnswer(model, rates, names)
    answer.take(response)
    return answer.message()


class GeminiAnswer(AnswerState):
    """The message that the responses of a stream build up; see `Answer`."""

    def __init__(
        self, model: str | None = None, rates: Rates | None = None, names: Mapping[str, str] = NO_NAMES
    ) -> None:
        super().__init__(model, rates, names)
        self._blocks: list[Block] = []
        self._refs: list[AnnotationRef] = []
        self._usage: Json = {}
        self._reason: str | None = None
        self._is_blocked = False
        self.is_counted = False

    def take(self, event: Json) -> list[ModelEvent]:
        """See `Answer.take`. Usage counts from the beginning each time: it replaces what was told before."""
        require_json(event)
        if (error := object_at(event, "error")) is not None:
            raise DecodeError("error", text_at(error, "message", "error.") or "the API failed")
        if all(field_at(event, name) is None for name in _KNOWN):
            raise DecodeError("", "no response of generateContent")
        self.response_id = text_at(event, "responseId") or self.response_id
        self._model = text_at(event, "modelVersion") or self._model
        told: list[ModelEvent] = []
        for index, candidate in enumerate(list_at(event, "candidates") or []):
            told += self._candidate(candidate, f"candidates.{index}.")
        if (feedback := object_at(event, "promptFeedback")) is not None:
            blocked = text_at(feedback, "blockReason", "promptFeedback.")
            self._is_blocked = self._is_blocked or blocked is not None
            self._ended(blocked, feedback, "blockReasonMessage")
        if (usage := object_at(event, "usageMetadata")) is not None:
            known = {**self._usage, **{name: value for name, value in usage.items() if value is not None}}
            told.append(self._used(known))
            self.is_counted = self.is_complete
            self._usage = known  # only what could be read: the message has to be told whatever one event says
        return told

    def message(self, fault: str | None = None) -> AssistantMessage:
        """See `Answer.message`. Calls come whole, so a fault takes none away."""
        stop = self._stop_reason()
        return self._message(
            PROVIDER,
            self._content(),
            stop=(stop, self._stop),
            usage=self._used(self._usage) if self._usage else None,
            fault=fault,
            explanation=self._reason or (self._stop if stop == "error" else None),
        )

    def _candidate(self, candidate: JsonValue, path: str) -> list[ModelEvent]:
        if not isinstance(candidate, dict):
            raise DecodeError(path.rstrip("."), "a candidate is a JSON object")
        if candidate.get("index"):
            return []
        told: list[ModelEvent] = []
        content = object_at(candidate, "content", path) or {}
        for index, part in enumerate(list_at(content, "parts", f"{path}content.") or []):
            told += self._part(part, f"{path}content.parts.{index}")
        self._refs += citations(candidate, path)
        self._ended(text_at(candidate, "finishReason", path), candidate, "finishMessage")
        return told

    def _part(self, part: JsonValue, path: str) -> list[ModelEvent]:
        if not isinstance(part, dict):
            raise DecodeError(path, "a part is a JSON object")
        block = read_part(part, path, self._names)
        last = self._blocks[-1] if self._blocks else None
        match block:
            case None:
                return []
            case TextBlock() | ThinkingBlock():
                self._said(block, last)
                piece = Piece("text" if block.type == "text" else "thinking", block.text, len(self._blocks) - 1)
                return [piece] if block.text else []
            case ToolCallBlock():
                self._blocks.append(block)
                arguments = json.dumps(block.arguments, ensure_ascii=False)
                return [Piece("toolCall", arguments, len(self._blocks) - 1, block.name)]
            case _:
                self._blocks.append(block)
                return []

    def _said(self, block: TextBlock | ThinkingBlock, last: Block | None) -> None:
        """A piece of text goes on with the text before it; a signature is of its own part alone, and stays there."""
        if block.signature is None and isinstance(last, type(block)) and last.signature is None:
            self._blocks[-1] = last.model_copy(update={"text": last.text + block.text})
        else:
            self._blocks.append(block)

    def _ended(self, reason: str | None, told: Json, message: str) -> None:
        if reason:
            self._stop, self._reason = reason, text_at(told, message)
            self.is_complete = True
            self.error_code = reason if self._stop_reason() == "error" else None

    def _stop_reason(self) -> StopReason:
        """A model that calls a tool stops for that, whatever word its provider has for it. A prompt that was blocked
        was refused, for whatever reason: no model has seen it."""
        if self._is_blocked:
            return _FILTERED
        stop = _STOP_REASONS.get(self._stop or "", "stop")
        wants_tools = any(isinstance(block, ToolCallBlock) for block in self._blocks)
        return "toolUse" if stop == "stop" and wants_tools else stop

    def _content(self) -> tuple[Block, ...]:
        """The blocks; sources are told for the whole answer and stand with its last text."""
        blocks = list(self._blocks)
        for index in range(len(blocks) - 1, -1, -1):
            if self._refs and isinstance(block := blocks[index], TextBlock):
                blocks[index] = block.model_copy(update={"annotations": tuple(self._refs)})
                break
        return tuple(blocks)

    def _used(self, usage: Json) -> Usage:
        return priced(normalised(usage), self._rates)
