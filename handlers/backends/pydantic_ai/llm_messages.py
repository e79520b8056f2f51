"""Show messages of pydantic-ai in the LLM lane."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from pydantic import JsonValue
from pydantic_ai.messages import (
    BaseToolCallPart,
    BinaryContent,
    CachePoint,
    CompactionPart,
    FilePart,
    ModelMessage,
    ModelResponse,
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
)
from pydantic_ai.usage import RequestUsage

from lanebus.bus.errors import MessageError
from lanebus.bus.messages.assistant import AssistantMessage, StopReason
from lanebus.bus.messages.content import Block, TextBlock, ThinkingBlock, ToolCallBlock, media_block
from lanebus.bus.messages.media import MediaRef
from lanebus.bus.messages.message import Message, SystemMessage, UserMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.messages.usage import Cost, Usage
from lanebus.handlers.backends.bounds import BackendBounds

__all__ = ("assistant_message", "llm_messages", "tool_call", "tool_result", "usage_of")

_STOP: dict[str, StopReason] = {
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
        yield SystemMessage(content=_text(message.instructions, bounds), timestamp=_ms(message.timestamp))
    for part in message.parts:
        match part:
            case SystemPromptPart():
                yield SystemMessage(content=_text(part.content, bounds), timestamp=_ms(part.timestamp))
            case UserPromptPart(content=str(text)):
                yield UserMessage(content=_text(text, bounds), turn_id=asked, timestamp=_ms(part.timestamp))
            case UserPromptPart():
                blocks = tuple(_blocks(part.content, bounds))
                yield UserMessage(content=blocks, turn_id=asked, timestamp=_ms(part.timestamp))
            case SpeechPart() if part.transcript:
                yield UserMessage(
                    content=_text(part.transcript, bounds), turn_id=asked, timestamp=_ms(message.timestamp)
                )
            case RetryFeedbackPart():
                feedback = _text(part.model_response(), bounds)
                yield UserMessage(content=feedback, turn_id=asked, timestamp=_ms(part.timestamp))
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
        reason = _STOP[response.finish_reason]
    return AssistantMessage(
        content=blocks,
        stop_reason=reason,
        raw_stop_reason=response.finish_reason,
        model=response.model_name,
        provider=response.provider_name,
        usage=usage_of(response.usage),
        response_id=response.provider_response_id,
        timestamp=_ms(response.timestamp),
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
        content=(*(_text(text, bounds) if text else ()), *(_media(file) for file in part.files)),
        is_error=part.outcome != "success",
        turn_id=turn_id,
        timestamp=_ms(part.timestamp),
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
                yield from _text(part.content, bounds)
            case ThinkingPart() if part.content:
                cut = _cut(part.content, bounds)
                yield ThinkingBlock(text=cut, signature=part.signature if cut == part.content else None)
            case ToolCallPart():
                yield tool_call(part)
            case FilePart():
                yield _media(part.content)
            case SpeechPart() if part.transcript:
                yield from _text(part.transcript, bounds)
            case CompactionPart() if part.content:
                yield from _text(part.content, bounds)
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
                yield from _text(item, bounds)
            case TextContent():
                yield from _text(item.content, bounds)
            case CachePoint():
                pass
            case _:
                yield _media(item)


def _media(item: UserContent) -> Block:
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


def _text(text: str, bounds: BackendBounds | None) -> tuple[TextBlock]:
    return (TextBlock(text=_cut(text, bounds)),)


def _cut(text: str, bounds: BackendBounds | None) -> str:
    if bounds is None or len(text) <= bounds.shown_characters:
        return text
    return f"{text[: bounds.shown_characters]}\n[… {len(text) - bounds.shown_characters} more characters are stored]"


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1000)
