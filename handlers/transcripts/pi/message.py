"""Convert messages, blocks and usage of pi's session files."""

import json
from decimal import Decimal, InvalidOperation
from typing import get_args

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, UnknownRole
from lanebus.bus.messages.assistant import StopReason
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_reader import read_llm
from lanebus.bus.messages.llm import LlmMessage
from lanebus.handlers.json_fields import Object
from lanebus.handlers.transcripts.timestamp import milliseconds

__all__ = ("CUSTOM_ROLES", "bash_text", "read_custom", "read_custom_as_user", "read_pi_message")

SOURCE = "pi-session"
"""`Cost.source` of an imported cost, which pi computed and wrote to the file."""

CUSTOM_ROLES = frozenset({"custom", "hookMessage"})
"""roles of messages of pi's extensions; `hookMessage` is the older name"""

_NAMES: dict[str, dict[str, str]] = {
    "user": {},
    "assistant": {
        "model": "model",
        "provider": "provider",
        "errorMessage": "error_message",
        "responseId": "responseId",
    },
    "toolResult": {"toolCallId": "toolCallId", "toolName": "toolName", "isError": "isError"},
}
_USAGE = {
    "input": "input",
    "output": "output",
    "reasoning": "reasoning",
    "cacheRead": "cache_read",
    "cacheWrite": "cache_write",
    "totalTokens": "total_tokens",
}
_COST = {
    "input": "input",
    "output": "output",
    "cacheRead": "cache_read",
    "cacheWrite": "cache_write",
    "total": "total",
}
_BLOCKS: dict[str, dict[str, str]] = {
    "text": {"text": "text"},
    "thinking": {"thinking": "thinking", "thinkingSignature": "signature"},
    "toolCall": {"id": "id", "name": "name", "arguments": "arguments", "thoughtSignature": "signature"},
    "image": {"data": "data", "mimeType": "mimeType"},
}


def read_pi_message(
    message: Object, *, entry_id: JsonValue, written: int | None, rest: Object
) -> LlmMessage | ExtensionMessage:
    """Convert the message of an entry.

    Args:
        message: the message.
        entry_id: the entry's id; None in version 1.
        written: the entry's timestamp in milliseconds UTC. For an answer, it is later than the message's own timestamp.
        rest: the other fields of the entry, which go into the metadata.

    Raises:
        UnknownRole: the role is unknown.
        DecodeError: the message is invalid for its role.
    """
    role = message.get("role")
    if not isinstance(role, str):
        raise DecodeError("message.role", "a message needs a role")
    if role in CUSTOM_ROLES:
        return read_custom({**message, **({"id": entry_id} if entry_id else {}), **rest})
    if role == "bashExecution" and message.get("excludeFromContext"):
        return ExtensionMessage.of(
            "import.bashExecution", {**message, **({"id": entry_id} if entry_id else {}), **rest}
        )
    own = milliseconds(message.get("timestamp"), "message.timestamp")
    metadata: Object = dict(rest)
    if own is not None and written is not None and own != written:
        metadata["written"] = written
    if role == "bashExecution":
        # The text contains the whole output. The other fields are kept, because the text does not separate them.
        facts: Object = {key: item for key, item in message.items() if key not in {"role", "timestamp", "output"}}
        metadata["bashExecution"] = facts
        fields: Object = {"role": "user", "content": [{"type": "text", "text": bash_text(message)}]}
    elif role in _NAMES:
        fields = _fields(message, role, metadata)
    else:
        raise UnknownRole(role)
    fields["timestamp"] = written if own is None else own
    fields["id"] = entry_id if isinstance(entry_id, str) else None
    fields["metadata"] = metadata or None
    try:
        return _read({key: item for key, item in fields.items() if item is not None})
    except DecodeError as error:
        raise DecodeError(f"message.{error.path}" if error.path else "message", error.reason) from None


def read_custom(line: Object) -> ExtensionMessage:
    """Convert a message of a pi extension to a message of lanebus's extension lane.

    pi sends such a message to the model as a user message. In the extension lane, no model sees it.
    """
    content = line.get("content")
    contents: JsonValue = [{"type": "text", "text": content}] if isinstance(content, str) else content
    rest = {key: item for key, item in line.items() if key not in {"type", "role", "parentId", "content"}}
    return ExtensionMessage.of("custom", {**rest, "contents": contents})


