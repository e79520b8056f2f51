"""Convert the messages of Claude Code's session files."""

import base64
import json
from collections.abc import Sequence

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.json_reader import LlmLaneMessage, read_llm
from lanebus.bus.messages.llm import LlmMessage
from lanebus.handlers.json_fields import Object
from lanebus.handlers.providers.anthropic import from_anthropic
from lanebus.handlers.transcripts.timestamp import milliseconds

__all__ = ("blocks_of", "line_metadata", "read_answer", "read_user", "text_of")

SYNTHETIC = "<synthetic>"
"""the model name of answers that Claude Code itself wrote, without a model"""

_TREE = frozenset({"type", "uuid", "parentUuid", "timestamp", "message"})
_RESPONSE = frozenset({"id", "type", "role", "model", "content", "usage", "stop_reason"})
_REQUEST = frozenset({"role", "content"})


def read_answer(line: Object, message: Object, parent: str | None, more: Sequence[JsonValue]) -> AssistantMessage:
    """Convert a model's answer, with its usage.

    Args:
        line: the first line of the answer.
        message: the line's message, with the content of all lines of the answer.
        parent: uuid of the entry that the answer follows.
        more: the other lines of the answer, as in the file.

    Raises:
        DecodeError: the message is not an answer of the Messages API.
    """
    blocks = blocks_of(message.get("content"))
    for index, block in enumerate(blocks):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise DecodeError(f"message.content.{index}", "a block is an object with a type")
    usage = message.get("usage")
    is_synthetic = message.get("model") == SYNTHETIC
    answer = from_anthropic(
        {
            **message,
            "type": "message",
            "content": blocks,
            "usage": usage if isinstance(usage, dict) and not is_synthetic else {},
        }
    )
    metadata = line_metadata(line, parent)
    metadata |= _rest(message, _RESPONSE - {"usage"} if is_synthetic else _RESPONSE)
    if is_synthetic:
        metadata["model"] = SYNTHETIC
    if more:
        metadata["lines"] = [_difference(each, line, message) for each in more if isinstance(each, dict)]
    answer = answer.model_copy(
        update={
            "id": _uuid(line),
            "timestamp": milliseconds(line.get("timestamp"), "timestamp"),
            "metadata": {**(answer.metadata or {}), **metadata} or None,
        }
    )
    if is_synthetic:
        answer = answer.model_copy(update={"provider": None, "model": None})
    if line.get("isApiErrorMessage"):
        return answer.model_copy(update={"stop_reason": "error", "error_message": answer.text_content()})
    if answer.raw_stop_reason is None and any(True for _ in answer.tool_calls()):
        # A line that was written during streaming has no stop reason yet.
        return answer.model_copy(update={"stop_reason": "toolUse"})
    return answer


def read_user(line: Object, message: Object, parent: str | None) -> list[LlmLaneMessage]:
    """Convert a user message. Tool results in the message come first, as one message each.

    Args:
        line: the line.
        message: the line's message.
        parent: uuid of the entry that the line follows.

    Raises:
        DecodeError: the message is invalid.
    """
    metadata = line_metadata(line, parent) | _rest(message, _REQUEST)
    extras: Object = {}
    blocks = blocks_of(message.get("content"))
    results = [block for block in blocks if isinstance(block, dict) and block.get("type") == "tool_result"]
    said = [_block(block, str(index), extras) for index, block in enumerate(blocks) if block not in results]
    if extras:
        metadata["blocks"] = extras
    fields: list[Object] = [_result(block) for block in results]
    if said or not results:
        fields.append({"role": "user", "content": said})
    fields[0] |= {"id": _uuid(line), "metadata": {**_metadata_of(fields[0]), **metadata} or None}
    written = milliseconds(line.get("timestamp"), "timestamp")
    return [_read({**each, "timestamp": written}) for each in fields]


def line_metadata(line: Object, parent: str | None) -> Object:
    """Return the fields of a line for which the message has no field. Include `parentUuid` if it differs from
    `parent`."""
    rest = {key: item for key, item in line.items() if key not in _TREE}
    own_parent = line.get("parentUuid")
    return {**rest, "parentUuid": own_parent} if own_parent is not None and own_parent != parent else rest


