"""Read the `coding-agent` system's messages as lanebus messages."""

from pydantic import TypeAdapter

from lanebus.bus.errors import UnknownRole
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import Block, Blocks, TextBlock
from lanebus.bus.messages.context_entry import BranchSummary, Compaction
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.message import SystemMessage, UserMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.handlers.codecs.coding_agent.answers import stop_of, usage_of
from lanebus.handlers.codecs.coding_agent.contents import read_contents, read_result
from lanebus.handlers.codecs.json_object import JsonObject
from lanebus.handlers.json_fields import Object

__all__ = ("read_message",)

_blocks: TypeAdapter[tuple[Block, ...]] = TypeAdapter(Blocks)


def read_message(source: JsonObject, provider: str | None, model: str | None) -> tuple[Publishable, ...]:
    """Read one message of the `coding-agent` system.

    Args:
        source: the message.
        provider: provider of answers that do not name their provider; None leaves it unknown.
        model: model of answers that do not name their model; None leaves it unknown.

    Raises:
        UnknownRole: the message has a role that the format does not have.
        DecodeError: a field is missing or has the wrong form. The error names the path to it.
    """
    role = source.required_text("role")
    own_id, timestamp = source.text("id"), source.milliseconds("timestamp")
    match role:
        case "system":
            return (SystemMessage(content=read_contents(source), id=own_id, timestamp=timestamp),)
        case "user":
            return (UserMessage(content=read_contents(source), id=own_id, timestamp=timestamp),)
        case "assistant":
            return (_read_answer(source, provider, model),)
        case "tool":
            return _read_results(source)
        case "custom":
            return (_read_custom(source),)
        case "branch_summary":
            return (BranchSummary(summary=source.text("summary") or "", id=own_id, timestamp=timestamp),)
        case "compaction_summary":
            summary, tokens = source.text("summary") or "", source.count("tokens_before")
            return (Compaction(summary=summary, tokens_before=tokens, id=own_id, timestamp=timestamp),)
        case _:
            raise UnknownRole(role)


def _read_answer(source: JsonObject, provider: str | None, model: str | None) -> AssistantMessage:
    reason, raw = stop_of(source)
    return AssistantMessage(
        content=read_contents(source),
        id=source.text("id"),
        timestamp=source.milliseconds("timestamp"),
        stop_reason=reason,
        raw_stop_reason=raw,
        usage=usage_of(source),
        error_message=source.text("error") or None,
        provider=source.text("provider") or provider,
        model=source.text("model") or model,
    )


def _read_results(source: JsonObject) -> tuple[Publishable, ...]:
    contents = [JsonObject.of(item, path) for item, path in source.items("contents")]
    for content in contents:
        if content.required_text("type") != "tool_result":
            raise content.fault("type", "a tool message holds results")
    if not contents:
        raise source.fault("contents", "a tool message holds at least one result")
    results = [read_result(content) for content in contents]
    own_id = source.text("id")
    messages = ToolResultMessage.from_results(results, batch_id=own_id or source.digest())
    timestamp = source.milliseconds("timestamp")
    return tuple(
        message.model_copy(update={"id": own_id if number == 0 else None, "timestamp": timestamp})
        for number, message in enumerate(messages)
    )


def _read_custom(source: JsonObject) -> ExtensionMessage:
    contents = source.fields.get("contents")
    if isinstance(contents, str):
        blocks: tuple[Block, ...] = (TextBlock(text=contents),)
    else:
        blocks = read_contents(source)
    data: Object = {
        "customType": source.text("custom_type") or "",
        "contents": _blocks.dump_python(blocks, mode="json", by_alias=True, exclude_none=True),
        "display": source.flag("display"),
        "details": source.value("details"),
        "id": source.text("id"),
        "timestamp": source.milliseconds("timestamp"),
    }
    return ExtensionMessage.of("custom", {name: item for name, item in data.items() if item is not None})
