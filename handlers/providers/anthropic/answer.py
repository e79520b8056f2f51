"""Read answers of Anthropic's Messages API, whole or as a stream of events."""

from collections.abc import Mapping

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.assistant import AssistantMessage, StopReason
from lanebus.bus.messages.content import (
    AnnotationRef,
    Block,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    UnknownBlock,
)
from lanebus.bus.messages.json_parser import require_json
from lanebus.bus.messages.usage import Rates, Usage
from lanebus.handlers.providers.anthropic.blocks import PROVIDER
from lanebus.handlers.providers.common.answer import (
    NO_NAMES,
    AnswerState,
    ModelEvent,
    Piece,
    count_of,
    priced,
    read_call,
    require_response,
    text_of,
)
from lanebus.handlers.providers.common.request import Json

__all__ = ("AnthropicAnswer", "from_anthropic")

_STOP_REASONS: Mapping[str, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "toolUse",
    "pause_turn": "paused",
    "refusal": "guardRail",
}
_KINDS = frozenset(
    {"message_start", "message_delta", "message_stop", "error"}
    | {"content_block_start", "content_block_delta", "content_block_stop"}
)


def from_anthropic(
    response: Json, *, model: str | None = None, rates: Rates | None = None, names: Mapping[str, str] = NO_NAMES
) -> AssistantMessage:
    """Return the message of a whole response of the Messages API.

    Args:
        response: the response's JSON.
        model: the requested model's name; None uses the model name in the response.
        rates: US dollars per million tokens; None leaves the cost unknown.
        names: `ProviderRequest.tool_names` of the request.

    Raises:
        DecodeError: `response` is not a response of the Messages API.
    """
    require_response(response)
    if response.get("type") != "message" or not isinstance(content := response.get("content"), list):
        raise DecodeError("type", "a response of the Messages API is of type 'message' and has a list as content")
    if not isinstance(response.get("usage"), dict):
        raise DecodeError("usage", "a response of the Messages API has a usage")
    answer = AnthropicAnswer(model, rates, names)
    answer.take({"type": "message_start", "message": response})
    for index, block in enumerate(content):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise DecodeError(f"content.{index}", "a block is a JSON object with a type")
        _require_block(block, f"content.{index}")
        answer.take({"type": "content_block_start", "index": index, "content_block": block})
        answer.take({"type": "content_block_stop", "index": index})
    answer.take({"type": "message_delta", "delta": {"stop_reason": response.get("stop_reason")}, "usage": {}})
    answer.take({"type": "message_stop"})
    return answer.message()


