"""References to media: inline bytes, a URL, a file that the provider stores, or media in the media store."""

import base64
import binascii
import io
from pathlib import Path
from typing import IO, Literal, Protocol, Self, runtime_checkable
from urllib.parse import urlsplit

import filetype  # type: ignore[import-untyped]  # the package ships no types; sniff() gives it one
from pydantic import field_validator, model_validator

from lanebus.bus.errors import DecodeError, MediaRefused, require_count, require_instance, require_methods, require_text
from lanebus.bus.messages.base import Wire
from lanebus.bus.messages.files import read_file
from lanebus.bus.messages.media_checks import (
    FILE_LIMIT_BYTES,
    check_url,
    is_what_it_claims,
    sanitize_filename,
    text_type_of,
)
from lanebus.bus.whole_text import whole_text

__all__ = ("INLINE_LIMIT_BYTES", "MediaKind", "MediaRef", "Picture", "sniff")

INLINE_LIMIT_BYTES = 50_000
"""Decoded size from which media belong in the media store and not in an entry."""

MediaKind = Literal["url", "file_id", "data", "sha256"]
"""Where media are: at a URL, stored by the provider, inline in the message, or in the media store."""

_OCTETS = "application/octet-stream"

# `filetype` checks too few bytes of these types, so that other data could match. Of bitmaps it checks only the two
# letters "BM", with which a text may begin. Of WebP it checks bytes that not every file has. Source: the `coding-agent`
# system.
_HEADS = {"image/png": (b"\x89PNG\r\n\x1a\n",), "image/gif": (b"GIF87a", b"GIF89a")}

# media types as `filetype` names them → the names that providers accept
_NAMES = {"audio/x-wav": "audio/wav", "audio/x-flac": "audio/flac", "audio/m4a": "audio/mp4"}


def sniff(data: bytes) -> str | None:
    """Return the media type that the first bytes of `data` show, such as "image/png"; None for text or unknown data."""
    kind: str | None = filetype.guess_mime(data[:8192])  # pyright: ignore[reportUnknownMemberType]  # untyped, see above
    if kind is None:
        return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None
    if not data.startswith(_HEADS.get(kind, b"")) or (kind == "image/bmp" and any(data[6:10])):
        return None
    return _NAMES.get(kind, kind)


@runtime_checkable
class Picture(Protocol):
    """An image in memory with the interface of Pillow's `Image`. Pillow itself is not needed."""

    @property
    def format(self) -> str | None:
        """The format of the file from which the image was read, such as "JPEG"; None if it was created in memory."""
        ...

    def save(self, fp: IO[bytes], format: str | None = None) -> None:
        """Write the image to a file in the given format."""
        ...


