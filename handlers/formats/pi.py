"""Session files of the coding agent pi, versions 1 to 3: one JSON object per line, the session's header first.

In version 1 entries form a list. From version 2 on, entries have an `id` and a `parentId` and form a tree. Nothing of a
line is lost: fields without a counterpart in lanebus go into `metadata`, and lines of unknown types go into the
extension lane as `import.<type>`. Source: pi's session manager.
"""

import json
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import get_args

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, UnknownRole
from lanebus.bus.messages import (
    BranchSummary,
    Compaction,
    ExtensionMessage,
    Label,
    LlmMessage,
    ModelChange,
    Publishable,
    StopReason,
    ThinkingLevelChange,
    read_llm,
)
from lanebus.handlers.context import Object, made
from lanebus.handlers.formats.transcript import Format, TranscriptEntry, Unplaced, milliseconds

# Convert messages, blocks and usage of pi's session files.

SOURCE = "pi-session"
"""`Cost.source` of an imported cost, which pi computed and wrote to the file."""

CUSTOM_ROLES = frozenset({"custom", "hookMessage"})
"""roles of messages of pi's extensions; `hookMessage` is the older name"""

_MESSAGE_FIELDS: dict[str, dict[str, str]] = {
    "user": {},
    "assistant": {
        "model": "model",
        "provider": "provider",
        "errorMessage": "error_message",
        "responseId": "responseId",
    },
    "toolResult": {"toolCallId": "toolCallId", "toolName": "toolName", "isError": "isError"},
}
_USAGE_FIELDS = {
    "input": "input",
    "output": "output",
    "reasoning": "reasoning",
    "cacheRead": "cache_read",
    "cacheWrite": "cache_write",
    "totalTokens": "total_tokens",
}
_COST_FIELDS = {
    "input": "input",
    "output": "output",
    "cacheRead": "cache_read",
    "cacheWrite": "cache_write",
    "total": "total",
}
_BLOCK_FIELDS: dict[str, dict[str, str]] = {
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
    elif role in _MESSAGE_FIELDS:
        fields = _message_fields(message, role, metadata)
    else:
        raise UnknownRole(role)
    fields["timestamp"] = written if own is None else own
    fields["id"] = entry_id if isinstance(entry_id, str) else None
    fields["metadata"] = metadata or None
    try:
        return _validated({key: item for key, item in fields.items() if item is not None})
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
    return _validated({key: item for key, item in fields.items() if item is not None})


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


def _message_fields(message: Object, role: str, metadata: Object) -> Object:
    """Return the message's fields with lanebus's names. Fields without a counterpart are added to `metadata`."""
    fields: Object = {"role": role}
    blocks: Object = {}
    for key, item in message.items():
        if key in _MESSAGE_FIELDS[role]:
            fields[_MESSAGE_FIELDS[role][key]] = item
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
    if not isinstance(kind, str) or kind not in _BLOCK_FIELDS:
        return {"type": "unknown", "raw": block}
    names = _BLOCK_FIELDS[kind]
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
    result: Object = {ours: usage[theirs] for theirs, ours in _USAGE_FIELDS.items() if usage.get(theirs) is not None}
    if isinstance(cost := usage.get("cost"), dict):
        result["cost"] = {
            **{ours: _dollars(cost[theirs], theirs) for theirs, ours in _COST_FIELDS.items() if theirs in cost},
            "source": SOURCE,
        }
    if any(key not in _USAGE_FIELDS and key != "cost" for key in usage):
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


def _validated(fields: Object) -> LlmMessage:
    # The bus's own reader validates the message, with the same error texts as for a publish.
    message = read_llm(json.dumps(fields, ensure_ascii=False))
    if not isinstance(message, LlmMessage):
        raise UnknownRole(str(fields["role"]))
    return message


_KNOWN_LINES = frozenset({"message", "compaction", "model_change", "thinking_level_change", "branch_summary"})


def _recognizes(line: JsonValue) -> bool:
    """Whether a line is a header or an entry. An entry is enough, so a file with a damaged header is recognised."""
    if not isinstance(line, dict):
        return False
    kind = line.get("type")
    if kind == "session":
        return isinstance(line.get("id"), str) and "timestamp" in line
    if "parent_id" in line:  # an entry of the `coding-agent` format, which uses snake_case
        return False
    if not isinstance(kind, str) or kind not in _KNOWN_LINES:
        return False
    return "timestamp" in line and (kind != "message" or isinstance(line.get("message"), dict))


def _read(line: JsonValue, *, custom_to_llm: bool = False) -> TranscriptEntry:
    if not isinstance(line, dict):
        raise DecodeError("", "a line is a JSON object")
    kind = line.get("type")
    if not isinstance(kind, str):
        raise DecodeError("type", "a line needs a type")
    if kind == "session":
        return TranscriptEntry(message=ExtensionMessage.of("import.header", {"format": "pi", "header": line}))
    message = _custom_as_user(line) if custom_to_llm and _is_custom(line) else _READERS.get(kind, _keep)(line)
    entry_id, parent = line.get("id"), line.get("parentId")
    if not isinstance(entry_id, str) or "parentId" not in line:
        return TranscriptEntry(message=message)
    if not isinstance(parent, str | None):
        raise DecodeError("parentId", "wants an id or null")
    return TranscriptEntry(message=message, id=entry_id, is_in_tree=True, parent=parent)


def _keep(line: Object) -> ExtensionMessage:
    return ExtensionMessage.of(f"import.{line['type']}", line)


def _message(line: Object) -> Publishable:
    message = line.get("message")
    if not isinstance(message, dict):
        raise DecodeError("message", "wants an object")
    rest = {key: item for key, item in line.items() if key not in {"type", "id", "parentId", "timestamp", "message"}}
    written = milliseconds(line.get("timestamp"), "timestamp")
    return read_pi_message(message, entry_id=line.get("id"), written=written, rest=rest)


def _is_custom(line: Object) -> bool:
    said = line.get("message")
    return line.get("type") == "custom_message" or (isinstance(said, dict) and said.get("role") in tuple(CUSTOM_ROLES))


def _custom_as_user(line: Object) -> Publishable:
    said = line.get("message")
    rest = {key: item for key, item in line.items() if key not in {"type", "id", "parentId", "timestamp", "message"}}
    custom = said if isinstance(said, dict) else {**rest, "timestamp": line.get("timestamp")}
    return read_custom_as_user(custom, entry_id=line.get("id"), rest=rest if isinstance(said, dict) else {})


def _compaction(line: Object) -> Unplaced:
    # Version 1 counts entries, header included; later versions name the entry.
    key = "firstKeptEntryId" if "firstKeptEntryId" in line else "firstKeptEntryIndex"
    names = line.get(key)
    if names is not None and (isinstance(names, bool) or not isinstance(names, str | int)):
        raise DecodeError(key, "wants an id or a count of entries")
    plain = made(Compaction, _context(line, {"summary": "summary", "tokensBefore": "tokensBefore"}, key))

    def place(position: int | None) -> Publishable:
        if position is None and names is not None:  # the entry is missing; keep its id
            return plain.model_copy(update={"metadata": {**(plain.metadata or {}), key: names}})
        return plain.model_copy(update={"first_kept": position})

    return Unplaced(kind="kept", names=names, place=place)


def _branch_summary(line: Object) -> Unplaced:
    # `fromId` is the start of the new branch, which the tree has too. The summary is about the branch that was left.
    # The current leaf is the last entry of the branch that was left.
    plain = made(BranchSummary, _context(line, {"summary": "summary"}))
    return Unplaced(kind="leaf", place=lambda position: plain.model_copy(update={"branch": position}))


def _label(line: Object) -> Unplaced:
    target = line.get("targetId")
    if not isinstance(target, str):
        raise DecodeError("targetId", "wants an id")
    fields = _context(line, {"label": "label"}, "targetId")
    made(Label, {**fields, "target": 1})

    def place(position: int | None) -> Publishable:
        return _keep(line) if position is None else made(Label, {**fields, "target": position})

    return Unplaced(kind="entry", names=target, place=place)


def _model_change(line: Object) -> ModelChange:
    return made(ModelChange, _context(line, {"provider": "provider", "modelId": "model"}))


def _thinking_level_change(line: Object) -> ThinkingLevelChange:
    return made(ThinkingLevelChange, _context(line, {"thinkingLevel": "level"}))


_READERS: dict[str, Callable[[Object], Publishable | Unplaced]] = {
    "message": _message,
    "custom_message": read_custom,
    "compaction": _compaction,
    "branch_summary": _branch_summary,
    "label": _label,
    "model_change": _model_change,
    "thinking_level_change": _thinking_level_change,
}


def _context(line: Object, names: dict[str, str], *consumed: str) -> Object:
    """Return the fields of a context entry, renamed by `names`. Other fields go into `metadata`."""
    fields: Object = {ours: line.get(theirs) for theirs, ours in names.items()}
    known = {"type", "id", "parentId", "timestamp", *names, *consumed}
    rest = {key: item for key, item in line.items() if key not in known}
    return {
        **fields,
        "id": line.get("id"),
        "timestamp": milliseconds(line.get("timestamp"), "timestamp"),
        "metadata": rest or None,
    }


def pi(*, custom_to_llm: bool = False) -> Format:
    """Return the format of pi's session files.

    Args:
        custom_to_llm: True reads messages of pi's extensions as user messages, which is how pi sends them to the model.
            False reads these messages into the extension lane, where no model sees them.
    """
    return Format(
        name="pi",
        sign='a JSON object with "type":"session", "id" and "timestamp", or another entry of pi\'s session files',
        recognizes=_recognizes,
        read=partial(_read, custom_to_llm=custom_to_llm),
        tree=("id", "parentId"),
    )


PI = pi()
