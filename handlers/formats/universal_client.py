"""The `universal-client` format: `{"role":…,"content":[{"kind":…}],"tool_call_id":…}`.

The `universal-client` system calls all providers. Its message constructors correspond to lanebus's. `Message.user(…)`
with text or parts is `UserMessage.of(…)`, `system` and `assistant` likewise. `Message.tool_result(id, content,
is_error)` is `ToolResultMessage.of(id, content, is_error=…)`, and `.text` is `text_content()`.
"""

import base64
import json
from collections.abc import Callable, Sequence
from typing import get_args

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, InvalidArgument, UnknownRole, require_text
from lanebus.bus.messages import (
    AssistantMessage,
    AudioBlock,
    Block,
    DeveloperMessage,
    DocumentBlock,
    ImageBlock,
    LlmMessage,
    MediaRef,
    Publishable,
    RedactedThinkingBlock,
    StopReason,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolResultMessage,
    UnknownBlock,
    Usage,
    UserMessage,
    parse_json,
    sniff,
)
from lanebus.handlers.context import Object
from lanebus.handlers.formats.codec import Codec
from lanebus.handlers.formats.round_trip import Dialect, JsonObject, round_trip_codec

# Convert between the `universal-client` system's content parts, which name their kind as `kind`, and lanebus
# blocks.

_MEDIA_BLOCKS: dict[str, type[ImageBlock | AudioBlock | DocumentBlock]] = {
    "image": ImageBlock,
    "audio": AudioBlock,
    "document": DocumentBlock,
}
_PART_KINDS = frozenset({*_MEDIA_BLOCKS, "text", "tool_call", "tool_result", "thinking", "redacted_thinking"})


def kind_of(part: JsonObject) -> str:
    """Return the kind of a part, in lower case."""
    kind = part.required_text("kind")
    return kind.lower() if kind.isupper() else kind


def read_parts(content: JsonValue, path: str) -> tuple[Block, ...]:
    """Return all blocks of a content; bare text is one block.

    Raises:
        DecodeError: a part does not have the form of its kind.
    """
    if isinstance(content, str):
        return (TextBlock(text=content),)
    if not isinstance(content, list):
        raise DecodeError(path, "wants text or a list of parts")
    return tuple(read_part(JsonObject.of(part, f"{path}.{index}")) for index, part in enumerate(content))


def read_part(part: JsonObject, *, call_id: str | None = None) -> Block:
    """Return the block of a part. A part of an unknown kind is kept whole.

    Args:
        part: the part.
        call_id: id of the call that the message answers. A result part without an own call id gets this id.

    Raises:
        DecodeError: the part does not have the form of its kind.
    """
    match kind_of(part):
        case "text":
            return TextBlock(text=part.required_text("text"))
        case "image" | "audio" | "document" as kind:
            return _read_media(part.required_object(kind), kind)
        case "tool_call":
            return _read_call(part.required_object("tool_call"))
        case "tool_result":
            return _read_result(part.required_object("tool_result"), call_id)
        case "thinking":
            return _read_thinking(part.required_object("thinking"))
        case "redacted_thinking":
            return _read_redacted(part)
        case _:
            return UnknownBlock(raw=part.fields)


def can_say(block: Block) -> bool:
    """Return whether the `universal-client` format has a part for the block."""
    match block:
        case TextBlock() | ThinkingBlock() | ToolCallBlock() | ToolResultBlock():
            return True
        case RedactedThinkingBlock(data=data):
            return bool(data)
        case ImageBlock(media=media) | AudioBlock(media=media) | DocumentBlock(media=media):
            return media.kind in {"url", "data"}
        case UnknownBlock(raw={"kind": str(kind)}):
            return kind not in _PART_KINDS and kind.lower() not in _PART_KINDS
        case _:
            return False


def written_parts(content: tuple[Block, ...]) -> list[JsonValue]:
    """Return the parts for the blocks that the `universal-client` format can represent."""
    return [_written_part(block) for block in content if can_say(block)]


def _written_part(block: Block) -> Object:
    match block:
        case TextBlock(text=text):
            return {"kind": "text", "text": text}
        case ImageBlock(media=media, detail=detail):
            image = written_media(media, kind="image")
            return {"kind": "image", "image": {**image, "detail": detail} if detail else image}
        case AudioBlock(media=media) | DocumentBlock(media=media):
            return {"kind": block.type, block.type: written_media(media, kind=block.type)}
        case ToolCallBlock():
            return {"kind": "tool_call", "tool_call": _written_call(block)}
        case ToolResultBlock():
            return {"kind": "tool_result", "tool_result": _written_result(block)}
        case ThinkingBlock(text=text, signature=signature):
            signed: Object = {} if signature is None else {"signature": signature}
            return {"kind": "thinking", "thinking": {"text": text, **signed}}
        case RedactedThinkingBlock(data=data):
            return {"kind": "redacted_thinking", "thinking": {"text": data, "redacted": True}}
        case UnknownBlock(raw=raw):
            return raw
        case _:
            raise AssertionError(f"can_say({block.type}) is not true")