class AnthropicAnswer(AnswerState):
    """Builds a message from the stream's events; see `Answer`.

    Args:
        model: the requested model's name; None uses the model name in the stream.
        rates: US dollars per million tokens; None leaves the cost unknown.
        names: `ProviderRequest.tool_names` of the request.
    """

    def __init__(
        self, model: str | None = None, rates: Rates | None = None, names: Mapping[str, str] = NO_NAMES
    ) -> None:
        super().__init__(model, rates, names)
        self._blocks: dict[int, Json] = {}
        self._fragments: dict[int, list[str]] = {}
        self._open: set[int] = set()
        self._usage: Json = {}
        self.is_counted = False

    def take(self, event: Json) -> list[ModelEvent]:
        """Add one event of the stream, and return the model events that it adds; see `Answer.take`."""
        require_json(event)
        match event:
            case {"type": "message_start", "message": dict(message)} if isinstance(message.get("usage"), dict):
                self._identify(message)
                return self._counted(message)
            case {"type": "content_block_start", "index": int(index), "content_block": dict(block)} if _is_typed(block):
                return self._start(index, block)
            case {"type": "content_block_delta", "index": int(index), "delta": dict(delta)} if (
                index in self._blocks and _is_typed(delta)
            ):
                return self._grow(index, delta)
            case {"type": "content_block_stop", "index": int(index)}:
                self._open.discard(index)
            case {"type": "message_delta", "delta": dict(delta)}:
                self._stop = text_of(delta, "stop_reason") or self._stop
                self.is_counted = isinstance(event.get("usage"), dict)
                return self._counted(event)
            case {"type": "message_stop"}:
                self.is_complete = True
            case {"type": "error", "error": dict(error)}:
                self._fail(error, "type")  # the SDK raises an exception instead
            case {"type": str(kind)} if kind not in _KINDS:
                pass
            case _:
                raise DecodeError(text_of(event, "type"), "is not an event of the Messages API")
        return []

    def message(self, fault: str | None = None) -> AssistantMessage:
        """Return the message so far; see `Answer.message`."""
        fault = fault or self._error
        whole = (
            index for index in sorted(self._blocks) if not fault or index not in self._open or not self._is_call(index)
        )
        return self._message(
            PROVIDER,
            tuple(self._block(index) for index in whole),
            stop=(_STOP_REASONS.get(self._stop or "", "stop"), self._stop),
            usage=self._normalised() if self._usage else None,
            fault=fault,
        )

    def _start(self, index: int, block: Json) -> list[ModelEvent]:
        _require_block(block, "content_block")
        self._blocks[index] = {**block}
        self._fragments[index] = []
        self._open.add(index)
        if block["type"] == "tool_use":
            name = text_of(block, "name")
            return [Piece("toolCall", "", index, self._names.get(name, name))]
        text, thinking = text_of(block, "text"), text_of(block, "thinking")
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
                return TextBlock(text=text_of(block, "text"), annotations=refs or None)
            case {"type": "thinking"}:
                return ThinkingBlock(text=text_of(block, "thinking"), signature=text_of(block, "signature") or None)
            case {"type": "redacted_thinking"}:
                return RedactedThinkingBlock(data=text_of(block, "data"))
            case {"type": "tool_use"}:
                return self._call(index, block)
            case _:
                # A block of the provider's own tools also gets its input in pieces. The API refuses the block later if
                # the input is not valid JSON.
                fragments = "".join(self._fragments[index])
                call = read_call("", "", fragments, NO_NAMES)
                return UnknownBlock(raw={**block, "input": call.arguments} if fragments else block)

    def _call(self, index: int, block: Json) -> ToolCallBlock:
        fragments = "".join(self._fragments[index])
        call = read_call(text_of(block, "id"), text_of(block, "name"), fragments, self._names)
        # A stream starts a call with an empty object and sends the arguments later. A whole response has them at once.
        return call if fragments else call.model_copy(update={"arguments": block.get("input") or {}})

    def _counted(self, event: Json) -> list[ModelEvent]:
        # Each usage counts from the beginning of the answer, so its counts replace the previous counts.
        usage = event.get("usage")
        if not isinstance(usage, dict):
            return []
        self._usage.update({name: value for name, value in usage.items() if value is not None})
        return [self._normalised()]

    def _normalised(self) -> Usage:
        """Return the usage. This API's `input_tokens` does not include cached tokens."""
        details = self._usage.get("output_tokens_details")
        reasoning = details.get("thinking_tokens") if isinstance(details, dict) else 0
        counts = [count_of(self._usage.get(name)) for name in _COUNTS]
        usage = Usage(
            input=counts[0],
            output=counts[1],
            cache_read=counts[2],
            cache_write=counts[3],
            reasoning=count_of(reasoning),
            total_tokens=sum(counts),
            raw={**self._usage},
        )
        return priced(usage, self._rates)


_COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


_TEXTS = {
    "text": ("text",),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
    "tool_use": ("id", "name"),
}
_NEEDED = ("data", "id", "name")
"""Text fields that a block must have at its start, because no later event sets them."""


def _require_block(block: Json, path: str) -> None:
    """Raise DecodeError if a field that the block's type needs is missing or invalid.

    Without this check, such a field would be read as empty text.
    """
    for name in _TEXTS.get(text_of(block, "type"), ()):
        value = block.get(name)
        if not isinstance(value, str) and (value is not None or name in _NEEDED):
            raise DecodeError(f"{path}.{name}", "wants a text")
    if block.get("type") == "tool_use" and not isinstance(block.get("input"), dict | None):
        raise DecodeError(f"{path}.input", "wants a JSON object")


def _is_typed(value: Json) -> bool:
    return isinstance(value.get("type"), str)


def _ref(citation: Json) -> AnnotationRef:
    return AnnotationRef(
        url=text_of(citation, "url") or None,
        file_id=text_of(citation, "file_id") or None,
        page=_number(citation, "start_page_number"),
        index=_number(citation, "document_index"),
        title=text_of(citation, "title") or text_of(citation, "document_title") or None,
    )


def _number(citation: Json, name: str) -> int | None:
    value = citation.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
