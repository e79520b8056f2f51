"""The pieces that a message's content is made of on OpenAI's wires, before either API's spelling."""

from typing import Literal, NamedTuple

__all__ = ("Audio", "File", "Image", "Part", "Text")


class Text(NamedTuple):
    text: str
    """never empty"""


class Image(NamedTuple):
    url: str | None = None
    """of the web, or a data URI"""
    file_id: str | None = None
    detail: Literal["auto", "low", "high"] | None = None


class File(NamedTuple):
    """Has one of data, url and file_id."""

    data: str | None = None
    """a data URI"""
    url: str | None = None
    file_id: str | None = None
    filename: str | None = None


class Audio(NamedTuple):
    data: str
    """base64"""
    format: Literal["wav", "mp3"]


Part = Text | Image | File | Audio
