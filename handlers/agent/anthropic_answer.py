"""The message that a stream of Anthropic's events builds up."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from pydantic import JsonValue

from bus.messages.content import (
    AnnotationRef,
    Block,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    UnknownBlock,
)
from bus.messages.message import AssistantMessage, StopReason, now_ms
from bus.messages.usage import Rates, Usage
from handlers.agent.model import ModelEvent, Piece

if TYPE_CHECKING:
    from anthropic.types import RawMessageStreamEvent

__all__ = ("StreamedAnswer",)

Json = dict[str, JsonValue]

_STOP_REASONS: Mapping[str, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "toolUse",
    "pause_turn": "paused",
    "refusal": "guardRail",
}


class StreamedAnswer:
    """The message that the stream's events build up."""

    def __init__(self, name: str, rates: Rates | None) -> None:
        self._name, self._rates = name, rates
        self._blocks: dict[int, Json] = {}
        self._fragments: dict[int, list[str]] = {}
        self._open: set[int] = set()
        self._usage: Json = {}
        self._id: str | None = None
        self._model: str | None = None
        self._stop: str | None = None
        self.is_complete = False

    def take(self, event: "RawMessageStreamEvent") -> list[ModelEvent]:
        """Fold in one event; gives what is to be told of it."""
        match event.type:
            case "message_start":
                self._id = event.message.id
                self._model = event.message.model
                return [self._used(cast("Json", event.message.usage.to_dict()))]
            case "content_block_start":
                return self._start(event.index, cast("Json", event.content_block.to_dict()))
            case "content_block_delta":
                return self._grow(event.index, cast("Json", event.delta.to_dict()))
            case "content_block_stop":
                self._open.discard(event.index)
            case "message_delta":
                self._stop = event.delta.stop_reason or self._stop
                return [self._used(cast("Json", event.usage.to_dict()))]
            case "message_stop":
                self.is_complete = True
        return []

    def message(self, fault: str | None) -> AssistantMessage:
        """The whole message; with a `fault` the one that failed, without the calls that were not told to their end."""
        stop = "error" if fault else _STOP_REASONS.get(self._stop or "", "stop")
        whole = (
            index for index in sorted(self._blocks) if not fault or index not in self._open or not self._is_call(index)
        )
        return AssistantMessage(
            content=tuple(self._block(index) for index in whole),
            stop_reason=stop,
            raw_stop_reason=self._stop,
            error_message=fault,
            provider="anthropic",
            # As it was asked for, not as the provider calls it in full: by this name its thinking goes back to it.
            model=self._name,
            metadata={"responseModel": self._model} if self._model not in {None, self._name} else None,
            usage=self._normalised() if self._usage else None,
            response_id=self._id,
            timestamp=now_ms(),
        )

    def _start(self, index: int, block: Json) -> list[ModelEvent]:
        self._blocks[index] = block
        self._fragments[index] = []
        self._open.add(index)
        if block["type"] == "tool_use":
            return [Piece("toolCall", "", index, str(block["name"]))]
        text, thinking = _text(block, "text"), _text(block, "thinking")
        return [Piece("text" if text else "thinking", text or thinking, index)] if text or thinking else []

    def _grow(self, index: int, delta: Json) -> list[ModelEvent]:
        block = self._blocks[index]
        match delta:
            case {"type": "text_delta", "text": str(text)}:
                block["text"] = f"{block.get('text') or ''}{text}"
                return [Piece("text", text, index)]
            case {"type": "thinking_delta", "thinking": str(text)}:
                block["thinking"] = f"{block.get('thinking') or ''}{text}"
                return [Piece("thinking", text, index)]
            case {"type": "signature_delta", "signature": str(signature)}:
                block["signature"] = signature
            case {"type": "input_json_delta", "partial_json": str(fragment)}:
                self._fragments[index].append(fragment)
                return [Piece("toolCall", fragment, index)] if self._is_call(index) else []
            case {"type": "citations_delta", "citation": dict(citation)}:
                known = block.get("citations")
                block["citations"] = [*(known if isinstance(known, list) else []), citation]
            case _:
                pass
        return []

    def _is_call(self, index: int) -> bool:
        return self._blocks[index]["type"] == "tool_use"

    def _block(self, index: int) -> Block:
        block = self._blocks[index]
        match block:
            case {"type": "text"}:
                citations = block.get("citations")
                refs = (
                    tuple(_ref(each) for each in citations if isinstance(each, dict))
                    if isinstance(citations, list)
                    else ()
                )
                return TextBlock(text=_text(block, "text"), annotations=refs or None)
            case {"type": "thinking"}:
                return ThinkingBlock(text=_text(block, "thinking"), signature=_text(block, "signature") or None)
            case {"type": "redacted_thinking"}:
                return RedactedThinkingBlock(data=_text(block, "data"))
            case {"type": "tool_use"}:
                return self._call(index, block)
            case _:
                return UnknownBlock(raw=block)

    def _call(self, index: int, block: Json) -> ToolCallBlock:
        raw = "".join(self._fragments[index])
        name, call_id = _text(block, "name"), _text(block, "id")
        if not raw:
            return ToolCallBlock(id=call_id, name=name, arguments=block.get("input") or {})
        try:
            arguments = cast("JsonValue", json.loads(raw))
        except ValueError:
            return ToolCallBlock(id=call_id, name=name, arguments={}, arguments_raw=raw)
        return ToolCallBlock(id=call_id, name=name, arguments=arguments)

    def _used(self, usage: Json) -> Usage:
        # Every report counts from the beginning: it replaces the one before and is never added to it.
        self._usage.update({name: value for name, value in usage.items() if value is not None})
        return self._normalised()

    def _normalised(self) -> Usage:
        """The provider's counts as ours. Here `input_tokens` leaves cached tokens out already."""
        details = self._usage.get("output_tokens_details")
        reasoning = details.get("thinking_tokens") if isinstance(details, dict) else 0
        counts = [_count(self._usage.get(name)) for name in _COUNTS]
        usage = Usage(
            input=counts[0],
            output=counts[1],
            cache_read=counts[2],
            cache_write=counts[3],
            reasoning=_count(reasoning),
            total_tokens=sum(counts),
            raw={**self._usage},
        )
        if self._rates is None:
            return usage
        return usage.model_copy(update={"cost": usage.cost_at(self._rates, source="caller")})


_COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def _count(value: JsonValue) -> int:
    return value if isinstance(value, int) else 0


def _text(block: Json, name: str) -> str:
    value = block.get(name)
    return value if isinstance(value, str) else ""


def _ref(citation: Json) -> AnnotationRef:
    page, index = citation.get("start_page_number"), citation.get("document_index")
    return AnnotationRef(
        url=_text(citation, "url") or None,
        file_id=_text(citation, "file_id") or None,
        page=page if isinstance(page, int) else None,
        index=index if isinstance(index, int) else None,
        title=_text(citation, "title") or _text(citation, "document_title") or None,
    )
