"""Write requests to Google's Gemini API, and read its answers. The request is plain dicts; no SDK is imported.

Source: the API's REST reference and the types of Google's Python SDK (3.4).
"""

import json
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple, Unpack
from urllib.parse import urlsplit

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
    LlmMessage,
    MediaRef,
    Rates,
    RedactedThinkingBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    UnknownBlock,
    Usage,
    UserMessage,
    VideoBlock,
    parse_json,
    require_json,
)
from lanebus.handlers.context import Context, as_list, as_object, first_fault
from lanebus.handlers.context import as_text as text_field
from lanebus.handlers.providers.answer import (
    NO_NAMES,
    AnswerState,
    ModelEvent,
    Piece,
    count_of,
    is_minted,
    minted_id,
    priced,
    require_response,
)
from lanebus.handlers.providers.request import (
    NO_OUTPUT,
    Json,
    ProviderRequest,
    RequestOptions,
    Target,
    WireNames,
    WirePattern,
    arguments_of,
    as_text,
    build_request,
    called,
    copied,
    flat,
    inline_type,
    is_failed,
    is_web,
    joined,
    name_of,
    rendered_blocks,
    unreachable,
)

# Render the parts of one message in Gemini's form.
#
# Content that the API cannot represent is left out and reported as a loss.

PROVIDER = "google"

_MEDIA = (ImageBlock, AudioBlock, VideoBlock, DocumentBlock)
_SERVER_SIDE = frozenset(
    {"executableCode", "codeExecutionResult", "toolCall", "toolResponse"}
    | {"executable_code", "code_execution_result", "tool_call", "tool_response"}
)
"""Keys of the parts that the provider's own tools write. The API accepts such parts back in a later request."""

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")

_BEFORE_GEMINI_3 = re.compile(r"(.*/)?(gemini-[12]\b|gemma)")
_IN_RESULTS = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"})
"""Media types that a function response may contain. Source: the API's page on function calling, Gemini 3."""


class WireCall(NamedTuple):
    """Name and id of a tool call in the request. The call's result must have the same name and id."""

    name: str
    id: str | None


def system_texts(message: LlmMessage, losses: list[str]) -> list[str]:
    """Return the texts of instructions. Other content is a loss, because the API accepts only text in instructions."""
    losses += [
        f"{name_of(block)} left out: in instructions only text is taken"
        for block in message.content
        if not isinstance(block, TextBlock)
    ]
    return [block.text for block in message.content if isinstance(block, TextBlock) and block.text.strip()]


def user_parts(message: LlmMessage, target: Target, losses: list[str]) -> list[Json]:
    """Render a user message. The message holds no tool results: the context has them as separate messages."""
    return _filled(message.content, target, losses, (TextBlock, *_MEDIA), "users cannot send it")


def assistant_parts(
    message: AssistantMessage, calls: Iterable[WireCall], target: Target, losses: list[str]
) -> tuple[list[Json], bool]:
    """Render an assistant message. The order of its blocks is kept.

    Thinking, signatures, generated media, and the parts of the provider's own tools go back only to the model that
    wrote the message. Signatures of other models are useless and are left out without a warning.

    Args:
        message: the message to render.
        calls: the message's tool calls on the wire, in order.
        target: the options of the request.
        losses: list to which each loss is appended.

    Returns:
        The parts, and whether thinking was left out.
    """
    own = target.wrote(message)
    remaining = iter(calls)
    taken = (TextBlock, *_MEDIA) if own else (TextBlock,)
    parts: list[Json] = []
    left_out = False
    for block in message.content:
        match block:
            # The API seldom signs a thought; it signs the next part. So the model's own thoughts go back unsigned, too.
            case ThinkingBlock() if own:
                thought: Json = {"text": block.text, "thought": True}
                parts += [_signed(thought, block.signature, losses)] if block.text or block.signature else []
            case ThinkingBlock() | RedactedThinkingBlock():
                thinking = as_text(block, target)
                if thinking is None:
                    left_out = True
                else:
                    parts.append({"text": thinking})
            case ToolCallBlock():
                parts.append(_function_call(block, next(remaining), own=own, losses=losses))
            case TextBlock() if own and block.text + (block.signature or ""):
                parts.append(_signed({"text": block.text}, block.signature, losses))
            case UnknownBlock(raw=raw) if own and not _SERVER_SIDE.isdisjoint(raw):
                parts.append({key: copied(value) for key, value in raw.items()})
            case _:
                signature = block.signature if own and isinstance(block, ImageBlock) else None
                rendered = _filled((block,), target, losses, taken, "assistants cannot send it")
                parts += [_signed(part, signature, losses) for part in rendered]
    return parts, left_out