def _read_media(source: JsonObject, kind: str) -> Block:
    fields: Object = {"media": media_of(source, kind=kind).model_dump()}
    if kind == "image":
        fields["detail"] = source.text("detail")
    return source.made(_MEDIA_BLOCKS[kind], fields)


def _read_call(call: JsonObject) -> Block:
    fields: Object = {
        "id": call.required_text("id"),
        "name": call.required_text("name"),
        "call_type": call.text("type"),
    }
    match call.value("arguments"):
        case None:
            return call.made(ToolCallBlock, fields)
        case dict() as arguments:
            return ToolCallBlock.model_validate({**fields, "arguments": arguments})
        case str() as text:
            try:
                return ToolCallBlock.model_validate({**fields, "arguments": parse_json(text)})
            except DecodeError:
                return ToolCallBlock.model_validate({**fields, "arguments_raw": text})
        case _:
            raise call.fault("arguments", "wants an object or its JSON text")


def _written_call(call: ToolCallBlock) -> Object:
    arguments = call.arguments
    if arguments == {} and call.arguments_raw is not None:
        arguments = call.arguments_raw
    elif not isinstance(arguments, dict):
        arguments = json.dumps(arguments, ensure_ascii=False)
    kind: Object = {} if call.call_type is None else {"type": call.call_type}
    return {"id": call.id, "name": call.name, "arguments": arguments, **kind}


def _read_result(result: JsonObject, call_id: str | None) -> ToolResultBlock:
    own = result.text("tool_call_id")
    if own is not None and call_id is not None and own != call_id:
        raise result.fault("tool_call_id", f"is {own!r}, and the message's is {call_id!r}")
    content, structured = _read_content(result)
    image = result.text("image_data")
    if image is not None:
        fields: Object = {"data": image, "media_type": result.text("image_media_type")}
        content = (*content, _read_result_image(result, fields))
    return ToolResultBlock(
        tool_call_id=own if own is not None else call_id or result.required_text("tool_call_id"),
        content=content,
        structured=structured,
        is_error=result.flag("is_error") or False,
    )


def _read_result_image(result: JsonObject, fields: Object) -> Block:
    try:
        return ImageBlock(media=media_of(JsonObject(fields), kind="image"))
    except DecodeError as error:
        raise result.fault("image_data", error.reason) from None


def _read_content(result: JsonObject) -> tuple[tuple[Block, ...], JsonValue]:
    """Return a result's content as (blocks, structured JSON). Text and parts are blocks; other JSON is structured."""
    match result.value("content"):
        case None | "":
            return (), None
        case str() as text:
            return (TextBlock(text=text),), None
        case [{"kind": str()}, *_] as parts:
            return read_parts(parts, result.at("content")), None
        case dict() | list() as structured:
            return (), structured
        case _:
            raise result.fault("content", "wants text, an object or a list")


def _written_result(result: ToolResultBlock) -> Object:
    """Return a result in the form of the `universal-client` system.

    A last inline image gets its own fields if all blocks before it are texts. If the rest is one text, the content is a
    bare string. If there is no block, the content is the structured result. Otherwise the content is a list of parts.
    """
    content, image = result.content, dict[str, JsonValue]()
    match content:
        case (*rest, ImageBlock(media=media) as last) if last == ImageBlock(media=media) and media.kind == "data":
            if all(isinstance(block, TextBlock) for block in rest):
                content = tuple(rest)
                image["image_data"] = media.data
                if media.mime_type is not None:
                    image["image_media_type"] = media.mime_type
        case _:
            pass
    value: JsonValue
    match content:
        case () if isinstance(result.structured, dict | list):
            value = result.structured
        case ():  # the `universal-client` system's content is text, an object or a list
            value = "" if result.structured is None else json.dumps(result.structured)
        case (TextBlock(text=text),):
            value = text
        case _:
            value = written_parts(content)
    return {"tool_call_id": result.tool_call_id, "content": value, "is_error": result.is_error, **image}


def _read_thinking(thinking: JsonObject) -> Block:
    if thinking.flag("redacted"):
        return RedactedThinkingBlock(data=_redacted_data(thinking, "data", "text"))
    return ThinkingBlock(text=thinking.required_text("text"), signature=thinking.text("signature"))


