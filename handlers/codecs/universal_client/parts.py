"""Convert between the `universal-client` system's content parts, which name their kind as `kind`, and lanebus
blocks."""

import json

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.content import (
    AudioBlock,
    Block,
    DocumentBlock,
    ImageBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    UnknownBlock,
)
from lanebus.bus.messages.json_parser import parse_json
from lanebus.handlers.codecs.json_object import JsonObject
from lanebus.handlers.codecs.universal_client.media import media_of, written_media
from lanebus.handlers.json_fields import Object

__all__ = ("can_say", "kind_of", "read_part", "read_parts", "written_parts")

_MEDIA: dict[str, type[ImageBlock | AudioBlock | DocumentBlock]] = {
    "image": ImageBlock,
    "audio": AudioBlock,
    "document": DocumentBlock,
}
_KINDS = frozenset({*_MEDIA, "text", "tool_call", "tool_result", "thinking", "redacted_thinking"})


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
            return kind not in _KINDS and kind.lower() not in _KINDS
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
    return source.made(_MEDIA[kind], fields)


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