class MediaRef(Wire):
    """A reference to media. `kind` names the field that must be set: url, file_id, data or sha256.

    Only `from_file` opens a path, and no method fetches a URL: references are resolved when a request is built.
    """

    kind: MediaKind
    url: str | None = None
    """an http, https, gs, s3 or agentflow URL; paths, `file:` and `javascript:` are refused"""
    file_id: str | None = None
    """id of a file that the provider stores"""
    data: str | None = None
    """the content in base64, with the standard alphabet and padding"""
    sha256: str | None = None
    """64 lower-case hex digits. For kind sha256 they are the address in the media store, for other kinds the content's
    checksum"""
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
        """Return inline media.

        Args:
            data: the content.
            mime_type: the media type to use if the first bytes do not show one. None means `application/octet-stream`.
            filename: a name for the media.

        Raises:
            DecodeError: `data` is empty.
        """
        require_instance("data", data, (bytes, bytearray, memoryview), "pass bytes")
        if not data:
            raise DecodeError("data", "media of no bytes: give at least one")
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
        """Read a local file into inline media.

        The first bytes of the file decide the media type. If they show none, the type is `mime_type`. If that is None,
        the type is the `text/…` type of the file name's extension. This call blocks; `lanebus.media.media_from_file`
        does the same in a thread.

        Args:
            path: the file.
            mime_type: the media type to use if the first bytes do not show one. None uses the name's extension.
            limit_bytes: the largest size to accept; 10 MiB by default.
            within: a folder that must contain the file, after symbolic links are resolved. Set it if the path comes
                from another party. None allows any folder.

        Raises:
            InvalidArgument: `path` is no path, or `limit_bytes` is no integer of 0 or more.
            MediaRefused: the file is not a regular file, is empty, is outside of `within`, or does not match
                `mime_type`.
            MediaTooLarge: the file is larger than `limit_bytes`.
            OSError: the file does not exist or may not be read.
        """
        require_instance("path", path, (str, Path), "pass the path of a file")
        require_count("limit_bytes", limit_bytes)
        path = Path(path)
        name = whole_text(path.name)
        data = read_file(path, limit_bytes=limit_bytes, within=within)
        media_type = sniff(data)
        if media_type is None and mime_type is not None:
            if not is_what_it_claims(data, mime_type):
                raise MediaRefused(name, f"its bytes are not of {mime_type}")
            media_type = mime_type
        return cls(
            kind="data",
            data=base64.b64encode(data).decode("ascii"),
            mime_type=media_type or text_type_of(name) or _OCTETS,
            filename=sanitize_filename(name),
            size_bytes=len(data),
        )

    @classmethod
    def from_url(cls, url: str, *, mime_type: str | None = None) -> Self:
        """Return a reference to media at a URL. A `data:` URL in base64 becomes inline media.

        Args:
            url: the address.
            mime_type: the media type. The type in a `data:` URL takes precedence.

        Raises:
            InvalidContent: `url` is a local path, or its scheme is not http, https, gs, s3 or agentflow.
        """
        require_text("url", url)
        require_text("mime_type", mime_type, is_optional=True)
        head, comma, payload = url.partition(",")
        if comma and head.startswith("data:") and head.endswith(";base64"):
            return cls(kind="data", data=payload, mime_type=head[5:-7] or mime_type)
        return cls(kind="url", url=url, mime_type=mime_type)

    @classmethod
    def of(cls, source: "bytes | str | Picture") -> Self:
        """Return media from bytes, a URL, base64 or a Pillow image.

        A Pillow image is encoded in its own format, or as PNG if it has none. Base64 is accepted only if its bytes show
        a media type, because a path may be valid base64 by chance.

        Raises:
            DecodeError: there are no bytes.
            InvalidContent: the text is neither a URL nor base64, such as a local path.
        """
        if not isinstance(source, bytes | str):
            require_methods(
                "source", source, ("save",), "pass bytes, a URL, base64 or a Pillow image; a file is `from_file(…)`"
            )
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
        """The address in a media store: a SHA-256 or an `agentflow:` URL. None if the media are in no media store."""
        if self.kind == "sha256":
            return self.sha256
        return self.url if self.kind == "url" and urlsplit(self.url or "").scheme == "agentflow" else None

    @property
    def inline_size_bytes(self) -> int:
        """The exact decoded size of inline media, in bytes; 0 if they are not inline."""
        return _decoded_size(self.data or "")

    def decoded(self) -> bytes:
        """Return the bytes of inline media.

        Raises:
            ValueError: the media are not inline.
        """
        if self.data is None:
            raise ValueError(f"media of kind {self.kind} holds no bytes")
        return base64.b64decode(self.data)

    @field_validator("url")
    @classmethod
    def _refuse_local_places(cls, url: str | None) -> str | None:
        # A stored message must not name a file of the machine that replays the log.
        return url if url is None else check_url(url)

    @field_validator("data")
    @classmethod
    def _require_base64(cls, data: str | None) -> str | None:
        if data is not None:
            try:
                size_bytes = len(binascii.a2b_base64(data, strict_mode=True))
            except binascii.Error as error:
                raise ValueError(f"not base64: {error}") from error
            if size_bytes != _decoded_size(data):  # a2b_base64 accepts "QUJD="
                raise ValueError("not base64: excess padding")
        return data

    @field_validator("sha256")
    @classmethod
    def _require_digest(cls, digest: str | None) -> str | None:
        if digest is not None and (len(digest) != 64 or not set(digest) <= set("0123456789abcdef")):
            raise ValueError("expected 64 lower-case hex digits")
        return digest

    @model_validator(mode="after")
    def _require_the_field_of_its_kind(self) -> Self:
        if not getattr(self, self.kind):
            raise ValueError(f"media of kind {self.kind!r} needs its field {self.kind!r}")
        return self


def _decoded_size(data: str) -> int:
    return len(data) // 4 * 3 - data.endswith("=") - data.endswith("==")


def _decoded(text: str) -> bytes | None:
    """Return the bytes that base64 text encodes; None for other text."""
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):  # ValueError for text that is not ASCII
        return None