def _read_redacted(part: JsonObject) -> Block:
    """Read redacted thinking. Clients store its payload under different keys; the payload is never readable text."""
    inside = part.object("thinking") or part.object("redacted_thinking")
    if inside is not None:
        return RedactedThinkingBlock(data=_redacted_data(inside, "data", "text", "signature"))
    return RedactedThinkingBlock(data=_redacted_data(part, "data", "redacted_data"))


def _redacted_data(source: JsonObject, *names: str) -> str:
    for name in names:
        if data := source.text(name):
            return data
    raise source.fault(names[0], "is required")


# Convert the `universal-client` system's image, audio and document data: `{url | data, media_type, file_name}`.
#
# Bytes are base64 text.

Files = Callable[[str], MediaRef]
"""A function that reads the file at a path, such as `MediaRef.from_file`.

Pass such a function only for messages from a trusted source.
"""

_MEDIA_KINDS = ("image", "audio", "document")
_DATA_KEYS = ("data", "data_base64")


def media_of(source: JsonObject, *, kind: str) -> MediaRef:
    """Return the reference in an image, audio or document part.

    Raises:
        DecodeError: the part does not have exactly one of `url` and `data`, the URL is a local path, or the bytes are
            not base64 text.
    """
    data = _base64_text(source)
    url = source.text("url")
    if (url is None) == (data is None):
        raise source.fault("", "wants exactly one of url and data")
    if url is not None and _is_local(url):
        raise source.fault("url", "names a file. Pass `files` to read it")
    if data == "":
        raise source.fault(_data_key(source), "holds no bytes")
    mime_type = source.text("media_type")
    if kind == "image" and mime_type is None and data is not None:
        mime_type = _sniffed_type(data) or "image/png"
    fields: Object = {
        "kind": "url" if url is not None else "data",
        "url": url,
        "data": data,
        "mimeType": mime_type,
        "filename": source.text("file_name") if kind == "document" else None,
    }
    return source.made(MediaRef, fields, {"data": _data_key(source)})


def written_media(media: MediaRef, *, kind: str) -> Object:
    """Return the data of an image, audio or document part. The media must be at a URL or inline."""
    where: Object = {"url": media.url} if media.kind == "url" else {"data": media.data}
    if media.mime_type is not None:
        where["media_type"] = media.mime_type
    if media.filename is not None and kind == "document":
        where["file_name"] = media.filename
    return where


def inlined(message: JsonValue, files: Files | None) -> JsonValue:
    """Return the message with each `data:` URL replaced by its bytes.

    If `files` is not None, each local path is replaced by the file's bytes too.

    Raises:
        DecodeError: a `data:` URL is not base64.
    """
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(content, list):
        return message
    parts = [_part_inlined(part, f"content.{index}", files) for index, part in enumerate(content)]
    return {**message, "content": parts}


def _part_inlined(part: JsonValue, path: str, files: Files | None) -> JsonValue:
    if not isinstance(part, dict):
        return part
    return {
        key: _media_inlined(item, f"{path}.{key}.url", files) if key in _MEDIA_KINDS else item
        for key, item in part.items()
    }


def _media_inlined(value: JsonValue, path: str, files: Files | None) -> JsonValue:
    url = value.get("url") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(url, str) or not value.keys().isdisjoint(_DATA_KEYS):
        return value
    if url[:5].lower() == "data:":
        head, _, data = url[5:].partition(",")
        if not head.endswith(";base64"):
            raise DecodeError(path, "wants base64 in a data: URL")
        found: Object = {"data": data, "media_type": head[:-7] or None}
    elif files is not None and _is_local(url):
        media = files(url[5:] if url[:5].lower() == "file:" else url)
        found = {"data": media.data, "media_type": media.mime_type}
    else:
        return value
    return {**found, **{key: item for key, item in value.items() if key != "url" and item is not None}}


def _base64_text(source: JsonObject) -> str | None:
    for name in _DATA_KEYS:
        if isinstance(source.fields.get(name), list):
            raise source.fault(name, "wants base64 text, not a list of numbers")
    return source.text(*_DATA_KEYS)


def _data_key(source: JsonObject) -> str:
    return "data_base64" if source.fields.get("data") is None and "data_base64" in source.fields else "data"


def _is_local(url: str) -> bool:
    return url.startswith(("/", "./", "../", "~", "\\", ".\\")) or url[:5].lower() == "file:" or url[1:2] == ":"


def _sniffed_type(data: str) -> str | None:
    try:
        return sniff(base64.b64decode(data[:1024]))
    except ValueError:  # not base64, or not even ASCII: MediaRef raises the error for it
        return None