def result_parts(
    message: ToolResultMessage, call: WireCall, target: Target, losses: list[str]
) -> tuple[Json, list[Json]]:
    """Render a tool's result. Return the function response, and the media to add after all responses of the batch."""
    rest = (block for block in flat(message.content) if not isinstance(block, TextBlock))
    media = _filled(rest, target, losses, _MEDIA, "results cannot hold it")
    response: Json = {"name": call.name, "response": _response(message, target)}
    if call.id is not None:
        response["id"] = call.id
    inside: list[JsonValue] = [part for part in media if _may_stand_inside(part, target)]
    if inside:
        response["parts"] = inside
    return {"functionResponse": response}, [part for part in media if not _may_stand_inside(part, target)]


def _response(message: ToolResultMessage, target: Target) -> Json:
    """Return the response object that the API requires.

    A structured result that is a JSON object stays as it is. Other JSON and text become the field `result`.
    """
    text, value = joined(message.content), message.structured
    failed = is_failed(message)
    if value is not None and (not text.strip() or _has_same_json(text, value)):
        if not failed:
            same = copied(value)
            return same if isinstance(same, dict) else {"result": same}
        text = json.dumps(value, ensure_ascii=False)
    return {"result": target.error_prefix + (text if text.strip() else NO_OUTPUT) if failed else text}


def _has_same_json(text: str, value: JsonValue) -> bool:
    try:
        return parse_json(text) == value
    except DecodeError:
        return False


def _may_stand_inside(part: Json, target: Target) -> bool:
    blob = part.get("inlineData")
    return isinstance(blob, dict) and blob.get("mimeType") in _IN_RESULTS and not is_before_gemini_3(target.model)


def _filled(
    content: Iterable[Block], target: Target, losses: list[str], taken: tuple[type[Block], ...], reason: str
) -> list[Json]:
    return rendered_blocks(
        content, lambda block: _rendered(block, target, losses), taken=taken, reason=reason, losses=losses
    )


def _rendered(block: Block, target: Target, losses: list[str]) -> Json | str | None:
    """Return the part, the reason as text if the block cannot be sent, or None if the block is empty.

    Text of only white space is empty, because the API refuses it.
    """
    match block:
        case TextBlock(text=text):
            return {"text": text} if text.strip() else None
        case ImageBlock() | AudioBlock() | VideoBlock() | DocumentBlock():
            return media_part(block, target.resolved(block.media), losses)
        case _:
            return "there is no form for it"


def is_before_gemini_3(model: str) -> bool:
    """Return whether a model is known to be older than Gemini 3. Return False for an unknown name."""
    return _BEFORE_GEMINI_3.match(model) is not None


def _function_call(block: ToolCallBlock, call: WireCall, *, own: bool, losses: list[str]) -> Json:
    named: Json = {"name": call.name, "args": arguments_of(block, losses)}
    if call.id is not None:
        named["id"] = call.id
    return _signed({"functionCall": named}, block.signature if own else None, losses)


def _signed(part: Json, signature: str | None, losses: list[str]) -> Json:
    """Return the part with the signature. A signature that is not base64 is left out and appended to `losses`.

    The API accepts both base64 alphabets, with or without padding.
    """
    if not signature:
        return part
    if not _BASE64.fullmatch(signature):
        losses.append("signature left out: it is not base64")
        return part
    return {**part, "thoughtSignature": signature}


FUNCTION_NAME = WirePattern.of("a-zA-Z0-9_.:-", 128, first="a-zA-Z_")

_MODE = {"auto": "AUTO", "required": "ANY", "named": "ANY", "none": "NONE"}

PLACEHOLDER = "..."
"""Text of the user content that is added if the context does not start with a user message.

The API refuses empty contents, and contents that start with a function call.
"""


