"""Where the bytes of an image, a sound or a document are: inline, at a URL, with a provider, or in the store."""

import base64
import binascii
import io
from pathlib import Path
from typing import IO, Literal, Protocol, Self, runtime_checkable
from urllib.parse import urlsplit

import filetype  # type: ignore[import-untyped]  # the package ships no types; sniff() gives it one
from pydantic import field_validator, model_validator

from lanebus.bus.errors import DecodeError, MediaRefused
from lanebus.bus.messages.base import Wire
from lanebus.bus.messages.files import read_file
from lanebus.bus.messages.media_checks import (
    FILE_LIMIT_BYTES,
    check_url,
    is_what_it_claims,
    sanitize_filename,
    text_type_of,
)

__all__ = ("INLINE_LIMIT_BYTES", "MediaKind", "MediaRef", "Picture", "sniff")

INLINE_LIMIT_BYTES = 50_000
"""Media of this decoded size and more belongs into the media store, not into an entry."""

MediaKind = Literal["url", "file_id", "data", "sha256"]

_OCTETS = "application/octet-stream"

# Of these, filetype looks at fewer bytes than tell them apart from other data, as of bitmaps, where two letters would
# make one of a text about cars. Of webp it looks at more than are always there. Source: seed 000
_HEADS = {"image/png": (b"\x89PNG\r\n\x1a\n",), "image/gif": (b"GIF87a", b"GIF89a")}

# filetype's names beside the ones that providers take
_NAMES = {"audio/x-wav": "audio/wav", "audio/x-flac": "audio/flac", "audio/m4a": "audio/mp4"}


def sniff(data: bytes) -> str | None:
    """The media type that the first bytes show, such as "image/png"; None for text and for what is not known."""
    kind: str | None = filetype.guess_mime(data[:8192])  # pyright: ignore[reportUnknownMemberType]  # untyped, see above
    if kind is None:
        return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None
    if not data.startswith(_HEADS.get(kind, b"")) or (kind == "image/bmp" and any(data[6:10])):
        return None
    return _NAMES.get(kind, kind)


@runtime_checkable
class Picture(Protocol):
    """An image in memory, as Pillow has it; nothing here needs Pillow."""

    @property
    def format(self) -> str | None:
        """The format it was read from, such as "JPEG"; None if it was drawn."""
        ...

    def save(self, fp: IO[bytes], format: str | None = None) -> None:
        """Write it to a file in a format."""
        ...