# Read and write the finish reason and usage, which the `universal-client` system's responses have beside the
# message.

_FINISH_REASONS: dict[str, StopReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "toolUse",
    "content_filter": "guardRail",
    "error": "error",
}
_WRITTEN_REASONS = {ours: theirs for theirs, ours in _FINISH_REASONS.items()}
_INCLUSIVE_PROVIDERS = frozenset({"openai", "gemini", "google"})
_USAGE_FIELDS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "total_tokens": "total_tokens",
    "reasoning": "reasoning_tokens",
    "cache_read": "cache_read_tokens",
    "cache_write": "cache_write_tokens",
}


def finish_of(answer: JsonObject, *, has_calls: bool) -> tuple[StopReason, str | None]:
    """Return lanebus's stop reason, and the provider's own stop reason or None.

    Without a `finish_reason`, the stop reason is "toolUse" if `has_calls`, else "stop". For "other", the stop reason is
    the provider's own reason if that is a stop reason that only lanebus has, such as "aborted". Otherwise it is "stop".
    """
    found = answer.value("finish_reason")
    if found is None:
        return "toolUse" if has_calls else "stop", None
    finish = (
        JsonObject({"reason": found}, answer.path)
        if isinstance(found, str)
        else answer.required_object("finish_reason")
    )
    reason, raw = finish.required_text("reason"), finish.text("raw")
    if reason in _FINISH_REASONS:
        return _FINISH_REASONS[reason], raw
    if reason != "other":
        raise finish.fault("reason", f"wants one of {', '.join(_FINISH_REASONS)} and other")
    for ours in get_args(StopReason):
        if raw == ours and ours not in _WRITTEN_REASONS:
            return ours, None
    return "stop", raw


def written_finish(message: AssistantMessage, *, has_calls: bool) -> JsonValue:
    """Return the finish reason in the form of the `universal-client` system. Return None if the message can be written
    without it, because `finish_of` then reads the same stop reason."""
    reason, raw = message.stop_reason, message.raw_stop_reason
    if raw is None and reason == ("toolUse" if has_calls else "stop"):
        return None
    if reason not in _WRITTEN_REASONS:
        return {"reason": "other", "raw": reason}
    return {"reason": _WRITTEN_REASONS[reason]} if raw is None else {"reason": _WRITTEN_REASONS[reason], "raw": raw}


def usage_of(answer: JsonObject, provider: str | None) -> Usage | None:
    """Return the tokens. The result's `input` never includes cached tokens.

    The `universal-client` system passes on the provider's own counts. Some providers count cached tokens as input;
    these tokens are subtracted.
    """
    usage = answer.object("usage")
    if usage is None:
        return None
    counts = {ours: usage.count(theirs) or 0 for ours, theirs in _USAGE_FIELDS.items()}
    if provider in _INCLUSIVE_PROVIDERS and counts["input"] >= counts["cache_read"]:
        counts["input"] -= counts["cache_read"]
    return Usage.model_validate({**counts, "raw": usage.value("raw")})


def written_usage(usage: Usage, provider: str | None) -> Object:
    """Return the tokens in the form of the `universal-client` system. Optional counts are left out if they are 0."""
    if provider in _INCLUSIVE_PROVIDERS:
        usage = usage.model_copy(update={"input": usage.input + usage.cache_read})
    always = ("input", "output", "total_tokens")
    counts: Object = {
        theirs: getattr(usage, ours) for ours, theirs in _USAGE_FIELDS.items() if ours in always or getattr(usage, ours)
    }
    return counts if usage.raw is None else {**counts, "raw": usage.raw}


_ABOUT = "a client for all providers: content parts with a field kind"

_SPOKEN: dict[str, type[SystemMessage | DeveloperMessage | UserMessage]] = {
    "system": SystemMessage,
    "developer": DeveloperMessage,
    "user": UserMessage,
}


