"""A conversation in the form of OpenAI's Chat Completions API: one JSON document, `{"messages":[…]}` or the bare list.

A file with several conversations is refused, such as a fine-tuning file with one conversation per line: a session holds
one conversation. Nothing is lost: fields without a counterpart in lanebus go into the metadata. Source: the API's
reference.
"""

import json
from collections.abc import Iterable, Sequence

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, MessageError, UnknownRole
from lanebus.bus.messages import ExtensionMessage, LlmMessage, parse_json, read_llm
from lanebus.handlers.context import Object
from lanebus.handlers.formats.source import canonical_json
from lanebus.handlers.formats.transcript import Format, TranscriptEntry

ROLES = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "tool": "toolResult",
    "function": "toolResult",
}
"""OpenAI's role → lanebus's role; `function` is the old name of `tool`, used until the end of 2023"""

_AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg"}
_OWN_FIELDS = frozenset({"role", "content", "id", "name"})
_ASSISTANT_FIELDS = frozenset({"tool_calls", "function_call", "refusal", "reasoning_content"})


def read_openai_message(message: Object) -> LlmMessage:
    """Convert a message. Fields without a counterpart in lanebus go into the metadata.

    Raises:
        UnknownRole: the API has no such role.
        DecodeError: the message is invalid for its role.
    """
    role = message.get("role")
    if not isinstance(role, str):
        raise DecodeError("role", "a message needs a role")
    if role not in ROLES:
        raise UnknownRole(role)
    extras: Object = {}
    blocks = _blocks(message.get("content"), extras)
    fields: Object = {"role": ROLES[role], "content": blocks}
    used = _OWN_FIELDS | (_ASSISTANT_FIELDS if role == "assistant" else {"tool_call_id"})
    if role == "assistant":
        fields |= _answer(message, blocks)
    elif role in {"tool", "function"}:
        fields |= _result(message, role)
    if role not in {"tool", "function"}:
        fields["name"] = message.get("name")
    fields["id"] = message.get("id")
    metadata = {key: item for key, item in message.items() if key not in used}
    if extras:
        metadata["blocks"] = extras
    fields["metadata"] = metadata or None
    found = read_llm(json.dumps({key: item for key, item in fields.items() if item is not None}))
    if not isinstance(found, LlmMessage):
        raise UnknownRole(role)
    return found


def _answer(message: Object, said: list[JsonValue]) -> Object:
    refusal = message.get("refusal")
    blocks: list[JsonValue] = [*_reasoning(message), *said]
    if isinstance(refusal, str) and refusal:
        blocks.append({"type": "text", "text": refusal})
    calls = list(_calls(message))
    stop = "guardRail" if refusal else "toolUse" if calls else "stop"
    raw: Object = {"rawStopReason": "refusal"} if refusal else {}
    return {"content": [*blocks, *calls], "stopReason": stop, **raw}


def _reasoning(message: Object) -> Iterable[Object]:
    """Return the model's thinking as blocks. Only some servers with this API add it to an answer."""
    thinking = message.get("reasoning_content")
    return [{"type": "thinking", "thinking": thinking}] if isinstance(thinking, str) and thinking else []


def _calls(message: Object) -> Iterable[Object]:
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise DecodeError("tool_calls", "wants a list")
    for index, call in enumerate(calls or ()):
        match call:
            case {"id": str(call_id), "function": dict(function)} if isinstance(name := function.get("name"), str):
                yield {"type": "toolCall", "id": call_id, "name": name, **_arguments(function.get("arguments"))}
            case {"id": str(call_id), "custom": {"name": str(name), "input": str(text)}}:
                custom: Object = {"arguments": {"input": text}, "callType": "custom"}
                yield {"type": "toolCall", "id": call_id, "name": name, **custom}
            case _:
                raise DecodeError(f"tool_calls.{index}", "a call is an object with an id and a named function")
    match message.get("function_call"):
        case None:
            return
        case dict(function) if isinstance(name := function.get("name"), str):
            yield {"type": "toolCall", "id": _legacy_id(name), "name": name, **_arguments(function.get("arguments"))}
        case _:
            raise DecodeError("function_call", "wants an object with a name")


def _arguments(arguments: JsonValue) -> Object:
    """Parse the arguments, which are JSON text. Keep the text if it is not valid JSON."""
    if not isinstance(arguments, str):
        return {"arguments": {} if arguments is None else arguments}
    try:
        return {"arguments": parse_json(arguments or "{}")}
    except DecodeError:
        return {"argumentsRaw": arguments}


