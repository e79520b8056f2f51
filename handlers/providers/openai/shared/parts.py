"""The parts of a message's content, in a form that is independent of the JSON of OpenAI's two APIs."""

from typing import Literal, NamedTuple

__all__ = ("Audio", "File", "Image", "Part", "Text")


class Text(NamedTuple):
    text: str
    """The text; never empty."""


class Image(NamedTuple):
    url: str | None = None
    """A web URL or a data URI."""
    file_id: str | None = None
    detail: Literal["auto", "low", "high"] | None = None


class File(NamedTuple):
    """A file. Exactly one of `data`, `url` and `file_id` is set."""

    data: str | None = None
    """A data URI."""
    url: str | None = None
    file_id: str | None = None
    filename: str | None = None


class Audio(NamedTuple):
    data: str
    """The audio in base64."""
    format: Literal["wav", "mp3"]


Part = Text | Image | File | Audio