def universal_client_codec(
    *, provider: str | None = None, model: str | None = None, files: Files | None = None
) -> Codec:
    """Return the codec of the `universal-client` system's messages.

    A history of the `universal-client` system does not name the provider and model that wrote an answer. Signed
    thinking may be sent only to the model that wrote it, so pass `provider` and `model` if you know them.

    The client's responses, unlike its histories, have the fields `provider`, `model`, `usage` and `finish_reason`. They
    are read if an answer has them, and written back.

    Args:
        provider, model: provider and model to record in answers that do not name them. If the history has signed
            thinking, the provider is Anthropic.
        files: reads the local files that messages name; see `Files`. None opens no file and refuses such messages.
    """
    require_text("provider", provider, is_optional=True)
    require_text("model", model, is_optional=True)
    if files is not None and not callable(files):
        raise InvalidArgument("files", files, "pass a function that returns a MediaRef, or None")

    def prepare(value: JsonValue) -> JsonValue:
        return inlined(value, files)

    def read(value: JsonValue) -> tuple[Publishable, ...]:
        return _read_message(JsonObject.of(value), provider, model)

    def write(group: Sequence[Publishable]) -> JsonValue | None:
        return _written_message(group, provider, model)

    return round_trip_codec(Dialect(name="004", about=_ABOUT, read=read, write=write, can_say=can_say, prepare=prepare))


UNIVERSAL_CLIENT = universal_client_codec()


def _read_message(source: JsonObject, provider: str | None, model: str | None) -> tuple[Publishable, ...]:
    role = source.required_text("role")
    role = role.lower() if role.isupper() else role
    if role in {"tool", "toolResult"}:
        return _results(source)
    if role not in {*_SPOKEN, "assistant"}:
        raise UnknownRole(role)
    content, name = _content(source), source.text("name")
    if role in _SPOKEN:
        return (_SPOKEN[role](content=content, name=name),)
    calls = any(isinstance(block, ToolCallBlock) for block in content)
    author = source.text("provider") or provider
    stop_reason, raw = finish_of(source, has_calls=calls)
    answer = AssistantMessage(
        content=content,
        name=name,
        stop_reason=stop_reason,
        raw_stop_reason=raw,
        usage=usage_of(source, author),
        provider=author,
        model=source.text("model") or model,
    )
    return (answer,)


def _results(source: JsonObject) -> tuple[Publishable, ...]:
    """Return the results of a tool message.

    A tool message without result parts is one result. Its parts answer the call that `tool_call_id` names.
    """
    envelope, name = source.text("tool_call_id"), source.text("name")
    parts = [JsonObject.of(part, path) for part, path in source.items("content")] if _is_list(source) else []
    blocks = [read_part(part, call_id=envelope) for part in parts]
    results = [block for block in blocks if isinstance(block, ToolResultBlock)]
    if not results:
        content = _content(source)
        call_id = source.required_text("tool_call_id")
        return (ToolResultMessage(tool_call_id=call_id, tool_name=name, content=content),)
    for part, block in zip(parts, blocks, strict=True):
        if not isinstance(block, ToolResultBlock):
            raise part.fault("kind", f"{kind_of(part)} stands beside a result")
    messages = ToolResultMessage.from_results(results, batch_id=source.digest())
    return tuple(message.model_copy(update={"tool_name": name, "timestamp": None}) for message in messages)


def _content(source: JsonObject) -> tuple[Block, ...]:
    """Return the blocks of a message. A null `content` has no blocks; a missing `content` is an error."""
    if source.fields.get("content", "") is None:
        return ()
    return read_parts(source.value("content"), source.at("content"))


def _is_list(source: JsonObject) -> bool:
    return isinstance(source.fields.get("content"), list)


def _written_message(group: Sequence[Publishable], provider: str | None, model: str | None) -> JsonValue | None:
    match group[0]:
        case ToolResultMessage():
            return _written_results([message for message in group if isinstance(message, ToolResultMessage)])
        case AssistantMessage() as answer:
            return {**_spoken_message(answer, "assistant"), **_answer_fields(answer, provider, model)}
        case SystemMessage() | DeveloperMessage() | UserMessage() as message:
            return _spoken_message(message, message.role)
        case _:
            return None


def _spoken_message(message: LlmMessage, role: str) -> Object:
    name: Object = {} if message.name is None else {"name": message.name}
    return {"role": role, "content": written_parts(message.content), **name}


def _answer_fields(answer: AssistantMessage, provider: str | None, model: str | None) -> Object:
    calls = any(isinstance(block, ToolCallBlock) for block in answer.content)
    fields: Object = {
        "finish_reason": written_finish(answer, has_calls=calls),
        "usage": None if answer.usage is None else written_usage(answer.usage, answer.provider),
        "provider": None if answer.provider == provider else answer.provider,
        "model": None if answer.model == model else answer.model,
    }
    return {name: item for name, item in fields.items() if item is not None}


def _written_results(results: Sequence[ToolResultMessage]) -> Object:
    value: Object = {"role": "tool", "content": written_parts(tuple(result.as_block() for result in results))}
    if len(results) == 1:
        value["tool_call_id"] = results[0].tool_call_id
    if results[0].tool_name is not None:
        value["name"] = results[0].tool_name
    return value
