"""Content blocks of messages: one class for each block, and their references to media.

Media from outside are checked: URL, name, size, first bytes. A file is read only if a user names it, not a message.
"""

import base64
import binascii
import errno
import hashlib
import io
import json
import os
import re
import stat
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Annotated, Literal, NamedTuple, Protocol, Self, runtime_checkable
from urllib.parse import urlsplit

import filetype  # type: ignore[import-untyped]  # the package ships no types; sniff() gives it one
from pydantic import (
    Field,
    JsonValue,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from lanebus.bus.errors import (
    DecodeError,
    MediaRefused,
    MediaTooLarge,
    require_count,
    require_instance,
    require_methods,
    require_text,
)
from lanebus.bus.messages.base import Wire
from lanebus.bus.storage.ownership import FILE, HAS_DESCRIPTORS, open_below, opened
from lanebus.bus.text import whole_text

# Check media from outside: URL, file name, size, and whether the first bytes match the claimed type. Pure.
#
# Source: the second graph format's rules for names and sizes, and its table of first bytes, with the audio types of the
# `coding-agent` system added.
#
# A file that is valid as two types at once can pass these checks. So serve foreign media as an attachment, never
# inline.

FILE_LIMIT_BYTES = 10 * 1_048_576
"""Default for the largest file that may become media."""

NAME_LIMIT_BYTES = 255
"""Maximum number of bytes of a file name. This is the limit of common file systems."""

SCHEMES = frozenset({"http", "https", "gs", "s3", "agentflow"})
"""Allowed schemes of media URLs."""

# Some URL parsers drop control characters and surrounding space, or read a backslash as a slash. Such a parser would
# read another URL than the URL that is checked here.
_UNCLEAR = re.compile(r"[\x00-\x1f\x7f\\]|^\s|\s$")

Signature = tuple[tuple[int, bytes], ...]
"""The first bytes of a file type: offsets in the file, each with the bytes expected there. All must match."""

# The first bytes that a type may have. A type that is missing here cannot be checked by its first bytes.
_SIGNATURES: dict[str, tuple[Signature, ...]] = {
    "image/jpeg": (((0, b"\xff\xd8\xff"),),),
    "image/png": (((0, b"\x89PNG"),),),
    "image/gif": (((0, b"GIF87a"),), ((0, b"GIF89a"),)),
    "image/webp": (((0, b"RIFF"), (8, b"WEBP")),),
    "image/bmp": (((0, b"BM"),),),
    "image/tiff": (((0, b"II*\0"),), ((0, b"MM\0*"),)),
    "application/pdf": (((0, b"%PDF"),),),
    "application/zip": (((0, b"PK\x03\x04"),), ((0, b"PK\x05\x06"),)),
    "audio/mpeg": (((0, b"ID3"),), *(((0, bytes((0xFF, second))),) for second in (0xFB, 0xF3, 0xF2, 0xFA))),
    "audio/ogg": (((0, b"OggS"),),),
    "audio/flac": (((0, b"fLaC"),),),
    "audio/wav": (((0, b"RIFF"), (8, b"WAVE")),),
}

_EXTENSIONS = {
    **{"image/jpeg": ".jpg", "image/png": ".png", "image/gif": ".gif", "image/webp": ".webp", "image/bmp": ".bmp"},
    **{"image/tiff": ".tiff", "image/avif": ".avif", "image/heic": ".heic", "image/svg+xml": ".svg"},
    **{"audio/mpeg": ".mp3", "audio/ogg": ".ogg", "audio/flac": ".flac", "audio/wav": ".wav", "audio/mp4": ".m4a"},
    **{"video/mp4": ".mp4", "video/webm": ".webm", "video/quicktime": ".mov"},
    **{"application/pdf": ".pdf", "application/zip": ".zip", "application/json": ".json", "application/xml": ".xml"},
    **{"text/plain": ".txt", "text/html": ".html", "text/csv": ".csv", "text/markdown": ".md"},
}

# Text types, which only the file name shows.
_TEXTS = {
    extension: mime_type
    for mime_type, extension in _EXTENSIONS.items()
    if mime_type.startswith("text/") or mime_type.endswith(("json", "xml"))
}


def check_url(url: str) -> str:
    """Return the URL if it has an allowed scheme and a host, and no character that URL parsers read differently.

    Such characters are control characters, backslashes and surrounding spaces.

    Raises:
        ValueError: the URL has another scheme, no host, or such a character.
    """
    parts = urlsplit(url)
    if (scheme := parts.scheme.lower()) not in SCHEMES:
        raise ValueError(f"scheme {scheme!r} is not one of {', '.join(sorted(SCHEMES))}")
    if not parts.netloc:
        raise ValueError("a URL needs a host")  # "http:/etc/passwd" is a path to some readers
    if _UNCLEAR.search(url):
        raise ValueError("a URL must not contain control characters or backslashes, nor have space around it")
    return url


def is_what_it_claims(data: bytes, mime_type: str) -> bool:
    """Return whether the first bytes match the claimed media type.

    Empty data match no type. A type without known first bytes, such as text, matches any other data.
    """
    if not data:
        return False
    signatures = _SIGNATURES.get(mime_type.partition(";")[0].strip().lower())
    return signatures is None or any(
        all(data.startswith(expected, offset) for offset, expected in signature) for signature in signatures
    )


def sanitize_filename(name: str) -> str:
    """Return a file name that is safe in any folder.

    The result has no folders, no control characters and no text direction characters, and it is not empty. It has at
    most 255 bytes; if the name is shortened, a suffix of up to 16 bytes is kept.
    """
    last = name.replace("\\", "/").rpartition("/")[2]
    plain = "".join(char for char in last if unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Zl", "Zp"})
    plain = plain.strip(". ")
    if not plain:
        return "unnamed"
    stem, dot, suffix = plain.rpartition(".")
    if not stem or len(suffix.encode()) > 16:
        stem, dot, suffix = plain, "", ""
    room = NAME_LIMIT_BYTES - len(f"{dot}{suffix}".encode())
    return f"{stem.encode()[:room].decode(errors='ignore')}{dot}{suffix}"


def require_size(size_bytes: int, *, limit_bytes: int) -> None:
    """Check that media are not larger than a limit.

    Raises:
        MediaTooLarge: `size_bytes` is larger than `limit_bytes`.
    """
    if size_bytes > limit_bytes:
        raise MediaTooLarge(size_bytes, limit_bytes)


def extension_of(mime_type: str) -> str:
    """Return the file name extension for a media type, such as ".png"; ".bin" for unknown types.

    Source: a table of lanebus, because the standard library's table depends on the machine.
    """
    return _EXTENSIONS.get(mime_type.partition(";")[0].strip().lower(), ".bin")


def text_type_of(name: str) -> str | None:
    """Return the text type for a file name's extension; None if it is not the extension of a text type."""
    _, dot, suffix = name.rpartition(".")
    return _TEXTS.get(f"{dot}{suffix.lower()}")


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


def read_file(path: Path, *, limit_bytes: int, within: Path | None = None) -> bytes:
    """Return a file's bytes. Only regular files are read, because a pipe or a device might never end.

    Args:
        path: the file.
        limit_bytes: the largest size to accept.
        within: the folder that must contain the file, after symbolic links are resolved; None allows any folder. No
            link that replaces a folder meanwhile is followed. On Windows, such a link may be followed.

    Raises:
        MediaRefused: the file is not a regular file, is empty, or is outside of `within`.
        MediaTooLarge: the file is larger than `limit_bytes`. At most one byte more than the limit was read.
        OSError: the file does not exist or may not be read.
    """
    with os.fdopen(_open(path, within), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise MediaRefused(whole_text(path.name), "not a regular file")
        require_size(status.st_size, limit_bytes=limit_bytes)
        data = file.read(limit_bytes + 1)  # the file may have grown, and some file systems report a size of 0
    require_size(len(data), limit_bytes=limit_bytes)
    if not data:
        raise MediaRefused(whole_text(path.name), "empty")
    return data


def _open(path: Path, within: Path | None) -> int:
    """Resolve links, open the file without following another link, and return its descriptor.

    A folder below `within` may be swapped for a link at any moment. So the file is opened from the descriptor of
    `within`, component by component, and not by the path that was checked.
    """
    real = path.resolve(strict=True)
    if within is None:
        return os.open(real, os.O_RDONLY | FILE)
    allowed = within.resolve(strict=True)
    if not real.is_relative_to(allowed):
        raise MediaRefused(whole_text(path.name), "outside of the allowed folder")
    if not HAS_DESCRIPTORS:
        return os.open(real, os.O_RDONLY | FILE)
    try:
        with opened(allowed) as folder:
            return open_below(folder, real.relative_to(allowed).parts, os.O_RDONLY)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR}:  # swapped for a link since it was resolved
            raise MediaRefused(whole_text(path.name), "outside of the allowed folder") from None
        raise


Metadata = dict[str, JsonValue]


class AnnotationRef(Wire):
    """A reference from a text to its source."""

    url: str | None = None
    file_id: str | None = None
    page: int | None = None
    index: int | None = None
    title: str | None = None


class TextBlock(Wire):
    """Text, with optional references to its sources."""

    type: Literal["text"] = "text"
    text: str
    annotations: Annotated[tuple[AnnotationRef, ...] | None, Field(strict=False)] = None
    signature: str | None = None
    """the provider's signature of the thinking that led to this text. It is sent back only to the model that wrote the
    text"""


class ImageBlock(Wire):
    """One image. If it has only inline data, its JSON is `{"type":"image","data":…,"mimeType":…}`."""

    type: Literal["image"] = "image"
    media: MediaRef
    alt_text: str | None = None
    bbox: Annotated[tuple[float, float, float, float] | None, Field(strict=False)] = None
    """bounding box of the image: left, top, right and bottom edge"""
    group_id: str | None = None
    """id that images share if they come from one block. The `coding-agent` format has several images in a block"""
    detail: Literal["auto", "low", "high"] | None = None
    """resolution at which the model processes the image"""
    signature: str | None = None
    """the provider's signature, if a model made the image; see `TextBlock`"""

    @model_validator(mode="before")
    @classmethod
    def _read_inline_form(cls, value: JsonValue) -> JsonValue:
        if not isinstance(value, dict) or "media" in value or "data" not in value:
            return value
        media: dict[str, JsonValue] = {"kind": "data", "data": value["data"]}
        if "mimeType" in value:
            media["mimeType"] = value["mimeType"]
        return {**{key: item for key, item in value.items() if key not in {"data", "mimeType"}}, "media": media}

    @model_serializer(mode="wrap")
    def _write_inline_form(self, default: SerializerFunctionWrapHandler) -> JsonValue:
        media = self.media
        if media == MediaRef(kind="data", data=media.data, mime_type=media.mime_type) if media.data else False:
            inline = ImageBlock(media=media)
            if self == inline and media.mime_type:
                return {"type": "image", "data": media.data, "mimeType": media.mime_type}
        plain: JsonValue = default(self)
        return plain


class AudioBlock(Wire):
    """One audio clip."""

    type: Literal["audio"] = "audio"
    media: MediaRef
    transcript: str | None = None
    sample_rate: int | None = None
    """samples per second, in hertz"""
    channels: int | None = None
    group_id: str | None = None
    """id that clips share if they come from one block. The `coding-agent` format has several clips in a block"""


class VideoBlock(Wire):
    """One video."""

    type: Literal["video"] = "video"
    media: MediaRef
    thumbnail: MediaRef | None = None


class DocumentBlock(Wire):
    """One document, such as a PDF."""

    type: Literal["document"] = "document"
    media: MediaRef
    text: str | None = None
    """the full extracted text"""
    pages: Annotated[tuple[int, ...] | None, Field(strict=False)] = None
    excerpt: str | None = None


class DataBlock(Wire):
    """Other data, for programs. It is never sent to a provider."""

    type: Literal["data"] = "data"
    mime_type: str
    media: MediaRef | None = None


class ThinkingBlock(Wire):
    """A model's thinking. It is sent back unchanged, with its signature, only to the model that wrote it."""

    type: Literal["thinking"] = "thinking"
    text: Annotated[str, Field(validation_alias="thinking", serialization_alias="thinking")]
    signature: str | None = None
    details: Annotated[tuple[str, ...] | None, Field(strict=False)] = None


class RedactedThinkingBlock(Wire):
    """Thinking that the provider returned encrypted. It is never shown as text."""

    type: Literal["redacted_thinking"] = "redacted_thinking"
    data: str


class ToolCallBlock(Wire):
    """A model's request to run a tool. The tool's result refers to `id`."""

    type: Literal["toolCall"] = "toolCall"
    id: str
    name: str
    arguments: JsonValue = Field(default_factory=dict[str, JsonValue])
    arguments_raw: str | None = None
    """the arguments as the provider sent them; kept only if they are not valid JSON"""
    tool_kind: str | None = None
    """kind of the tool; a UI may use it to display the call"""
    tool_type: str | None = None
    """type of a provider's built-in tool, such as web_search"""
    call_type: str | None = None
    """the provider's name for this kind of call, such as function"""
    remote: bool | None = None
    """whether the tool runs in the user's client; None means no"""
    signature: str | None = None
    """the provider's signature of the thinking that led to this call; see `TextBlock`"""
    metadata: Metadata | None = None
    """private data, never sent to a provider"""

    @property
    def call_hash(self) -> str:
        """SHA-256 of the name and the arguments, in hex. An approval with this hash is only for these arguments."""
        asked = json.dumps([self.name, self.arguments, self.arguments_raw], separators=(",", ":"), sort_keys=True)
        return hashlib.sha256(asked.encode()).hexdigest()

    @property
    def effective_call_type(self) -> str:
        """`call_type`, or "function" if it is not set. Source: the `universal-client` format."""
        return self.call_type or "function"


class ToolResultBlock(Wire):
    """A tool's result inside another message, as in imported messages. Otherwise a result is a `ToolResultMessage`."""

    type: Literal["toolResult"] = "toolResult"
    tool_call_id: str
    content: Annotated[tuple["Block", ...], Field(strict=False)] = ()
    structured: JsonValue | None = None
    """the result as JSON, if the tool returned JSON"""
    is_error: bool = False
    status: Literal["completed", "failed"] | None = None
    metadata: Metadata | None = None
    """private data, never sent to a provider"""
    terminate: bool | None = None
    """whether the loop may end without another model call; None means no"""
    terminate_message: str | None = None
    """the text that replaces the model's answer if `terminate` ends the loop"""


class AnnotationBlock(Wire):
    """Citations in the message's text, or notes on it."""

    type: Literal["annotation"] = "annotation"
    kind: Literal["citation", "note"] = "citation"
    refs: Annotated[tuple[AnnotationRef, ...], Field(strict=False)] = ()
    spans: Annotated[tuple[Annotated[tuple[int, int], Field(strict=False)], ...] | None, Field(strict=False)] = None
    """start and end offset of each annotated span, in characters"""


class ErrorBlock(Wire):
    """An error as part of a message's content."""

    type: Literal["error"] = "error"
    message: str
    code: str | None = None
    data: Metadata | None = None


class UnknownBlock(Wire):
    """A block of an unknown type. It is stored unchanged and left out of requests.

    Exception: a block that a provider's built-in tool produced is sent back unchanged to the model that returned the
    block.
    """

    type: Literal["unknown"] = "unknown"
    raw: Metadata


Block = Annotated[
    TextBlock
    | ImageBlock
    | AudioBlock
    | VideoBlock
    | DocumentBlock
    | DataBlock
    | ThinkingBlock
    | RedactedThinkingBlock
    | ToolCallBlock
    | ToolResultBlock
    | AnnotationBlock
    | ErrorBlock
    | UnknownBlock,
    Field(discriminator="type"),
]
"""One block of a message's content. `type` distinguishes the kinds of blocks."""

# Each block uses its own serializer, because the serializer of the union makes writing a message 20 % slower.
Blocks = Annotated[tuple[SerializeAsAny[Block], ...], Field(strict=False)]

ToolResultBlock.model_rebuild()


def media_block(media: MediaRef) -> ImageBlock | AudioBlock | VideoBlock | DocumentBlock:
    """Return a block for the type of `media`: an image, audio or video block, or for other types a document block."""
    match (media.mime_type or "").partition("/")[0]:
        case "image":
            return ImageBlock(media=media)
        case "audio":
            return AudioBlock(media=media)
        case "video":
            return VideoBlock(media=media)
        case _:
            return DocumentBlock(media=media)


# Keep null arguments of tool calls in JSON, although other fields that are None are left out.
#
# A serializer of the block in Python would make writing every message with a tool call a third slower. Null arguments
# are rare. So they are detected first, which costs almost nothing, and then added to the finished JSON.


def has_null_arguments(blocks: Iterable[Block]) -> bool:
    """Return whether a tool call in the blocks, or in a tool result among them, has null arguments."""
    for block in blocks:
        if type(block) is ToolCallBlock:
            if block.arguments is None:
                return True
        elif type(block) is ToolResultBlock and has_null_arguments(block.content):
            return True
    return False


def with_null_arguments(data: bytes, blocks: Iterable[Block]) -> bytes:
    """Return a message's JSON with `"arguments":null` added to each tool call whose arguments are None.

    Args:
        data: the message's JSON, which leaves out fields that are None.
        blocks: the message's content.
    """
    message: JsonValue = json.loads(data)
    _add_nulls(message, blocks)
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()


def _add_nulls(holder: JsonValue, blocks: Iterable[Block]) -> None:
    content = holder.get("content") if isinstance(holder, dict) else None
    for written, block in zip(content if isinstance(content, list) else [], blocks, strict=True):
        if isinstance(block, ToolResultBlock):
            _add_nulls(written, block.content)
        elif isinstance(block, ToolCallBlock) and block.arguments is None and isinstance(written, dict):
            written["arguments"] = None


# Extract the text of blocks, for people and for search. The provider's form builds the text for a model instead.

_BLOCKS = "pass blocks, such as `message.content`"
_TAG = re.compile(r"<(/?)(think|thinking)>")


class Reasoned(NamedTuple):
    """A text without its reasoning, and the reasoning; `reasoning` is None if the text had none."""

    text: str
    reasoning: str | None


def blocks_text(blocks: Iterable[Block]) -> str:
    """Return the text of text blocks and tool results, joined without a separator.

    Source: `text()` of the first graph format (`GRAPH_V1` in `lanebus.codecs`).
    """
    require_instance("blocks", blocks, Iterable, _BLOCKS)
    parts: list[str] = []
    for block in blocks:
        match block:
            case TextBlock(text=text):
                parts.append(text)
            case ToolResultBlock(content=content, structured=structured):
                parts.append(result_text(content, structured))
            case _:
                require_instance("blocks", block, Wire, _BLOCKS)
    return "".join(parts)


def result_text(content: Iterable[Block], structured: JsonValue) -> str:
    """Return a tool result's text, or its JSON if it has no text."""
    text = blocks_text(content)
    return json.dumps(structured) if not text and structured is not None else text


def split_reasoning(text: str) -> Reasoned:
    """Separate a text from the reasoning in it, which some models write between `<think>` tags.

    Several passages of reasoning are joined by line breaks. A tag that is not closed is part of the text.

    Source: the second graph format (`GRAPH_V2` in `lanebus.codecs`).
    """
    require_text("text", text)
    said, thoughts = list[str](), list[str]()
    end, opened = 0, None
    closing = {name: text.rfind(f"</{name}>") for name in ("think", "thinking")}
    for tag in _TAG.finditer(text):
        is_end, name = bool(tag[1]), tag[2]
        if opened is None and not is_end and closing[name] > tag.start():
            opened = tag
        elif opened is not None and is_end and name == opened[2]:
            said.append(text[end : opened.start()])
            thoughts.append(text[opened.end() : tag.start()].strip())
            end, opened = tag.end(), None
    if not thoughts:
        return Reasoned(text, None)
    return Reasoned("".join([*said, text[end:]]).strip(), "\n".join(filter(None, thoughts)) or None)
