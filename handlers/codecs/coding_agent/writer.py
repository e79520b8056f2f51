"""Write lanebus messages as the `coding-agent` system's messages."""

import json
from collections.abc import Sequence

from pydantic import JsonValue, TypeAdapter, ValidationError

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import Block, Blocks
from lanebus.bus.messages.context_entry import BranchSummary, Compaction
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.message import DeveloperMessage, SystemMessage, UserMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.handlers.codecs.coding_agent.answers import written_stop, written_usage
from lanebus.handlers.codecs.coding_agent.contents import same_blocks, written_contents, written_result
from lanebus.handlers.json_fields import Object

__all__ = ("same_message", "written_message")

_FAR = 10**15  # milliseconds; the `coding-agent` system accepts no later moment

_blocks: TypeAdapter[tuple[Block, ...]] = TypeAdapter(Blocks)


def written_message(group: Sequence[Publishable]) -> JsonValue | None:
    """Return the `coding-agent` system's message for one lanebus message, or for the tool results of one batch.

    Return None if the `coding-agent` format has no such message.
    """
    match group[0]:
        case ToolResultMessage() as first:
            results = [message for message in group if isinstance(message, ToolResultMessage)]
            return {
                "role": "tool",
                "contents": [written_result(result.as_block()) for result in results],
                **_stamp(first),
            }
        case AssistantMessage() as answer:
            return _written_answer(answer)
        case SystemMessage() | DeveloperMessage() as message:
            return {"role": "system", "contents": written_contents(message.content), **_stamp(message)}
        case UserMessage() as message:
            return {"role": "user", "contents": written_contents(message.content), **_stamp(message)}
        case BranchSummary() as entry:
            return {"role": "branch_summary", "summary": entry.summary, **_stamp(entry)}
        case Compaction() as entry:
            tokens: Object = {} if entry.tokens_before is None else {"tokens_before": entry.tokens_before}
            return {"role": "compaction_summary", "summary": entry.summary, **tokens, **_stamp(entry)}
        case ExtensionMessage(kind="custom", data=dict() as data):
            return _written_custom(data)
        case _:
            return None


def _written_answer(answer: AssistantMessage) -> Object:
    usage: Object = {} if answer.usage is None else {"usage": written_usage(answer.usage)}
    return {
        "role": "assistant",
        "contents": written_contents(answer.content),
        **_stamp(answer),
        **usage,
        "stop_reason": written_stop(answer.stop_reason),
        "error": answer.error_message or "",
    }


def _written_custom(data: Object) -> JsonValue | None:
    if not isinstance(data.get("customType"), str):
        return None
    try:
        blocks = _blocks.validate_json(json.dumps(data.get("contents")))
    except ValidationError:
        return None
    rest: Object = {name: data[name] for name in ("display", "details", "id") if data.get(name) is not None}
    contents = written_contents(blocks)
    return {
        "role": "custom",
        "custom_type": data["customType"],
        "contents": contents,
        **rest,
        **_seconds(data.get("timestamp")),
    }


def _stamp(message: LlmMessage | BranchSummary | Compaction) -> Object:
    """Return the message's id and timestamp. The `coding-agent` system generates a missing id or timestamp when
    reading."""
    own_id: Object = {} if message.id is None else {"id": message.id}
    return {**own_id, **_seconds(message.timestamp)}


def _seconds(timestamp: JsonValue) -> Object:
    if not isinstance(timestamp, int) or isinstance(timestamp, bool) or abs(timestamp) >= _FAR:
        return {}
    return {"timestamp": timestamp / 1000}


def same_message(message: Publishable) -> Publishable:
    """Return the message with empty fields as None. To the `coding-agent` system, both mean the same."""
    if not isinstance(message, LlmMessage):
        return message
    same = message.model_copy(update={"content": same_blocks(message.content), "metadata": message.metadata or None})
    match same:
        case ToolResultMessage():
            return same.model_copy(
                update={"terminate": same.terminate or None, "terminate_message": same.terminate_message or None}
            )
        case AssistantMessage():
            return same.model_copy(update={"error_message": same.error_message or None})
        case _:
            return same
