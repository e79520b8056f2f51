"""Read and write the graph format's references to media. No file is opened and no URL is fetched."""

from pydantic import JsonValue, ValidationError

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.media import MediaRef
from lanebus.handlers.codecs.graph.shapes import MediaShape
from lanebus.handlers.json_fields import Object, first_fault

__all__ = ("looks_like_media", "media_of", "media_out")

_NEEDS = {"url": "url", "file_id": "file_id", "data": "data_base64"}
_THEIR_NAMES = {"data": "data_base64"}


def media_of(shape: MediaShape, path: str) -> MediaRef:
    """Read a graph reference as a lanebus reference.

    Raises:
        DecodeError: the field that `kind` requires is missing, a URL is a local path, or base64 or a digest is invalid.
    """
    needed = _NEEDS[shape.kind]
    if not getattr(shape, needed):
        raise DecodeError(f"{path}.{needed}", f"media of kind {shape.kind!r} needs it")
    try:
        return MediaRef.model_validate(
            {
                "kind": shape.kind,
                "url": shape.url,
                "file_id": shape.file_id,
                "data": shape.data_base64,
                "sha256": None if shape.sha256 is None else shape.sha256.lower(),
                "mime_type": shape.mime_type,
                "size_bytes": shape.size_bytes,
                "filename": shape.filename,
                "width": shape.width,
                "height": shape.height,
                "duration_ms": shape.duration_ms,
                "page": shape.page,
            }
        )
    except ValidationError as error:
        names, reason = first_fault(error)
        name = names[0] if names else shape.kind
        raise DecodeError(f"{path}.{_THEIR_NAMES.get(name, name)}", reason) from None


def media_out(media: MediaRef) -> tuple[Object, Object] | None:
    """Return the required and the optional fields of a reference; None if the media are in the media store."""
    if media.kind == "sha256":
        return None
    return {"kind": media.kind}, {
        "url": media.url,
        "file_id": media.file_id,
        "data_base64": media.data,
        "mime_type": media.mime_type,
        "size_bytes": media.size_bytes,
        "sha256": media.sha256,
        "filename": media.filename,
        "width": media.width,
        "height": media.height,
        "duration_ms": media.duration_ms,
        "page": media.page,
    }


def looks_like_media(value: JsonValue) -> bool:
    """Return whether a tool's result is one reference to media, and not other JSON that has some of the same keys."""
    if not isinstance(value, dict) or not value.keys() <= MediaShape.model_fields.keys():
        return False
    kind = value.get("kind")
    return isinstance(kind, str) and kind in _NEEDS and bool(value.get(_NEEDS[kind])) and bool(value.get("mime_type"))
