"""Read answers of Gemini's API, whole or as a stream of partial responses."""

import json
from collections.abc import Mapping

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.assistant import AssistantMessage, StopReason
from lanebus.bus.messages.content import AnnotationRef, Block, TextBlock, ThinkingBlock, ToolCallBlock
from lanebus.bus.messages.json_parser import require_json
from lanebus.bus.messages.usage import Rates, Usage
from lanebus.handlers.providers.common.answer import NO_NAMES, AnswerState, ModelEvent, Piece, priced, require_response
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
"""Gemini's reason → lanebus's stop reason. Any other reason is read as "stop" and kept as the raw stop reason."""

_KNOWN = ("candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId", "createTime", "modelStatus")


def from_gemini(
    response: Json, *, model: str | None = None, rates: Rates | None = None, names: Mapping[str, str] = NO_NAMES
) -> AssistantMessage:
    """Return the message of a whole response of `generateContent`. Only the first candidate is read.

    Keys may be in camelCase, as in the API, or in snake_case, as in `model_dump(mode="json")` of the SDK. A call
    without an id gets a new id, so reading a response twice produces two ids.

    Args:
        response: the response's JSON.
        model: the requested model's name; None uses the model name in the response.
        rates: US dollars per million tokens; None leaves the cost unknown.
        names: `ProviderRequest.tool_names` of the request.

    Raises:
        DecodeError: `response` is not a response of `generateContent`.
    """
    require_response(response)
    if list_at(response, "candidates") is None and object_at(response, "promptFeedback") is None:
        raise DecodeError("candidates", "a response of generateContent has candidates, or says why it has none")
    answer = GeminiAnswer(model, rates, names)
    answer.take(response)
    return answer.message()


class GeminiAnswer(AnswerState):
    """Builds a message from the responses of a stream; see `Answer`.

    Args:
        model: the requested model's name; None uses the model name in the stream.
        rates: US dollars per million tokens; None leaves the cost unknown.
        names: `ProviderRequest.tool_names` of the request.
    """

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
        """Add one response of the stream, and return the model events that it adds; see `Answer.take`.

        Each usage counts from the beginning of the answer and replaces the previous usage.
        """
        require_json(event)
        if (error := object_at(event, "error")) is not None:
            raise DecodeError("error", text_at(error, "message", "error.") or "the API failed")
        if all(field_at(event, name) is None for name in _KNOWN):
            raise DecodeError("", "is not a response of generateContent")
        self.response_id = text_at(event, "responseId") or self.response_id
        self._model = text_at(event, "modelVersion") or self._model
        events: list[ModelEvent] = []
        for index, candidate in enumerate(list_at(event, "candidates") or []):
            events += self._candidate(candidate, f"candidates.{index}.")
        if (feedback := object_at(event, "promptFeedback")) is not None:
            blocked = text_at(feedback, "blockReason", "promptFeedback.")
            self._is_blocked = self._is_blocked or blocked is not None
            self._ended(blocked, feedback, "blockReasonMessage")
        if (usage := object_at(event, "usageMetadata")) is not None:
            known = {**self._usage, **{name: value for name, value in usage.items() if value is not None}}
            events.append(self._used(known))
            self.is_counted = self.is_complete
            self._usage = known  # set only after `_used` succeeded, because `message` calls `_used` again
        return events

    def message(self, fault: str | None = None) -> AssistantMessage:
        """Return the message so far; see `Answer.message`. Gemini sends each call whole, so a fault removes no call."""
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
        events: list[ModelEvent] = []
        content = object_at(candidate, "content", path) or {}
        for index, part in enumerate(list_at(content, "parts", f"{path}content.") or []):
            events += self._part(part, f"{path}content.parts.{index}")
        self._refs += citations(candidate, path)
        self._ended(text_at(candidate, "finishReason", path), candidate, "finishMessage")
        return events

    def _part(self, part: JsonValue, path: str) -> list[ModelEvent]:
        if not isinstance(part, dict):
            raise DecodeError(path, "a part is a JSON object")
        block = read_part(part, path, self._names)
        last = self._blocks[-1] if self._blocks else None
        match block:
            case None:
                return []
            case TextBlock() | ThinkingBlock():
                self._add_text(block, last)
                piece = Piece("text" if block.type == "text" else "thinking", block.text, len(self._blocks) - 1)
                return [piece] if block.text else []
            case ToolCallBlock():
                self._blocks.append(block)
                arguments = json.dumps(block.arguments, ensure_ascii=False)
                return [Piece("toolCall", arguments, len(self._blocks) - 1, block.name)]
            case _:
                self._blocks.append(block)
                return []

    def _add_text(self, block: TextBlock | ThinkingBlock, last: Block | None) -> None:
        """Append text to the last block if that block has the same type. Otherwise append a new block.

        A block with a signature is never joined, because the signature covers only its own part.
        """
        if block.signature is None and isinstance(last, type(block)) and last.signature is None:
            self._blocks[-1] = last.model_copy(update={"text": last.text + block.text})
        else:
            self._blocks.append(block)

    def _ended(self, reason: str | None, holder: Json, message: str) -> None:
        if reason:
            self._stop, self._reason = reason, text_at(holder, message)
            self.is_complete = True
            self.error_code = reason if self._stop_reason() == "error" else None

    def _stop_reason(self) -> StopReason:
        """Return the stop reason.

        If the provider reports "stop" but the model called a tool, return "toolUse". If the provider blocked the
        prompt, return "guardRail": no model has seen the prompt.
        """
        if self._is_blocked:
            return _FILTERED
        stop = _STOP_REASONS.get(self._stop or "", "stop")
        wants_tools = any(isinstance(block, ToolCallBlock) for block in self._blocks)
        return "toolUse" if stop == "stop" and wants_tools else stop

    def _content(self) -> tuple[Block, ...]:
        """Return the blocks. The cited sources belong to the whole answer and become annotations of its last text."""
        blocks = list(self._blocks)
        for index in range(len(blocks) - 1, -1, -1):
            if self._refs and isinstance(block := blocks[index], TextBlock):
                blocks[index] = block.model_copy(update={"annotations": tuple(self._refs)})
                break
        return tuple(blocks)

    def _used(self, usage: Json) -> Usage:
        return priced(normalised(usage), self._rates)
