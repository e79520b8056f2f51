"""Messages of the LLM lane as messages of pydantic-ai."""

from collections.abc import Iterator, Mapping, Sequence

from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    VideoUrl,
)

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import (
    AudioBlock,
    Block,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    VideoBlock,
)
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.media import MediaRef
from lanebus.bus.messages.message import DeveloperMessage, SystemMessage
from lanebus.bus.messages.tool_result import ToolResultMessage

__all__ = ("model_messages", "raw_of", "tool_return")

_URLS = {ImageBlock: ImageUrl, AudioBlock: AudioUrl, VideoBlock: VideoUrl, DocumentBlock: DocumentUrl}
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
            parts.append(_part(message, media))
    return [*found, ModelRequest(parts=parts)] if parts else found


def tool_return(message: ToolResultMessage) -> ToolReturnPart:
    """Return the part for a tool's result."""
    match _raw(message):
        case ModelRequest(parts=[ToolReturnPart() as part]):
            return part
        case _:
            content: JsonValue = message.text_content() if message.structured is None else message.structured
            name, call_id = message.tool_name or "", message.tool_call_id
            return ToolReturnPart(name, content, call_id, outcome="failed" if message.is_error else "success")


def _raw(message: LlmMessage) -> ModelMessage | None:
    if not isinstance(message.raw, dict) or "kind" not in message.raw:
        return None
    try:
        return ModelMessagesTypeAdapter.validate_python([message.raw])[0]
    except ValidationError:  # the provider's own object, of another model
        return None


def _part(message: LlmMessage, media: Media) -> ModelRequestPart:
    match message:
        case ToolResultMessage():
            return tool_return(message)
        case SystemMessage() | DeveloperMessage():
            return SystemPromptPart(message.text_content())
        case _:
            content = [*_contents(message.content, media)]
            return UserPromptPart("".join(map(str, content)) if all(isinstance(c, str) for c in content) else content)


def _response(message: AssistantMessage) -> ModelResponse:
    found = _raw(message)
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


def _contents(blocks: Sequence[Block], media: Media) -> Iterator[UserContent]:
    for block in blocks:
        match block:
            case TextBlock():
                yield block.text
            case ImageBlock() | AudioBlock() | VideoBlock() | DocumentBlock():
                ref = media.get(block.media.address or "", block.media)
                if ref.url is not None:
                    yield _URLS[type(block)](ref.url)
                elif ref.data is not None:
                    yield BinaryContent(ref.decoded(), media_type=ref.mime_type or "application/octet-stream")
            case _:
                pass
