"""Read answers of Gemini's API, whole or as a stream of partial responses."""

import json
from collections.abc import Mapping

from pydantic import JsonValue, ValidationError
from pydantic.alias_generators import to_snake

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import (
    AnnotationRef,
    AssistantMessage,
    AudioBlock,
    Block,
    DocumentBlock,
    ImageBlock,
    MediaRef,
    Rates,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    UnknownBlock,
    Usage,
    VideoBlock,
    require_json,
)
from lanebus.handlers.context import as_list, as_object, as_text, first_fault
from lanebus.handlers.providers.answer import (
    NO_NAMES,
    AnswerState,
    ModelEvent,
    Piece,
    count_of,
    minted_id,
    priced,
    require_response,
)
from lanebus.handlers.providers.gemini.form import PROVIDER
from lanebus.handlers.providers.request import Json

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


# Read a part of Gemini's answer as a block.


def read_part(part: Json, path: str, names: Mapping[str, str]) -> Block | None:
    """Return the block of a part; None if the part is empty.

    Args:
        part: the part's JSON.
        path: path of the part, for errors.
        names: see `ProviderRequest.tool_names`.

    Raises:
        DecodeError: a field of the part does not have the API's form.
    """
    signature = text_at(part, "thoughtSignature", f"{path}.")
    if (call := object_at(part, "functionCall", f"{path}.")) is not None:
        return _call(call, f"{path}.functionCall.", names, signature)
    thought = field_at(part, "thought") is True
    if isinstance(field_at(part, "text"), str):
        text = text_at(part, "text") or ""
        if not text and not signature:
            return None
        return ThinkingBlock(text=text, signature=signature) if thought else TextBlock(text=text, signature=signature)
    if not thought and (media := _media(part, path)) is not None:
        return _media_block(media, signature)
    present: Json = {key: value for key, value in part.items() if value is not None}
    if present.keys() <= {"thoughtSignature", "thought_signature"}:
        return TextBlock(text="", signature=signature) if signature else None
    return UnknownBlock(raw=present)


def citations(candidate: Json, path: str) -> list[AnnotationRef]:
    """Return the sources that a candidate names: the sources it cites and the web pages that a search found.

    Raises:
        DecodeError: a source does not have the API's form.
    """
    cited = object_at(candidate, "citationMetadata", path) or {}
    found = list_at(cited, "citations", f"{path}citationMetadata.") or []
    grounding = object_at(candidate, "groundingMetadata", path) or {}
    for chunk in list_at(grounding, "groundingChunks", f"{path}groundingMetadata.") or []:
        if isinstance(chunk, dict):
            found = [*found, chunk.get("web")]
    return [
        AnnotationRef(url=text_at(each, "uri", path), title=text_at(each, "title", path))
        for each in found
        if isinstance(each, dict)
    ]


def _call(call: Json, path: str, names: Mapping[str, str], signature: str | None) -> ToolCallBlock:
    name = text_at(call, "name", path)
    if name is None:
        raise DecodeError(f"{path}name", "a function call needs a name")
    arguments = object_at(call, "args", path)
    call_id = text_at(call, "id", path) or minted_id()
    return ToolCallBlock(id=call_id, name=names.get(name, name), arguments=arguments or {}, signature=signature)


def _media(part: Json, path: str) -> MediaRef | None:
    if (blob := object_at(part, "inlineData", f"{path}.")) is not None:
        # The SDK writes base64 with the URL-safe alphabet.
        data = (text_at(blob, "data", f"{path}.inlineData.") or "").replace("-", "+").replace("_", "/")
        fields: Json = {"kind": "data", "data": data}
        place = f"{path}.inlineData"
    elif (blob := object_at(part, "fileData", f"{path}.")) is not None:
        place = f"{path}.fileData"
        fields = {"kind": "file_id", "fileId": text_at(blob, "fileUri", f"{place}.")}
    else:
        return None
    fields |= {"mimeType": text_at(blob, "mimeType", f"{place}."), "filename": text_at(blob, "displayName", path)}
    try:
        return MediaRef.model_validate({key: value for key, value in fields.items() if value is not None})
    except ValidationError as error:
        raise DecodeError(place, first_fault(error)[1]) from None


def _media_block(media: MediaRef, signature: str | None) -> Block:
    match (media.mime_type or "").partition("/")[0]:
        case "image":
            return ImageBlock(media=media, signature=signature)
        case "audio":
            return AudioBlock(media=media)
        case "video":
            return VideoBlock(media=media)
        case _:
            return DocumentBlock(media=media)


# Read fields of Gemini's JSON in either spelling: camelCase as in the API, snake_case as in the SDK.


def field_at(value: Json, name: str) -> JsonValue:
    """Return the field with this camelCase name, or with the same name in snake_case; None if both are missing."""
    return value[name] if name in value else value.get(to_snake(name))


def object_at(value: Json, name: str, path: str = "") -> Json | None:
    """Return the object in a field; None if it is missing.

    Args:
        value: the object that has the field.
        name: the field's camelCase name.
        path: path of `value`, with a dot at its end.

    Raises:
        DecodeError: the field does not hold an object.
    """
    found = field_at(value, name)
    return None if found is None else as_object(found, f"{path}{name}")


def list_at(value: Json, name: str, path: str = "") -> list[JsonValue] | None:
    """Return the list in a field; see `object_at`."""
    found = field_at(value, name)
    return None if found is None else as_list(found, f"{path}{name}")


def text_at(value: Json, name: str, path: str = "") -> str | None:
    """Return the text in a field; None if the field is missing or the text is empty. See `object_at`."""
    found = field_at(value, name)
    return None if found is None else as_text(found, f"{path}{name}") or None


def normalised(usage: Json) -> Usage:
    """Return the usage.

    Gemini's prompt count includes cached tokens; `Usage.input` does not. Gemini's answer count excludes thoughts;
    `Usage.output` includes them.

    Raises:
        DecodeError: the details of a count are not a list.
    """
    prompt, tools, cached, answered, thought, total = (count_of(field_at(usage, name)) for name in _COUNTS)
    # More cached tokens than prompt tokens would be a provider's error. It must not make a price negative.
    fresh = max(prompt + tools - cached, 0)
    return Usage(
        input=fresh,
        output=answered + thought,
        reasoning=thought,
        cache_read=cached,
        total_tokens=total or fresh + cached + answered + thought,
        image_tokens=_of_kind(usage, "IMAGE"),
        audio_tokens=_of_kind(usage, "AUDIO"),
        raw={**usage},
    )


_COUNTS = (
    "promptTokenCount",
    "toolUsePromptTokenCount",
    "cachedContentTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
    "totalTokenCount",
)


def _of_kind(usage: Json, modality: str) -> int | None:
    """Return the tokens of one modality, in prompt and answer together; None if no count names the modality."""
    found = [
        count_of(field_at(each, "tokenCount"))
        for name in ("promptTokensDetails", "candidatesTokensDetails")
        for each in list_at(usage, name, "usageMetadata.") or []
        if isinstance(each, dict) and each.get("modality") == modality
    ]
    return sum(found) if found else None
