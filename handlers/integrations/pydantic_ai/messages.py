"""Convert messages of pydantic-ai: to messages of the LLM lane, from them, and to JSON in entries."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_ai.messages import (
    AudioUrl,
    BaseToolCallPart,
    BinaryContent,
    CachePoint,
    CompactionPart,
    DocumentUrl,
    FilePart,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    RetryFeedbackPart,
    SpeechPart,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UploadedFile,
    UserContent,
    UserPromptPart,
    VideoUrl,
)
from pydantic_ai.usage import RequestUsage
from pydantic_core import to_json

from lanebus import (
    AssistantMessage,
    ImageBlock,
    LlmMessage,
    MediaRef,
    MessageError,
    SystemMessage,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from lanebus.errors import DecodeError
from lanebus.handlers.integrations.bounds import BackendBounds
from lanebus.handlers.integrations.session_states import load_value, store_value
from lanebus.integration import Message, media_block
from lanebus.media import MediaStore
from lanebus.messages import (
    AudioBlock,
    Block,
    Cost,
    DeveloperMessage,
    DocumentBlock,
    StopReason,
    ThinkingBlock,
    TurnId,
    VideoBlock,
)

# Show messages of pydantic-ai in the LLM lane.

_STOP_REASONS: dict[str, StopReason] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "guardRail",
    "tool_call": "toolUse",
    "error": "error",
}


def llm_messages(
    message: ModelMessage, *, before: str | None, answered: TurnId | None, asked: TurnId, bounds: BackendBounds
) -> Iterator[Message]:
    """Yield what a message is in the LLM lane. What no block can say is left out.

    Args:
        message: a request or a response.
        before: the instructions of the previous request. The same instructions are not shown again.
        answered: the turn of the previous response, to which tool results belong; None if it is unknown.
        asked: the turn of the next response, to which user messages belong. It is the turn of this response.
        bounds: longer texts are cut.
    """
    if isinstance(message, ModelResponse):
        yield assistant_message(message, asked, bounds)
        return
    if message.instructions and message.instructions != before:
        yield SystemMessage(
            content=_text_block(message.instructions, bounds), timestamp=_milliseconds(message.timestamp)
        )
    for part in message.parts:
        match part:
            case SystemPromptPart():
                yield SystemMessage(content=_text_block(part.content, bounds), timestamp=_milliseconds(part.timestamp))
            case UserPromptPart(content=str(text)):
                yield UserMessage(
                    content=_text_block(text, bounds), turn_id=asked, timestamp=_milliseconds(part.timestamp)
                )
            case UserPromptPart():
                blocks = tuple(_blocks(part.content, bounds))
                yield UserMessage(content=blocks, turn_id=asked, timestamp=_milliseconds(part.timestamp))
            case SpeechPart() if part.transcript:
                yield UserMessage(
                    content=_text_block(part.transcript, bounds),
                    turn_id=asked,
                    timestamp=_milliseconds(message.timestamp),
                )
            case RetryFeedbackPart():
                feedback = _text_block(part.model_response(), bounds)
                yield UserMessage(content=feedback, turn_id=asked, timestamp=_milliseconds(part.timestamp))
            case ToolReturnPart():
                yield tool_result(part, answered, bounds)
            case _:  # what pydantic-ai keeps for itself, such as changes of the offered tools
                pass


def assistant_message(
    response: ModelResponse, turn_id: TurnId | None = None, bounds: BackendBounds | None = None
) -> AssistantMessage:
    """Return a model's response as a message of the LLM lane.

    Args:
        response: the response.
        turn_id: the turn that the message belongs to.
        bounds: longer texts are cut. None cuts nothing.
    """
    blocks = tuple(_answer_blocks(response, bounds))
    reason: StopReason = "toolUse" if any(isinstance(block, ToolCallBlock) for block in blocks) else "stop"
    if response.state == "interrupted":
        reason = "aborted"
    elif response.finish_reason in {"length", "content_filter", "error"}:
        reason = _STOP_REASONS[response.finish_reason]
    return AssistantMessage(
        content=blocks,
        stop_reason=reason,
        raw_stop_reason=response.finish_reason,
        model=response.model_name,
        provider=response.provider_name,
        usage=usage_of(response.usage),
        response_id=response.provider_response_id,
        timestamp=_milliseconds(response.timestamp),
        turn_id=turn_id,
    )


def tool_result(
    part: ToolReturnPart, turn_id: TurnId | None = None, bounds: BackendBounds | None = None
) -> ToolResultMessage:
    """Return the result of a tool call as a message of the LLM lane. Arguments are those of `assistant_message`."""
    text = part.model_response_str(wrap_if_error=False)
    return ToolResultMessage(
        tool_call_id=part.tool_call_id,
        tool_name=part.tool_name,
        content=(*(_text_block(text, bounds) if text else ()), *(_media_block(file) for file in part.files)),
        is_error=part.outcome != "success",
        turn_id=turn_id,
        timestamp=_milliseconds(part.timestamp),
    )


def usage_of(usage: RequestUsage) -> Usage | None:
    """Return the usage of one model call. None if the response reported none."""
    if usage.unmeasured_requests:
        return None
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    return Usage(
        input=max(usage.input_tokens - cached, 0),  # theirs includes the cached tokens
        output=usage.output_tokens,
        reasoning=usage.output_reasoning_tokens,
        cache_read=usage.cache_read_tokens,
        cache_write=usage.cache_write_tokens,
        audio_tokens=(usage.input_audio_tokens + usage.output_audio_tokens) or None,
        total_tokens=usage.input_tokens + usage.output_tokens,
        cost=None if usage.cost is None else Cost(total=usage.cost, source="pydantic-ai"),
    )


def _answer_blocks(response: ModelResponse, bounds: BackendBounds | None) -> Iterator[Block]:
    for part in response.parts:
        match part:
            case TextPart() if part.content:
                yield from _text_block(part.content, bounds)
            case ThinkingPart() if part.content:
                cut = _shown_text(part.content, bounds)
                yield ThinkingBlock(text=cut, signature=part.signature if cut == part.content else None)
            case ToolCallPart():
                yield tool_call(part)
            case FilePart():
                yield _media_block(part.content)
            case SpeechPart() if part.transcript:
                yield from _text_block(part.transcript, bounds)
            case CompactionPart() if part.content:
                yield from _text_block(part.content, bounds)
            case _:  # calls of the provider's own tools run at the provider; no result of ours would answer them
                pass


def tool_call(part: BaseToolCallPart) -> ToolCallBlock:
    """Return a call of a tool as a block of an answer."""
    arguments: dict[str, JsonValue] = part.args_as_dict()
    is_whole = not isinstance(part.args, str) or "INVALID_JSON" not in arguments
    return ToolCallBlock(
        id=part.tool_call_id,
        name=part.tool_name,
        arguments=arguments if is_whole else {},
        arguments_raw=None if is_whole else str(part.args),
    )


def _blocks(content: Sequence[UserContent], bounds: BackendBounds) -> Iterator[Block]:
    for item in content:
        match item:
            case str():
                yield from _text_block(item, bounds)
            case TextContent():
                yield from _text_block(item.content, bounds)
            case CachePoint():
                pass
            case _:
                yield _media_block(item)


def _media_block(item: UserContent) -> Block:
    try:
        match item:
            case BinaryContent():
                return media_block(MediaRef.from_bytes(item.data, mime_type=item.media_type))
            case UploadedFile():
                return media_block(MediaRef(kind="file_id", file_id=item.file_id, mime_type=item.media_type))
            case str() | TextContent() | CachePoint():
                return TextBlock(text=str(item))
            case _:
                return media_block(MediaRef.from_url(item.url, mime_type=item.media_type))
    except (MessageError, ValueError):  # no bytes, or a URL that lanebus does not store
        return TextBlock(text="[a file that cannot be shown]")


def _text_block(text: str, bounds: BackendBounds | None) -> tuple[TextBlock]:
    return (TextBlock(text=_shown_text(text, bounds)),)


def _shown_text(text: str, bounds: BackendBounds | None) -> str:
    if bounds is None or len(text) <= bounds.shown_characters:
        return text
    return f"{text[: bounds.shown_characters]}\n[… {len(text) - bounds.shown_characters} more characters are stored]"


def _milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1000)


class ShownMessages:
    """Shows messages of pydantic-ai, one after the other. Each response begins a turn."""

    def __init__(
        self, session_id: str, loop: int, *, turns: int = 0, before: str | None = None, bounds: BackendBounds
    ) -> None:
        """
        Args:
            session_id: the session.
            loop: number of the loop in the session, from 1.
            turns: number of responses of the loop so far.
            before: the instructions of the last request before these messages.
            bounds: longer texts are cut.
        """
        self._loop_id, self._before, self._bounds = f"{session_id}.main.{loop}", before, bounds
        self.turns = turns
        """number of responses of the loop so far"""
        self.back = 0
        """1 if the last message was shown, else 0: the distance from the next entry to its last entry in the LLM lane.
        A position would depend on what other processes append meanwhile"""

    def of(self, message: ModelMessage) -> Iterator[Message]:
        """Yield what the LLM lane shows of the next message."""
        turn = TurnId(loop_id=self._loop_id, turn_index=self.turns)
        answered = turn.model_copy(update={"turn_index": self.turns - 1}) if self.turns else None
        self.back = 0
        for shown in llm_messages(message, before=self._before, answered=answered, asked=turn, bounds=self._bounds):
            self.back = 1
            yield shown
        self.turns += isinstance(message, ModelResponse)
        if isinstance(message, ModelRequest):
            self._before = message.instructions or self._before


# Messages of the LLM lane as messages of pydantic-ai.

_URL_PARTS = {ImageBlock: ImageUrl, AudioBlock: AudioUrl, VideoBlock: VideoUrl, DocumentBlock: DocumentUrl}
_JSON = TypeAdapter[list[JsonValue]](list[JsonValue])

Media = Mapping[str, MediaRef]


def raw_of(message: ModelMessage, limit_bytes: int) -> JsonValue:
    """Return a message as JSON, for `LlmMessage.raw`, so that `model_messages` returns it unchanged. Return None if the
    JSON has more than `limit_bytes` bytes."""
    data = ModelMessagesTypeAdapter.dump_json([message])
    return _JSON.validate_json(data)[0] if len(data) <= limit_bytes else None


def model_messages(messages: Sequence[LlmMessage], media: Media) -> list[ModelMessage]:
    """Return messages of a context for a run of pydantic-ai.

    Args:
        messages: the messages, such as `context.messages`.
        media: the media that the messages refer to, from `resolve_media`. Other media are left out.
    """
    found: list[ModelMessage] = []
    parts: list[ModelRequestPart] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            if parts:
                found.append(ModelRequest(parts=parts))
                parts = []
            found.append(_response(message))
        else:
            parts.append(_request_part(message, media))
    return [*found, ModelRequest(parts=parts)] if parts else found


def tool_return(message: ToolResultMessage) -> ToolReturnPart:
    """Return the part for a tool's result."""
    match _original_of(message):
        case ModelRequest(parts=[ToolReturnPart() as part]):
            return part
        case _:
            content: JsonValue = message.text_content() if message.structured is None else message.structured
            name, call_id = message.tool_name or "", message.tool_call_id
            return ToolReturnPart(name, content, call_id, outcome="failed" if message.is_error else "success")