def read_custom_as_user(message: Object, *, entry_id: JsonValue, rest: Object) -> LlmMessage:
    """Convert a message of a pi extension to a user message, as pi sends it to the model.

    Fields other than content and timestamp go into the metadata.

    Raises:
        DecodeError: the content is neither text nor blocks.
    """
    extras: Object = {}
    facts: Object = {key: item for key, item in message.items() if key not in {"role", "content", "timestamp"}}
    fields: Object = {
        "role": "user",
        "content": _content(message.get("content"), extras),
        "timestamp": milliseconds(message.get("timestamp"), "timestamp"),
        "id": entry_id if isinstance(entry_id, str) else None,
        "metadata": {**rest, "custom": facts, **({"blocks": extras} if extras else {})},
    }
    return _read({key: item for key, item in fields.items() if item is not None})


def bash_text(message: Object) -> str:
    """Return the text that pi sends to the model for a command that the user ran. Source: pi, `bashExecutionToText`."""
    command, output, code = message.get("command"), message.get("output"), message.get("exitCode")
    if not isinstance(command, str) or not isinstance(output, str | None):
        raise DecodeError("message.command", "a bash execution needs its command and output as text")
    text = f"Ran `{command}`\n" + (f"```\n{output}\n```" if output else "(no output)")
    if message.get("cancelled"):
        text += "\n\n(command cancelled)"
    elif code is not None and code != 0:
        text += f"\n\nCommand exited with code {code}"
    if message.get("truncated") and message.get("fullOutputPath"):
        text += f"\n\n[Output truncated. Full output: {message['fullOutputPath']}]"
    return text


def _fields(message: Object, role: str, metadata: Object) -> Object:
    """Return the message's fields with lanebus's names. Fields without a counterpart are added to `metadata`."""
    fields: Object = {"role": role}
    blocks: Object = {}
    for key, item in message.items():
        if key in _NAMES[role]:
            fields[_NAMES[role][key]] = item
        elif key == "content":
            fields["content"] = _content(item, blocks)
        elif key == "usage" and role == "assistant":
            fields["usage"] = None if item is None else _usage(item)
        elif key == "stopReason" and role == "assistant":
            fields["stopReason"] = item if item in get_args(StopReason) else "stop"
            if item != fields["stopReason"]:
                fields["rawStopReason"] = item
        elif key not in {"role", "timestamp"}:
            metadata[key] = item
    if blocks:
        metadata["blocks"] = blocks
    return fields


def _content(content: JsonValue, extras: Object) -> JsonValue:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise DecodeError("message.content", "wants text or a list of blocks")
    return [_block(block, str(index), extras) for index, block in enumerate(content)]


def _block(block: JsonValue, index: str, extras: Object) -> JsonValue:
    """Return the block with lanebus's field names. Fields without a counterpart go into `extras`, under `index`."""
    if not isinstance(block, dict):
        raise DecodeError(f"message.content.{index}", "wants an object")
    kind = block.get("type")
    if kind == "thinking" and block.get("redacted") and isinstance(block.get("thinkingSignature"), str):
        extras[index] = {key: item for key, item in block.items() if key not in {"type", "thinkingSignature"}}
        return {"type": "redacted_thinking", "data": block["thinkingSignature"]}
    if not isinstance(kind, str) or kind not in _BLOCKS:
        return {"type": "unknown", "raw": block}
    names = _BLOCKS[kind]
    result: Object = {"type": kind, **{names[key]: item for key, item in block.items() if key in names}}
    rest: Object = {key: item for key, item in block.items() if key not in names and key != "type"}
    if rest and kind == "toolCall":
        result["metadata"] = rest
    elif rest:
        extras[index] = rest
    return result


def _usage(usage: JsonValue) -> JsonValue:
    if not isinstance(usage, dict):
        raise DecodeError("message.usage", "wants an object")
    result: Object = {ours: usage[theirs] for theirs, ours in _USAGE.items() if usage.get(theirs) is not None}
    if isinstance(cost := usage.get("cost"), dict):
        result["cost"] = {
            **{ours: _dollars(cost[theirs], theirs) for theirs, ours in _COST.items() if theirs in cost},
            "source": SOURCE,
        }
    if any(key not in _USAGE and key != "cost" for key in usage):
        result["raw"] = usage
    return result


def _dollars(amount: JsonValue, name: str) -> str:
    """Return an amount as decimal text. Twelve decimals are finer than any price, and hide float rounding errors."""
    if isinstance(amount, bool) or not isinstance(amount, int | float):
        raise DecodeError(f"message.usage.cost.{name}", "wants a number")
    try:
        rounded = round(Decimal(repr(amount)), 12)
    except InvalidOperation:
        raise DecodeError(f"message.usage.cost.{name}", "too large, or not a finite number") from None
    return format(rounded.normalize(), "f")


def _read(fields: Object) -> LlmMessage:
    # The bus's own reader validates the message, with the same error texts as for a publish.
    message = read_llm(json.dumps(fields, ensure_ascii=False))
    if not isinstance(message, LlmMessage):
        raise UnknownRole(str(fields["role"]))
    return message