def _result(message: Object, role: str) -> Object:
    call_id, name = message.get("tool_call_id"), message.get("name")
    if role == "function" and isinstance(name, str):
        call_id = _legacy_id(name)
    if not isinstance(call_id, str):
        raise DecodeError("tool_call_id" if role == "tool" else "name", "a result names the call that it answers")
    return {"toolCallId": call_id, "toolName": name}


def _legacy_id(name: str) -> str:
    """Return an id for a call in the old `function_call` form, which has no id. Its result gets the same id by name."""
    return f"function:{name}"


def _blocks(content: JsonValue, extras: Object) -> list[JsonValue]:
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise DecodeError("content", "wants text or a list of parts")
    return [_block(part, str(index), extras) for index, part in enumerate(content)]


def _block(part: JsonValue, index: str, extras: Object) -> JsonValue:
    """Return the part as a block with lanebus's field names. Other fields go into `extras`, under `index`."""
    if not isinstance(part, dict):
        raise DecodeError(f"content.{index}", "a part is a JSON object")
    rest: Object = {key: item for key, item in part.items() if key not in {"type", str(part.get("type"))}}
    match part:
        case {"type": "text" | "refusal" as kind} if isinstance(text := part.get(str(kind)), str):
            block: Object = {"type": "text", "text": text}
            rest |= {"type": kind} if kind == "refusal" else {}
        case {"type": "image_url", "image_url": dict(image)} if isinstance(url := image.get("url"), str):
            block = {"type": "image", "media": _media(url), "detail": image.get("detail")}
        case {"type": "input_audio", "input_audio": dict(audio)} if isinstance(data := audio.get("data"), str):
            mime_type = _AUDIO_TYPES.get(str(audio.get("format")), f"audio/{audio.get('format')}")
            block = {"type": "audio", "media": {"kind": "data", "data": data, "mimeType": mime_type}}
        case {"type": "file", "file": dict(file)} if isinstance(data := file.get("file_data"), str):
            block = {"type": "document", "media": {**_media(data), "filename": file.get("filename")}}
        case {"type": "file", "file": dict(file)} if isinstance(file_id := file.get("file_id"), str):
            block = {
                "type": "document",
                "media": {"kind": "file_id", "fileId": file_id, "filename": file.get("filename")},
            }
        case _:
            return {"type": "unknown", "raw": part}
    if rest:
        extras[index] = rest
    return {key: item for key, item in block.items() if item is not None}


def _media(url: str) -> Object:
    """Return a `data:` URL as inline media, and any other URL as a URL. `MediaRef` later refuses local paths."""
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return {"kind": "data", "data": data, "mimeType": head[5:-7] or None}
    return {"kind": "url", "url": url}


_NAME = "openai-chat"
_HEADER = "openai.document"
"""type of an extra first message that holds the document's fields other than `messages`"""


class SeveralConversations(MessageError):
    """The file holds several conversations, but a session holds only one conversation. Nothing was published."""

    def __init__(self, count: int) -> None:
        super().__init__(f"the file holds {count} conversations, a session takes one", "import each by itself")
        self.count = count


def _recognizes(value: JsonValue) -> bool:
    messages = _messages(value)
    return bool(messages) and all(isinstance(each, dict) and each.get("role") in ROLES for each in messages or ())


def _messages(value: JsonValue) -> list[JsonValue] | None:
    found = value.get("messages") if isinstance(value, dict) else value
    return found if isinstance(found, list) else None


def _identity(value: JsonValue) -> bytes:
    """Return the first message as the identity: a continued conversation is the same transcript."""
    return canonical_json((_messages(value) or [None])[0])


def _split(values: Sequence[JsonValue]) -> Sequence[JsonValue]:
    """Return the messages. If the document has other fields, an extra first message holds these fields."""
    if len(values) != 1:
        raise SeveralConversations(len(values))
    value = values[0]
    messages = _messages(value)
    if messages is None:
        raise DecodeError("messages", "wants a list of messages")
    rest = {key: item for key, item in value.items() if key != "messages"} if isinstance(value, dict) else {}
    return [{"type": _HEADER, "document": rest}, *messages] if rest else messages


def _read(value: JsonValue) -> TranscriptEntry:
    if not isinstance(value, dict):
        raise DecodeError("", "a message is a JSON object")
    if value.get("type") == _HEADER and "role" not in value:
        header: Object = {"format": _NAME, "header": value.get("document")}
        return TranscriptEntry(message=ExtensionMessage.of("import.header", header))
    return TranscriptEntry(message=read_openai_message(value))


OPENAI_CHAT = Format(
    name=_NAME,
    sign='one JSON document: {"messages":[…]}, or a list, of messages with the roles of OpenAI\'s Chat Completions',
    recognizes=_recognizes,
    read=_read,
    identity=_identity,
    split=_split,
)