def to_gemini(context: Context, **options: Unpack[RequestOptions]) -> ProviderRequest:
    """Return the request that sends the context to a model. The request's warnings include the context's faults.

    The body names neither the model nor streaming. Both are part of the URL, `models/MODEL:generateContent` and
    `models/MODEL:streamGenerateContent?alt=sse`.

    Roles alternate and start with the user. The results of an answer's calls are the first parts of one content, in the
    order of the calls. The order shows which call a result belongs to, because only calls that this model wrote have an
    id. Metadata, raw provider objects, usage and names are not sent.

    If the context ends with an answer of the model, so does the request; newer models refuse such a request. Gemini 3
    refuses calls without a signature in the current turn, for example after a change of provider. Such calls are sent
    with the placeholder `UNSIGNED`.

    Args:
        context: the context to send.
        options: see `RequestOptions`; `stream` and `cache` have no effect here.

    Raises:
        NoModel: no model is passed, and the session names no model.
        ToolNotOffered: the tool choice names a tool that is not offered.
        ContentRefused: `strict` is True, and a part of the context would be left out or changed.
    """
    return build_request(PROVIDER, context, options, _Form)


class _Form:
    """Builds the request: contents with alternating roles."""

    def __init__(self, target: Target) -> None:
        self._system: list[str] = []
        self.call_ids: Mapping[str, str] = {}
        self.names = WireNames(FUNCTION_NAME, (tool.name for tool in target.tools))
        self._target = target
        self._contents: list[tuple[str, list[Json]]] = []
        self._ids: set[str] = set()
        self._unanswered: deque[WireCall] = deque()
        """Calls without a result so far. The context has one result per call, in the order of the calls."""
        self._media: list[Json] = []
        """Media of results. They are added after all results of the batch."""

    def instruct(self, message: LlmMessage, losses: list[str]) -> None:
        """See `Form`."""
        self._system += system_texts(message, losses)

    def ask(self, message: UserMessage, losses: list[str]) -> None:
        """See `Form`."""
        self._add("user", user_parts(message, self._target, losses))

    def answer(self, index: int, message: AssistantMessage, losses: list[str]) -> bool:
        """See `Form`."""
        del index
        calls = self._calls(message, losses)
        self._unanswered.extend(calls)
        parts, left_out = assistant_parts(message, calls, self._target, losses)
        self._add("model", parts)
        return left_out

    def give_result(self, message: ToolResultMessage, losses: list[str]) -> None:
        """See `Form`."""
        response, media = result_parts(message, self._unanswered.popleft(), self._target, losses)
        self._media += media
        self._add("user", [response])
        if not self._unanswered:
            self._add("user", self._media)
            self._media = []

    def body(self) -> Json:
        """See `Form`."""
        body: Json = {}
        if self._system:
            body["systemInstruction"] = {"parts": [{"text": "\n\n".join(self._system)}]}
        body["contents"] = self._alternating()
        body |= self._offered()
        if self._target.max_tokens is not None:
            body["generationConfig"] = {"maxOutputTokens": self._target.max_tokens}
        return body

    def _alternating(self) -> list[JsonValue]:
        """Return the contents. The first content is a user's; if necessary, it is the placeholder."""
        if not self._contents or self._contents[0][0] != "user":
            self._contents.insert(0, ("user", [{"text": PLACEHOLDER}]))
        if not is_before_gemini_3(self._target.model):
            sign_current_turn(self._contents)
        return [{"role": role, "parts": [*parts]} for role, parts in self._contents]

    def _offered(self) -> Json:
        """Return the tools and the tool choice."""
        target = self._target
        if not target.tools:
            return {}
        declarations: list[JsonValue] = [
            {
                "name": self.names.of(tool.name),
                "description": tool.description,
                "parametersJsonSchema": copied(tool.schema),
            }
            for tool in target.tools
        ]
        tools: Json = {"tools": [{"functionDeclarations": declarations}]}
        if (choice := target.tool_choice) is None:
            return tools
        config: Json = {"mode": _MODE[choice.mode]}
        if choice.mode == "named":
            config["allowedFunctionNames"] = [self.names.of(choice.name or "")]
        return {**tools, "toolConfig": {"functionCallingConfig": config}}

    def _calls(self, message: AssistantMessage, losses: list[str]) -> list[WireCall]:
        own = self._target.wrote(message)
        calls: list[WireCall] = []
        for call in message.tool_calls():
            # The model knows neither ids that lanebus generated nor ids of other providers.
            is_its_own = own and call.id and not is_minted(call.id) and call.id not in self._ids
            calls.append(WireCall(called(call, self.names, losses), call.id if is_its_own else None))
            self._ids.add(call.id)
        return calls

    def _add(self, role: str, parts: list[Json]) -> None:
        if not parts:
            return
        if self._contents and self._contents[-1][0] == role:
            self._contents[-1][1].extend(parts)
        else:
            self._contents.append((role, parts))


