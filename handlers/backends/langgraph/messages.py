"""LangChain's messages as messages of the LLM lane, for the page and the views."""

from collections.abc import Mapping
from typing import Final, cast

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from pydantic import JsonValue

from lanebus.bus.errors import BusError
from lanebus.bus.messages.assistant import AssistantMessage, StopReason
from lanebus.bus.messages.content import (
    Block,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    UnknownBlock,
    media_block,
)
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.media import MediaRef
from lanebus.bus.messages.message import SystemMessage as Instruction
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.bus.messages.usage import Usage
from lanebus.handlers.cut_text import cut_text

__all__ = ("lane_message",)

_STOP_REASONS: Final[Mapping[str, StopReason]] = {
    "length": "length",
    "max_tokens": "length",
    "MAX_TOKENS": "length",
    "tool_calls": "toolUse",
    "tool_use": "toolUse",
    "content_filter": "guardRail",
    "refusal": "guardRail",
}


def lane_message(message: BaseMessage, *, limit_bytes: int) -> LlmMessage:
    """Return a message of the LLM lane. Never fails: content that cannot be shown is left out.

    Args:
        message: the message of the graph's state.
        limit_bytes: of a message with more JSON, without its media, only the start of its text is shown.
    """
    try:
        shown = _with_content(
            message, tuple(map(_block, cast("list[Mapping[str, JsonValue]]", message.content_blocks)))
        )
        media = sum(len(each.data or "") for block in shown.content if (each := getattr(block, "media", None)))
        if len(shown.to_json_bytes()) - media <= limit_bytes:
            return shown
    except Exception:  # noqa: BLE001, S110  # a checkpoint must not fail because its message cannot be shown
        pass
    text = str(message.text).encode("utf-8", "replace").decode()
    return _with_content(message, (TextBlock(text=cut_text(text, limit_bytes // 8)),))


def _with_content(message: BaseMessage, content: tuple[Block, ...]) -> LlmMessage:
    match message:
        case AIMessage():
            said = cast("Mapping[str, object]", message.response_metadata)
            reason = _text(said, "finish_reason", "stop_reason")
            has_calls = any(isinstance(block, ToolCallBlock) for block in content)
            stop: StopReason = _STOP_REASONS.get(reason or "") or ("toolUse" if has_calls else "stop")
            return AssistantMessage(
                content=content,
                id=message.id,
                name=message.name,
                model=_text(said, "model_name", "model"),
                provider=_text(said, "model_provider", "ls_provider"),
                usage=_usage(message),
                stop_reason=stop,
                raw_stop_reason=reason,
            )
        case ToolMessage():
            return ToolResultMessage(
                content=content,
                id=message.id,
                tool_call_id=message.tool_call_id,
                tool_name=message.name,
                is_error=message.status == "error",
            )
        case SystemMessage():
            return Instruction(content=content, id=message.id, name=message.name)
        case _:
            return UserMessage(content=content, id=message.id, name=message.name)


def _block(block: Mapping[str, JsonValue]) -> Block:
    """Return one block of content. A block of an unknown type, or with wrong fields, is kept as it is."""
    try:
        match block:
            case {"type": "text" | "text-plain", "text": str(text)}:
                return TextBlock(text=text)
            case {"type": "reasoning"}:
                return ThinkingBlock(text=_text(block, "reasoning") or "")
            case {"type": "tool_call", "name": str(name), "args": arguments}:
                return ToolCallBlock(id=_text(block, "id") or "", name=name, arguments=arguments)
            case {"type": "invalid_tool_call"}:
                name, raw = _text(block, "name") or "", _text(block, "args")
                return ToolCallBlock(id=_text(block, "id") or "", name=name, arguments_raw=raw)
            case {"type": "image" | "audio" | "video" | "file"}:
                return media_block(_media(block))
            case _:
                return UnknownBlock(raw=dict(block))
    except BusError:
        return UnknownBlock(raw={"type": block.get("type")})


def _media(block: Mapping[str, JsonValue]) -> MediaRef:
    mime_type = _text(block, "mime_type") or f"{block['type']}/*"
    if data := _text(block, "base64"):
        return MediaRef(kind="data", data=data, mime_type=mime_type)
    if url := _text(block, "url"):
        return MediaRef.from_url(url, mime_type=mime_type)
    return MediaRef(kind="file_id", file_id=_text(block, "file_id"), mime_type=mime_type)


def _usage(message: AIMessage) -> Usage | None:
    """Return the usage that the model reported. LangChain counts cached tokens as part of the input."""
    said = message.usage_metadata
    if said is None:
        return None
    cached = said.get("input_token_details", {})
    read, written = cached.get("cache_read") or 0, cached.get("cache_creation") or 0
    return Usage(
        input=max(said["input_tokens"] - read - written, 0),
        output=said["output_tokens"],
        reasoning=said.get("output_token_details", {}).get("reasoning") or 0,
        cache_read=read,
        cache_write=written,
        total_tokens=said["total_tokens"],
    )


def _text(fields: Mapping[str, object], *names: str) -> str | None:
    """Return the first of the fields that is a text; None if none is."""
    return next((value for name in names if isinstance(value := fields.get(name), str)), None)
