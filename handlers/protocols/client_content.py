"""Build the contents of messages that clients send. Every protocol uses these rules. Pure.

Media are inline, or an upload that the server knows. Addresses are refused, unless the server was told to allow them: a
provider fetches an address with rights that the client may not have. The name of a Gemini file, for example, is an
https URL, and is read with the worker's key.
"""

import re
from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, SetupError
from lanebus.bus.messages import (
    AudioBlock,
    DocumentBlock,
    ImageBlock,
    MediaRef,
    TextBlock,
    UserMessage,
    VideoBlock,
    media_block,
    sanitize_filename,
)
from lanebus.handlers.context import as_text, made

MIME_TYPE = r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,63}/[A-Za-z0-9][A-Za-z0-9.+_-]{0,63}"
"""pattern of a media type without parameters"""

MediaBlock = ImageBlock | AudioBlock | VideoBlock | DocumentBlock

B = TypeVar("B")

MEDIA_TYPES: dict[str, type[MediaBlock]] = {
    "image": ImageBlock,
    "audio": AudioBlock,
    "video": VideoBlock,
    "document": DocumentBlock,
}
_TYPE = re.compile(MIME_TYPE)
_NAME_LIMIT = 255

_URL_LIMIT = 4_096
# Only what all parsers of URLs read alike: ASCII, no user, no backslash.
_URL = re.compile(
    r"(https?|gs|s3)://([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?"
    r"(/(?:[a-z0-9._~!$&'()*+,;=:@/-]|%[0-9a-f]{2})*+)?(\?[a-z0-9._~!$&'()*+,;=:@/?%-]*)?",
    re.ASCII | re.IGNORECASE,
)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_DOTS = re.compile(r"(?:/|%2f|%5c)(?:\.|%2e){1,2}(?:/|%2f|%5c|;|$)", re.IGNORECASE)
"""segments that name another folder, also escaped"""
_ESCAPE = re.compile(r"%(?:2e|2f|5c|25|[01][0-9a-f]|7f)|//", re.IGNORECASE)
"""parts of a path that some servers read as other segments: an escaped dot, slash, backslash or percent"""


class InvalidMediaUrl(SetupError):
    """An allowed address of media is no URL of a scheme, a host and perhaps a path."""

    def __init__(self, pattern: str, remedy: str) -> None:
        super().__init__(f"{pattern[:100]!r} is no address of media to allow", remedy)
        self.pattern = pattern


class _Place(NamedTuple):
    """The part of a URL that is allowed or not."""

    scheme: str
    host: str
    port: int | None
    path: str

    def covers(self, other: "_Place") -> bool:
        """Return whether an address has this scheme, host and port, and a path that begins with this one."""
        if self[:3] != other[:3]:
            return False
        prefix = self.path.rstrip("/")
        return not prefix or (
            _ESCAPE.search(other.path) is None and (other.path == prefix or other.path.startswith(f"{prefix}/"))
        )