MediaBlock = ImageBlock | AudioBlock | VideoBlock | DocumentBlock

_TAKEN: dict[str, tuple[str, ...]] = {
    "image": ("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"),
    "audio": ("audio/",),
    "video": ("video/",),
    "document": ("application/pdf", "text/"),
}
"""Type of block → the media types that the API accepts. An item that ends with "/" is a prefix.

Source: the API's pages on images, audio, video and documents.
"""

_SUFFIXES = {
    **{".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp", ".gif": "image/gif"},
    **{".heic": "image/heic", ".heif": "image/heif"},
    **{".mp3": "audio/mpeg", ".wav": "audio/wav", ".flac": "audio/flac", ".ogg": "audio/ogg", ".aac": "audio/aac"},
    **{".aiff": "audio/aiff", ".m4a": "audio/mp4"},
    **{".mp4": "video/mp4", ".mov": "video/quicktime", ".webm": "video/webm", ".mpeg": "video/mpeg"},
    **{".pdf": "application/pdf", ".txt": "text/plain", ".md": "text/markdown", ".csv": "text/csv"},
    **{".html": "text/html", ".css": "text/css", ".xml": "text/xml"},
}


def media_part(block: MediaBlock, media: MediaRef, losses: list[str]) -> Json | str:
    """Return the part. If the media cannot be sent, return the reason as text.

    A document that cannot be sent is replaced by the text extracted from the document. The API requires a media type.
    For inline media, the type is detected from the bytes, or else the declared type is used. For other media without a
    declared type, it is derived from the file name, which is reported as a loss.
    """
    part = _part(block, media, losses)
    if isinstance(part, dict) or not isinstance(block, DocumentBlock):
        return part
    text = next((text for text in (block.text, block.excerpt) if text and text.strip()), None)
    return part if text is None else {"text": text}


def _part(block: MediaBlock, media: MediaRef, losses: list[str]) -> Json | str:
    match media.kind:
        case "data":
            media_type = inline_type(media)
            reason = _refusal(block, media_type)
            return reason or {"inlineData": {"mimeType": media_type, "data": media.data}}
        case "url" if is_web(media.url) or (media.url or "").startswith("gs://"):
            place = media.url
        case "file_id":
            place = media.file_id
        case _:
            return unreachable(media)
    media_type = media.mime_type or _by_name(media)
    if reason := _refusal(block, media_type):
        return reason
    if media.mime_type is None:
        losses.append(f"type of {block.type} not known, sent as {media_type} after its name")
    return {"fileData": {"mimeType": media_type, "fileUri": place}}


def _by_name(media: MediaRef) -> str | None:
    name = media.filename or urlsplit(media.url or media.file_id or "").path
    return _SUFFIXES.get(PurePosixPath(name).suffix.lower())


def _refusal(block: MediaBlock, media_type: str | None) -> str | None:
    if media_type is None:
        return "its type is not known"
    taken = _TAKEN[block.type]
    fits = any(media_type.startswith(one) if one.endswith("/") else media_type == one for one in taken)
    return None if fits else f"{media_type} is none of {', '.join(one + '*' * one.endswith('/') for one in taken)}"


UNSIGNED = "skip_thought_signature_validator"
"""Placeholder signature of a call that Gemini did not make. With this value, the API does not check the signature.

Source: the API's page on thought signatures, the question about traces of other models.
"""


def sign_current_turn(contents: Sequence[tuple[str, Iterable[Json]]]) -> None:
    """Add the signature `UNSIGNED` to the first call of each step of the current turn, if that call has no signature.

    The parts are changed in place. A step is one content of the model. The turn starts with the user's last content
    without a function response. Earlier turns are not changed, because the API does not check them. Of parallel calls,
    Gemini itself signs only the first.
    """
    for role, parts in reversed(contents):
        if role == "user":
            if not any("functionResponse" in part for part in parts):
                return
            continue
        call = next((part for part in parts if "functionCall" in part), None)
        if call is not None:
            call.setdefault("thoughtSignature", UNSIGNED)


# Read answers of Gemini's API, whole or as a stream of partial responses.


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
    return None if found is None else text_field(found, f"{path}{name}") or None


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
