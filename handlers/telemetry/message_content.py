"""Message content as JSON, in the form of the GenAI conventions. It is recorded only if a program asks for it. Pure.

Media are named by their kind and left out.
"""

import json
from collections.abc import Iterable, Sequence

from pydantic import JsonValue

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import Block, TextBlock, ThinkingBlock, ToolCallBlock
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.message import DeveloperMessage, SystemMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.bus.whole_text import whole_text
from lanebus.handlers.providers.common.tools import ToolSpec

__all__ = ("definitions_json", "input_json", "output_json", "system_json", "text_json")

_SYSTEM = (SystemMessage, DeveloperMessage)


def system_json(messages: Iterable[LlmMessage]) -> str | None:
    """Return the content of all system and developer messages as one JSON list; None if there are none."""
    parts = [part for message in messages if isinstance(message, _SYSTEM) for part in _parts(message.content)]
    return _json(parts) if parts else None


def input_json(messages: Iterable[LlmMessage]) -> str | None:
    """Return all messages except system and developer messages as one JSON list; None if there are none."""
    found: list[JsonValue] = [_message(message) for message in messages if not isinstance(message, _SYSTEM)]
    return _json(found) if found else None


def output_json(message: AssistantMessage) -> str:
    """Return a model's answer as JSON: a list that contains only this message."""
    return _json([_message(message)])


def definitions_json(tools: Sequence[ToolSpec]) -> str | None:
    """Return the definitions of tools as JSON; None if there are none."""
    found: list[JsonValue] = [
        {"name": tool.name, "description": tool.description, "parameters": tool.schema, "type": "function"}
        for tool in tools
    ]
    return _json(found) if found else None


def text_json(value: JsonValue) -> str:
    """Return a text as it is, and any other value as JSON."""
    return value if isinstance(value, str) else _json(value)


def _message(message: LlmMessage) -> JsonValue:
    if isinstance(message, ToolResultMessage):
        response: JsonValue = {
            "response": message.text_with_results(),
            "id": message.tool_call_id,
            "type": "tool_call_response",
        }
        return {"role": "tool", "parts": [response]}
    role = "assistant" if isinstance(message, AssistantMessage) else "user"
    return {"role": role, "parts": _parts(message.content)}


def _parts(blocks: Iterable[Block]) -> list[JsonValue]:
    return [_part(block) for block in blocks]


def _part(block: Block) -> JsonValue:
    match block:
        case TextBlock(text=text):
            return {"content": text, "type": "text"}
        case ThinkingBlock(text=text):
            return {"content": text, "type": "reasoning"}
        case ToolCallBlock(arguments=arguments, name=name, id=call_id):
            return {"arguments": arguments, "name": name, "id": call_id, "type": "tool_call"}
        case _:
            return {"type": block.type}


def _json(value: JsonValue) -> str:
    return whole_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