class MediaAddresses:
    """The addresses of media that clients may name."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        """
        Args:
            patterns: allowed beginnings, such as `https://cdn.example.com` or `https://cdn.example.com/public`. Scheme,
                host and port must be the same, and the path must have the same first segments. A pattern without a port
                means the scheme's own.

        Raises:
            InvalidMediaUrl: a pattern is no such URL.
        """
        self._allowed = tuple(map(_pattern, patterns))

    @property
    def has_any(self) -> bool:
        """Whether any address is allowed."""
        return bool(self._allowed)

    def allows(self, url: str) -> bool:
        """Return whether clients may name a URL."""
        place = _place(url)
        return place is not None and any(each.covers(place) for each in self._allowed)


@dataclass(frozen=True, slots=True)
class ContentRules:
    """What a message of a client may hold."""

    addresses: MediaAddresses = field(default_factory=MediaAddresses)
    """the addresses of media that it may name"""
    blocks: int = 100
    """maximum number of blocks"""
    inline_bytes: int = 524_288
    """maximum number of bytes of its inline media together"""


def _pattern(text: str) -> _Place:
    place = _place(text)
    if place is not None and "?" not in text and _ESCAPE.search(place.path) is None and "*" not in text:
        return place
    if "*" in text:
        remedy = "leave out the *: all below the address is allowed, and several addresses by several options"
    elif "?" in text:
        remedy = f"leave out the query: {text.partition('?')[0]}"
    else:
        remedy = "write it as https://cdn.example.com or https://cdn.example.com/public, in ASCII and without a user"
    raise InvalidMediaUrl(text, remedy)


def _place(url: str) -> _Place | None:
    found = _URL.fullmatch(url) if len(url) <= _URL_LIMIT else None
    if found is None or _DOTS.search(found[4] or ""):
        return None
    scheme, host, port = str(found[1]).lower(), str(found[2]).lower(), found[3]
    return _Place(scheme, host, int(port) if port else _DEFAULT_PORTS.get(scheme), found[4] or "/")


DEFAULT_CONTENT_RULES = ContentRules()
"""allows no address"""


class Given(NamedTuple):
    """A value that a client sent, with its path for errors."""

    value: JsonValue
    path: str


def text_block(text: Given) -> TextBlock:
    """Return a block of text, which may be empty.

    Raises:
        DecodeError: the value is no text, or no text that UTF-8 can hold.
    """
    value = as_text(text.value, text.path)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DecodeError(text.path, "must be text that UTF-8 can hold") from None
    return TextBlock(text=value)


def data_media(data: Given, mime_type: Given, filename: Given) -> MediaRef:
    """Return inline media. The first bytes decide the media type, if they show one.

    Args:
        data: the content in base64.
        mime_type: the media type, or None.
        filename: a name, or None.

    Raises:
        DecodeError: a value is not allowed.
    """
    content = {"kind": "data", "data": as_text(data.value, data.path)}
    return bytes_media(made(MediaRef, content, data.path.rpartition(".")[0]).decoded(), mime_type, filename)


def bytes_media(data: bytes, mime_type: Given, filename: Given) -> MediaRef:
    """Return inline media, as `data_media` does for base64. Raises DecodeError, as `data_media` does."""
    return MediaRef.from_bytes(data, mime_type=check_type(*mime_type), filename=check_name(*filename))


def url_media(url: Given, mime_type: Given, filename: Given, rules: ContentRules) -> MediaRef:
    """Return media at a URL. A `data:` URL in base64 becomes inline media.

    Args:
        url: the URL.
        mime_type: the media type, or None. The type in a `data:` URL takes precedence.
        filename: a name, or None.
        rules: the addresses that may be named.

    Raises:
        DecodeError: a value or the address is not allowed.
    """
    text = as_text(url.value, url.path)
    head, comma, content = text.partition(",")
    if comma and head.lower().startswith("data:") and head.lower().endswith(";base64"):
        own = head[len("data:") : -len(";base64")].partition(";")[0]  # without parameters, such as a character set
        try:
            return data_media(Given(content, url.path), Given(own, url.path) if own else mime_type, filename)
        except DecodeError as error:
            path = error.path if error.path in {mime_type.path, filename.path} else url.path
            raise DecodeError(path, error.reason) from None
    if not rules.addresses.allows(text):
        raise DecodeError(
            url.path,
            "must be a data: URL in base64: the server allows no address such as this one. An operator allows addresses"
            " with `lanebus serve --allow-media-url`",
        )
    return made(
        MediaRef,
        {"kind": "url", "url": text, "mime_type": check_type(*mime_type), "filename": check_name(*filename)},
        url.path.rpartition(".")[0],
    )


def media_block_of(media: MediaRef, kind: Given | None = None) -> MediaBlock:
    """Return a block with media.

    Args:
        media: the media.
        kind: `image`, `audio`, `video` or `document`; None means that of the media type.

    Raises:
        DecodeError: the media are of another type. A document may be of any type.
    """
    if kind is None:
        return media_block(media)
    name = str(kind.value)
    if name != "document" and media.mime_type is not None and media.mime_type.partition("/")[0] != name:
        raise DecodeError(kind.path, f"is {name}, and the media are of {media.mime_type}")
    return MEDIA_TYPES[name](media=media)


def check_count(blocks: Sized, path: str, rules: ContentRules) -> None:
    """Check the number of blocks of a message. Call it before they are made: a request may have very many.

    Raises:
        DecodeError: there are none or too many.
    """
    if not 0 < len(blocks) <= rules.blocks:
        raise DecodeError(path, f"must have 1 to {rules.blocks} blocks")


def check_content(blocks: Sequence[B], path: str, rules: ContentRules) -> tuple[B, ...]:
    """Return the blocks of a message, or what still is to become blocks.

    Args:
        blocks: the blocks.
        path: path of the content, for errors.
        rules: their limits.

    Raises:
        DecodeError: there are no blocks or too many, or their media are too large.
    """
    check_count(blocks, path, rules)
    found = [media for each in blocks if isinstance(media := getattr(each, "media", None), MediaRef)]
    size = sum(media.inline_size_bytes for media in found)
    if size > rules.inline_bytes:
        raise DecodeError(path, f"has {size} bytes of inline media, at most {rules.inline_bytes}: upload them")
    return tuple(blocks)


def shown_blocks(message: UserMessage) -> Iterator[TextBlock | MediaBlock]:
    """Yield the texts and media of a message. Media that the bus has stored become texts: clients cannot load them."""
    for block in message.content:
        if isinstance(block, MediaBlock) and not _is_sent(block.media):
            yield TextBlock(text=f"[{block.type}: {block.media.mime_type or 'stored media'}]")
        elif isinstance(block, TextBlock | MediaBlock):
            yield block


def _is_sent(media: MediaRef) -> bool:
    return media.kind == "url" or (media.kind == "data" and media.mime_type is not None)


def plain_type(value: str | None) -> str | None:
    """Return a media type without its parameters, such as a character set; None if it is missing or empty."""
    return (value or "").partition(";")[0].strip() or None


def check_type(value: JsonValue, path: str) -> str | None:
    """Return an optional media type; None if it is missing.

    Raises:
        DecodeError: `value` is no media type.
    """
    if value is None:
        return None
    if not isinstance(value, str) or _TYPE.fullmatch(value) is None:
        raise DecodeError(path, "must be a media type such as image/png, without parameters")
    return value.lower()


def check_name(value: JsonValue, path: str) -> str | None:
    """Return an optional file name that is safe in any folder; None if it is missing.

    Raises:
        DecodeError: `value` is no text of 1 to 255 characters.
    """
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= _NAME_LIMIT:
        raise DecodeError(path, f"must be a name of 1 to {_NAME_LIMIT} characters")
    return sanitize_filename(value)