def blocks_of(content: JsonValue) -> list[JsonValue]:
    """Return a message's content as blocks. Text becomes one block.

    Raises:
        DecodeError: the content is neither text nor a list.
    """
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise DecodeError("message.content", "wants text or a list of blocks")
    return content


def text_of(content: JsonValue) -> str:
    """Return all text of a message's content."""
    texts = [block.get("text") for block in blocks_of(content) if isinstance(block, dict)]
    return "".join(text for text in texts if isinstance(text, str))


def _result(block: Object) -> Object:
    """Convert a tool result. Fields of the result and its blocks without a counterpart go into the metadata."""
    extras: Object = {}
    content = [_block(each, str(index), extras) for index, each in enumerate(blocks_of(block.get("content")))]
    known = {"type", "tool_use_id", "name", "content", "is_error"}
    metadata: Object = {key: item for key, item in block.items() if key not in known}
    if extras:
        metadata["resultBlocks"] = extras
    return {
        "role": "toolResult",
        "toolCallId": block.get("tool_use_id"),
        "toolName": block.get("name"),
        "content": content,
        "isError": block.get("is_error") or False,
        "metadata": metadata or None,
    }


def _block(block: JsonValue, index: str, extras: Object) -> JsonValue:
    """Return the block with lanebus's field names. Fields without a counterpart go into `extras`, under `index`."""
    if not isinstance(block, dict):
        raise DecodeError(f"message.content.{index}", "wants an object")
    match block:
        case {"type": "text", "text": str(text)}:
            result: Object = {"type": "text", "text": text}
            known = {"type", "text"}
        case {"type": "image" | "document" as kind, "source": dict(source)} if media := _media(source):
            title = {"filename": block["title"]} if kind == "document" and block.get("title") else {}
            result = {"type": kind, "media": {**media, **title}}
            known = {"type", "source", "title"}
        case _:
            return {"type": "unknown", "raw": block}
    if rest := {key: item for key, item in block.items() if key not in known}:
        extras[index] = rest
    return result


def _media(source: Object) -> Object | None:
    match source:
        case {"type": "base64", "data": str(data), "media_type": str(kind)}:
            return {"kind": "data", "data": data, "mimeType": kind}
        case {"type": "text", "data": str(text)}:
            data = base64.b64encode(text.encode()).decode("ascii")
            return {"kind": "data", "data": data, "mimeType": "text/plain"}
        case {"type": "url", "url": str(url)}:
            return {"kind": "url", "url": url}
        case {"type": "file", "file_id": str(file_id)}:
            return {"kind": "file_id", "fileId": file_id}
        case _:
            return None


def _rest(message: Object, known: frozenset[str]) -> Object:
    rest: Object = {key: item for key, item in message.items() if key not in known and item is not None}
    return {"message": rest} if rest else {}


def _difference(line: Object, first: Object, message: Object) -> Object:
    """Return the fields in which a later line of an answer differs from the first line, without the blocks."""
    own: Object = {key: item for key, item in line.items() if key not in {"type", "message"} and first.get(key) != item}
    match line.get("message"):
        case {"usage": usage} if usage != message.get("usage", message.get("repeatedUsage")):
            own["usage"] = usage
        case _:
            pass
    return own


def _metadata_of(fields: Object) -> Object:
    metadata = fields.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _uuid(line: Object) -> str | None:
    uuid = line.get("uuid")
    return uuid if isinstance(uuid, str) else None


def _read(fields: Object) -> LlmMessage:
    # The bus's own reader validates the message, with the same error texts as for a publish.
    try:
        message = read_llm(json.dumps({key: item for key, item in fields.items() if item is not None}))
    except DecodeError as error:
        raise DecodeError(f"message.{error.path}" if error.path else "message", error.reason) from None
    if not isinstance(message, LlmMessage):
        raise DecodeError("message.role", "no message")
    return message
