"""Rename the keys of the earlier systems' message formats to the names in lanebus, before validation. Pure.

Source: the documents of the five earlier systems (see `bus/messages`), which use different names for the same fields.
If a message has two spellings of one key with different values, that is an error, because the intended value is
unknown.
"""

from collections.abc import Mapping

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError

__all__ = ("canonical",)

Object = dict[str, JsonValue]

_MESSAGE = {
    "contents": "content",
    "message_id": "id",
    "turn_id": "turnId",
    "stop_reason": "stopReason",
    "errorMessage": "error_message",
    "error": "error_message",
    "response_id": "responseId",
    "raw_stop_reason": "rawStopReason",
    "usages": "usage",
    "tool_call_id": "toolCallId",
    "call_id": "toolCallId",
    "tool_name": "toolName",
    "is_error": "isError",
    "batch_id": "batchId",
    "terminate_message": "terminateMessage",
}
_USAGE = {
    "cacheRead": "cache_read",
    "cacheWrite": "cache_write",
    "totalTokens": "total_tokens",
    "imageTokens": "image_tokens",
    "audioTokens": "audio_tokens",
}
_TURN_ID = {"loop_id": "loopId", "turn_index": "turnIndex"}
_MEDIA = {
    "file_id": "fileId",
    "data_base64": "data",
    "mime_type": "mimeType",
    "media_type": "mimeType",
    "file_name": "filename",
    "size_bytes": "sizeBytes",
    "duration_ms": "durationMs",
}
_BLOCK_TYPE = {
    "tool_call": "toolCall",
    "remote_tool_call": "toolCall",
    "tool_result": "toolResult",
    "reasoning": "thinking",
}
_MIME = {"mime_type": "mimeType", "media_type": "mimeType"}
_BLOCK: dict[str, dict[str, str]] = {
    "text": {"content": "text", "textSignature": "signature"},
    "image": {"alt_text": "altText", "group_id": "groupId", **_MIME, "data_base64": "data"},
    "audio": {"sample_rate": "sampleRate", "group_id": "groupId"},
    "video": {},
    "document": {},
    "data": _MIME,
    "thinking": {"text": "thinking", "content": "thinking", "summary": "thinking", "thinkingSignature": "signature"},
    "redacted_thinking": {},
    "toolCall": {
        "args": "arguments",
        "arguments_raw": "argumentsRaw",
        "tool_kind": "toolKind",
        "tool_type": "toolType",
        "call_type": "callType",
        "thoughtSignature": "signature",
    },
    "toolResult": {
        "id": "toolCallId",
        "call_id": "toolCallId",
        "tool_call_id": "toolCallId",
        "output": "content",
        "is_error": "isError",
        "terminate_message": "terminateMessage",
    },
    "annotation": {},
    "error": {"error": "message"},
    "unknown": {},
}
_ROLE = {"tool": "toolResult"}


def canonical(message: Object) -> Object:
    """Return the message with lanebus's key names. Unknown keys are kept, so that validation can report them.

    Raises:
        DecodeError: two spellings of one key have different values, or a block has no type.
    """
    role = message.get("role")
    if role in ("extension", "context", "delta"):  # a tuple and not a set, because the role may be unhashable
        return message
    result = _rename(message, _MESSAGE, "")
    turn = result.get("turnId")
    if isinstance(turn, dict) and _is_turn_id(spelled := _rename(turn, _TURN_ID, "turnId")):
        result["turnId"] = spelled
    if isinstance(role, str):
        result["role"] = _ROLE.get(role, role)
    if "content" in result:
        result["content"] = _blocks(result["content"], "content")
    if isinstance(usage := result.get("usage"), dict):
        result["usage"] = _rename(usage, _USAGE, "usage")
    if isinstance(number := result.get("id"), int) and not isinstance(number, bool):
        result["id"] = str(number)
    metadata = {} if result.get("metadata") is None else result["metadata"]
    is_malformed = result.get("turnId") is not None and not _is_turn_id(result["turnId"])
    if is_malformed and isinstance(metadata, dict) and "invalidTurnId" not in metadata:
        # The `two-lane-agent` system reads a malformed turn id as None. Here it is kept in the metadata, which no
        # provider receives.
        result["metadata"] = {**metadata, "invalidTurnId": result.pop("turnId")}
    return result


def _blocks(content: JsonValue, path: str) -> JsonValue:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        return content
    return [_block(block, f"{path}.{index}") for index, block in enumerate(content)]


def _block(block: JsonValue, path: str) -> JsonValue:
    if not isinstance(block, dict):
        return block
    kind = block.get("type", block.get("kind"))
    if not isinstance(kind, str):
        raise DecodeError(path, "a block needs a type")
    kind = kind.lower() if kind.isupper() else kind
    known = _BLOCK_TYPE.get(kind, kind)
    if known not in _BLOCK:
        return {"type": "unknown", "raw": block}
    names = _BLOCK[known]
    if known == "toolCall" and "type" in block:
        names = {**names, "kind": "toolKind"}  # the `coding-agent` system uses `kind` as a hint for UIs
    result = _rename(block, names, path)
    if "type" not in block:
        del result["kind"]
    result["type"] = known
    if kind == "remote_tool_call":
        result["remote"] = True
    for name in ("media", "thumbnail"):
        if isinstance(media := result.get(name), dict):
            result[name] = _rename(media, _MEDIA, f"{path}.{name}")
    match known:
        case "toolResult":
            _split_result(result, path)
        case "data":
            _put_in_media(result, path)
        case "annotation" if "annotation" in result:
            _put(result, "refs", [result.pop("annotation")], f"{path}.annotation")
        case _:
            pass
    return result


def _split_result(result: Object, path: str) -> None:
    """Keep the text or blocks of a tool result in `content`; move a content of any other JSON to `structured`."""
    content = result.get("content")
    is_blocks = isinstance(content, list) and all(isinstance(item, dict) and "type" in item for item in content)
    if isinstance(content, str) or is_blocks:
        result["content"] = _blocks(content, f"{path}.content")
    elif "content" in result:
        del result["content"]
        if content is not None:
            _put(result, "structured", content, f"{path}.content")


def _put_in_media(data: Object, path: str) -> None:
    """Move the inline data of the first graph format, `data_base64`, from the block to the block's `media`."""
    inline = data.pop("data_base64", None)
    if inline is not None:
        _put(data, "media", {"kind": "data", "data": inline, "mimeType": data.get("mimeType")}, f"{path}.data_base64")


def _put(holder: Object, key: str, value: JsonValue, path: str) -> None:
    if holder.get(key) not in (None, value):
        raise DecodeError(path, f"differs from {key!r}, which is the same key: keep one of them")
    holder[key] = value


def _rename(value: Object, names: Mapping[str, str], path: str) -> Object:
    result: Object = {}
    for key, item in value.items():
        name = names.get(key, key)
        if name in result and result[name] != item:
            raise DecodeError(
                f"{path}.{key}" if path else key, f"differs from {name!r}, which is the same key: keep one of them"
            )
        result[name] = item
    return result


def _is_turn_id(value: JsonValue) -> bool:
    if not isinstance(value, dict):
        return False
    loop, index = value.get("loopId"), value.get("turnIndex")
    return isinstance(loop, str) and isinstance(index, int) and not isinstance(index, bool) and index >= 0