def _original_of(message: LlmMessage) -> ModelMessage | None:
    if not isinstance(message.raw, dict) or "kind" not in message.raw:
        return None
    try:
        return ModelMessagesTypeAdapter.validate_python([message.raw])[0]
    except ValidationError:  # the provider's own object, of another model
        return None


def _request_part(message: LlmMessage, media: Media) -> ModelRequestPart:
    match message:
        case ToolResultMessage():
            return tool_return(message)
        case SystemMessage() | DeveloperMessage():
            return SystemPromptPart(message.text_content())
        case _:
            content = [*_user_contents(message.content, media)]
            return UserPromptPart("".join(map(str, content)) if all(isinstance(c, str) for c in content) else content)


def _response(message: AssistantMessage) -> ModelResponse:
    found = _original_of(message)
    if isinstance(found, ModelResponse):
        return found
    parts: list[ModelResponsePart] = []
    for block in message.content:
        match block:
            case TextBlock():
                parts.append(TextPart(block.text))
            case ThinkingBlock():
                signature = block.signature if message.provider else None
                parts.append(ThinkingPart(block.text, signature=signature, provider_name=message.provider))
            case ToolCallBlock():
                arguments = block.arguments if isinstance(block.arguments, dict) else None
                parts.append(ToolCallPart(block.name, block.arguments_raw or arguments, block.id))
            case _:
                pass
    return ModelResponse(parts=parts, model_name=message.model, provider_name=message.provider)


