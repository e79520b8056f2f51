"""Read a part of Gemini's answer as a block."""

from collections.abc import Mapping

from pydantic import ValidationError

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.content import (
    AnnotationRef,
    AudioBlock,
    Block,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    UnknownBlock,
    VideoBlock,
)
from lanebus.bus.messages.media import MediaRef
from lanebus.handlers.json_fields import first_fault
from lanebus.handlers.providers.common.answer import minted_id
from lanebus.handlers.providers.common.request import Json
from lanebus.handlers.providers.gemini.fields import field_at, list_at, object_at, text_at

__all__ = ("citations", "read_part")


def read_part(part: Json, path: str, names: Mapping[str, str]) -> Block | None:
    """Return the block of a part; None if the part is empty.

    Args:
        part: the part's JSON.
        path: path of the part, for errors.
        names: see `ProviderRequest.tool_names`.

    Raises:
        DecodeError: a field of the part does not have the API's form.
    """
    signature = text_at(part, "thoughtSignature", f"{path}.")
    if (call := object_at(part, "functionCall", f"{path}.")) is not None:
        return _call(call, f"{path}.functionCall.", names, signature)
    thought = field_at(part, "thought") is True
    if isinstance(field_at(part, "text"), str):
        text = text_at(part, "text") or ""
        if not text and not signature:
            return None
        return ThinkingBlock(text=text, signature=signature) if thought else TextBlock(text=text, signature=signature)
    if not thought and (media := _media(part, path)) is not None:
        return _media_block(media, signature)
    present: Json = {key: value for key, value in part.items() if value is not None}
    if present.keys() <= {"thoughtSignature", "thought_signature"}:
        return TextBlock(text="", signature=signature) if signature else None
    return UnknownBlock(raw=present)


def citations(candidate: Json, path: str) -> list[AnnotationRef]:
    """Return the sources that a candidate names: the sources it cites and the web pages that a search found.

    Raises:
        DecodeError: a source does not have the API's form.
    """
    cited = object_at(candidate, "citationMetadata", path) or {}
    found = list_at(cited, "citations", f"{path}citationMetadata.") or []
    grounding = object_at(candidate, "groundingMetadata", path) or {}
    for chunk in list_at(grounding, "groundingChunks", f"{path}groundingMetadata.") or []:
        if isinstance(chunk, dict):
            found = [*found, chunk.get("web")]
    return [
        AnnotationRef(url=text_at(each, "uri", path), title=text_at(each, "title", path))
        for each in found
        if isinstance(each, dict)
    ]


def _call(call: Json, path: str, names: Mapping[str, str], signature: str | None) -> ToolCallBlock:
    name = text_at(call, "name", path)
    if name is None:
        raise DecodeError(f"{path}name", "a function call needs a name")
    arguments = object_at(call, "args", path)
    call_id = text_at(call, "id", path) or minted_id()
    return ToolCallBlock(id=call_id, name=names.get(name, name), arguments=arguments or {}, signature=signature)


def _media(part: Json, path: str) -> MediaRef | None:
    if (blob := object_at(part, "inlineData", f"{path}.")) is not None:
        # The SDK writes base64 with the URL-safe alphabet.
        data = (text_at(blob, "data", f"{path}.inlineData.") or "").replace("-", "+").replace("_", "/")
        fields: Json = {"kind": "data", "data": data}
        place = f"{path}.inlineData"
    elif (blob := object_at(part, "fileData", f"{path}.")) is not None:
        place = f"{path}.fileData"
        fields = {"kind": "file_id", "fileId": text_at(blob, "fileUri", f"{place}.")}
    else:
        return None
    fields |= {"mimeType": text_at(blob, "mimeType", f"{place}."), "filename": text_at(blob, "displayName", path)}
    try:
        return MediaRef.model_validate({key: value for key, value in fields.items() if value is not None})
    except ValidationError as error:
        raise DecodeError(place, first_fault(error)[1]) from None


def _media_block(media: MediaRef, signature: str | None) -> Block:
    match (media.mime_type or "").partition("/")[0]:
        case "image":
            return ImageBlock(media=media, signature=signature)
        case "audio":
            return AudioBlock(media=media)
        case "video":
            return VideoBlock(media=media)
        case _:
            return DocumentBlock(media=media)