class MediaRef(Wire):
    """A reference to media. `kind` names the field that must be set: url, file_id, data or sha256.

    Nothing but `from_file` opens a path and nothing fetches a URL: a reference is looked up when a request is built.
    """

    kind: MediaKind
    url: str | None = None
    """http, https, gs, s3 or agentflow URL; never a path, `file:` or `javascript:`"""
    file_id: str | None = None
    """id of a file that the provider holds"""
    data: str | None = None
    """base64, standard alphabet, with padding"""
    sha256: str | None = None
    """64 hex digits: the content's address in the media store, or its checksum beside another kind"""
    mime_type: str | None = None
    size_bytes: int | None = None
    """size of the decoded content"""
    filename: str | None = None
    width: int | None = None
    """pixels"""
    height: int | None = None
    """pixels"""
    duration_ms: int | None = None
    page: int | None = None

    @classmethod
    def from_bytes(cls, data: bytes, *, mime_type: str | None = None, filename: str | None = None) -> Self:
        """Inline media. The type is what the bytes show; `mime_type` counts only where they show nothing.

        Raises:
            DecodeError: there are no bytes.
        """
        if not data:
            raise DecodeError("data", "media of no bytes")
        return cls(
            kind="data",
            data=base64.b64encode(data).decode("ascii"),
            mime_type=sniff(data) or mime_type or _OCTETS,
            filename=filename,
        )

    @classmethod
    def from_file(
        cls,
        path: Path | str,
        *,
        mime_type: str | None = None,
        limit_bytes: int = FILE_LIMIT_BYTES,
        within: Path | None = None,
    ) -> Self:
        """Inline media read from a file of this machine, once and now: nothing else here opens a path.

        The type is what the bytes show. Where they show nothing it is `mime_type`, unless they cannot be of it, or the
        kind of text that the name's end stands for. `lanebus.media.media_from_file` does the same off the event loop.

        Args:
            within: a folder that the file must be in, once links are followed. Give one where the name is not your own.

        Raises:
            MediaRefused: no regular file, empty, outside of `within`, or its bytes are not of the `mime_type` given.
            MediaTooLarge: it is over `limit_bytes`.
            OSError: it is not there or may not be read.
        """
        path = Path(path)
        data = read_file(path, limit_bytes=limit_bytes, within=within)
        media_type = sniff(data)
        if media_type is None and mime_type is not None:
            if not is_what_it_claims(data, mime_type):
                raise MediaRefused(path.name, f"its bytes are not of {mime_type}")
            media_type = mime_type
        return cls(
            kind="data",
            data=base64.b64encode(data).decode("ascii"),
            mime_type=media_type or text_type_of(path.name) or _OCTETS,
            filename=sanitize_filename(path.name),
            size_bytes=len(data),
        )

    @classmethod
    def from_url(cls, url: str, *, mime_type: str | None = None) -> Self:
        """Media at a URL. A `data:` URL becomes inline media.

        Raises:
            pydantic.ValidationError: a local path, or a scheme other than http, https, gs, s3 and agentflow.
        """
        head, comma, payload = url.partition(",")
        if comma and head.startswith("data:") and head.endswith(";base64"):
            return cls(kind="data", data=payload, mime_type=head[5:-7] or mime_type)
        return cls(kind="url", url=url, mime_type=mime_type)

    @classmethod
    def of(cls, source: "bytes | str | Picture") -> Self:
        """Media from what a program has: bytes, a URL, base64, or a Pillow image, which is encoded in its own format,
        one without a format as PNG.

        Base64 whose bytes show no kind of media is not taken: a path, too, may be base64 by chance.

        Raises:
            DecodeError: there are no bytes.
            pydantic.ValidationError: a text that is neither, such as a local path.
        """
        if isinstance(source, bytes):
            return cls.from_bytes(source)
        if isinstance(source, str):
            data = _decoded(source)
            return cls.from_url(source) if data is None or sniff(data) is None else cls.from_bytes(data)
        file = io.BytesIO()
        source.save(file, format=source.format or "PNG")
        return cls.from_bytes(file.getvalue())

    @property
    def address(self) -> str | None:
        """Where a media store has it: its SHA-256, or an `agentflow:` URL; None if it is somewhere else."""
        if self.kind == "sha256":
            return self.sha256
        return self.url if self.kind == "url" and urlsplit(self.url or "").scheme == "agentflow" else None

    @property
    def inline_size_bytes(self) -> int:
        """The decoded size of inline media, to the byte; 0 if they are not inline."""
        return _decoded_size(self.data or "")

    def decoded(self) -> bytes:
        """The bytes of inline media.

        Raises:
            ValueError: the media is not inline.
        """
        if self.data is None:
            raise ValueError(f"media of kind {self.kind} holds no bytes")
        return base64.b64decode(self.data)

    @field_validator("url")
    @classmethod
    def _refuse_local_places(cls, url: str | None) -> str | None:
        # A stored message that is replayed later must not be able to name a file of the machine that replays it.
        return url if url is None else check_url(url)

    @field_validator("data")
    @classmethod
    def _require_base64(cls, data: str | None) -> str | None:
        if data is not None:
            try:
                size_bytes = len(binascii.a2b_base64(data, strict_mode=True))
            except binascii.Error as error:
                raise ValueError(f"not base64: {error}") from error
            if size_bytes != _decoded_size(data):  # which lets "QUJD=" pass
                raise ValueError("not base64: excess padding")
        return data

    @field_validator("sha256")
    @classmethod
    def _require_digest(cls, digest: str | None) -> str | None:
        if digest is not None and (len(digest) != 64 or not set(digest) <= set("0123456789abcdef")):
            raise ValueError("want 64 lower-case hex digits")
        return digest

    @model_validator(mode="after")
    def _require_the_field_of_its_kind(self) -> Self:
        if not getattr(self, self.kind):
            raise ValueError(f"media of kind {self.kind!r} needs its field {self.kind!r}")
        return self


def _decoded_size(data: str) -> int:
    return len(data) // 4 * 3 - data.endswith("=") - data.endswith("==")


def _decoded(text: str) -> bytes | None:
    """The bytes of base64; None for other text."""
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):  # the latter for text beyond ASCII
        return None