def _user_contents(blocks: Sequence[Block], media: Media) -> Iterator[UserContent]:
    for block in blocks:
        match block:
            case TextBlock():
                yield block.text
            case ImageBlock() | AudioBlock() | VideoBlock() | DocumentBlock():
                ref = media.get(block.media.address or "", block.media)
                if ref.url is not None:
                    yield _URL_PARTS[type(block)](ref.url)
                elif ref.data is not None:
                    yield BinaryContent(ref.decoded(), media_type=ref.mime_type or "application/octet-stream")
            case _:
                pass


# Messages of pydantic-ai as JSON in entries: inline, or in the media store if they are large.


async def store_message(media: MediaStore, message: ModelMessage, bounds: BackendBounds) -> dict[str, JsonValue]:
    """Return JSON from which `load_message` reads the message.

    Raises:
        MediaTooLarge: the message is over the media store's limit.
        Unavailable: the media store cannot be reached.
    """
    data = ModelMessagesTypeAdapter.dump_json([message])
    if len(data) <= bounds.inline_bytes:
        return {"message": _JSON.validate_json(data)[0]}
    return {"value": await store_value(media, data, bounds=bounds)}


async def load_message(media: MediaStore, stored: dict[str, JsonValue]) -> ModelMessage:
    """Return a new copy of the message that `store_message` stored.

    Raises:
        DecodeError: the JSON has another form.
        MediaMissing: the media store no longer has the message.
        Unavailable: the media store cannot be reached.
    """
    try:
        if "message" in stored:
            return ModelMessagesTypeAdapter.validate_python([stored["message"]])[0]
        return ModelMessagesTypeAdapter.validate_json(await load_value(media, stored.get("value")))[0]
    except ValueError as error:
        raise DecodeError("", f"a stored message of pydantic-ai cannot be read: {error}") from None


def size_of(stored: dict[str, JsonValue]) -> int:
    """Return the size in bytes of what `store_message` returned, as JSON."""
    return len(to_json(stored))


def instructions_in(stored: dict[str, JsonValue]) -> str | None:
    """Return the instructions of a stored request; None for a response, and for a message in the media store."""
    message = stored.get("message")
    found = message.get("instructions") if isinstance(message, dict) else None
    return found if isinstance(found, str) else None
