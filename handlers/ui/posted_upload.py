"""Decode the announcement of an upload."""

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.media.store import check_sha256
from lanebus.handlers.json_fields import as_text, as_whole
from lanebus.handlers.protocols.client_content import check_name, check_type
from lanebus.handlers.ui.posted_content import check_fields
from lanebus.handlers.ui.uploads.upload import Upload

__all__ = ("read_upload",)


def read_upload(body: JsonValue, session: str) -> Upload:
    """Decode `{"sha256": …, "sizeBytes": …, "mimeType"?: …, "filename"?: …}`.

    Raises:
        DecodeError: the body has another shape, or a value is not allowed.
        InvalidMediaKey: the SHA-256 is not 64 lower-case hex digits.
    """
    if not isinstance(body, dict) or not {"sha256", "sizeBytes"} <= body.keys():
        raise DecodeError("", 'begin an upload with {"sha256": …, "sizeBytes": …}')
    check_fields(body, ("sha256", "sizeBytes", "mimeType", "filename"))
    size_bytes = as_whole(body["sizeBytes"], "sizeBytes")
    if size_bytes == 0:
        raise DecodeError("sizeBytes", "must be 1 or more: an empty file is no media")
    return Upload(
        session=session,
        sha256=check_sha256(as_text(body["sha256"], "sha256")),
        size_bytes=size_bytes,
        mime_type=check_type(body.get("mimeType"), "mimeType"),
        filename=check_name(body.get("filename"), "filename"),
    )
