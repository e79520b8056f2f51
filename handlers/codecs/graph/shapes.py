"""The form of the graph format's JSON, checked before a message is read. One class per object, with the same key names.

Unknown keys are not checked; the origin stores them. Source: both graph formats, with the defaults of both.
"""

from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from lanebus.bus.errors import DecodeError
from lanebus.handlers.json_fields import first_fault

__all__ = (
    "AnnotationShape",
    "AudioShape",
    "CallShape",
    "DataShape",
    "DocumentShape",
    "ErrorShape",
    "ImageShape",
    "MediaShape",
    "MessageShape",
    "ReasoningShape",
    "RefShape",
    "ResultShape",
    "Shape",
    "TextShape",
    "UsageShape",
    "VideoShape",
    "checked",
)

Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""A signed whole number of at most 64 bits. A larger number is an error, because some languages read it differently."""


class Shape(BaseModel):
    """An object of the graph format's JSON. Types are never converted."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)


S = TypeVar("S", bound=Shape)


class RefShape(Shape):
    url: str | None = None
    file_id: str | None = None
    page: Whole | None = None
    index: Whole | None = None
    title: str | None = None


class MediaShape(Shape):
    kind: Literal["url", "file_id", "data"] = "url"
    url: str | None = None
    file_id: str | None = None
    data_base64: str | None = None
    mime_type: str | None = None
    size_bytes: Whole | None = None
    sha256: str | None = None
    filename: str | None = None
    width: Whole | None = None
    height: Whole | None = None
    duration_ms: Whole | None = None
    page: Whole | None = None


class TextShape(Shape):
    text: str = ""
    annotations: list[RefShape] | None = None


class ImageShape(Shape):
    media: MediaShape
    alt_text: str | None = None
    bbox: Annotated[list[float], Field(min_length=4, max_length=4)] | None = None


class AudioShape(Shape):
    media: MediaShape
    transcript: str | None = None
    sample_rate: Whole | None = None
    channels: Whole | None = None


class VideoShape(Shape):
    media: MediaShape
    thumbnail: MediaShape | None = None


class DocumentShape(Shape):
    media: MediaShape
    text: str | None = None
    pages: list[Whole] | None = None
    excerpt: str | None = None


class DataShape(Shape):
    mime_type: str
    data_base64: str | None = None
    media: MediaShape | None = None


class CallShape(Shape):
    """A tool call or a remote tool call."""

    id: str
    name: str
    args: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    tool_type: str | None = None


class ResultShape(Shape):
    call_id: str
    output: JsonValue = None
    is_error: bool = False
    status: Literal["completed", "failed"] | None = None


class ReasoningShape(Shape):
    summary: str
    details: list[str] | None = None
    signature: str | None = None


class AnnotationShape(Shape):
    kind: Literal["citation", "note"] = "citation"
    refs: list[RefShape] = Field(default_factory=list[RefShape])
    spans: list[Annotated[list[Whole], Field(min_length=2, max_length=2)]] | None = None
    annotation: RefShape | None = None


class ErrorShape(Shape):
    message: str
    code: str | None = None
    data: dict[str, JsonValue] | None = None


class UsageShape(Shape):
    completion_tokens: Whole
    prompt_tokens: Whole
    total_tokens: Whole
    reasoning_tokens: Whole = 0
    cache_creation_input_tokens: Whole = 0
    cache_read_input_tokens: Whole = 0
    image_tokens: Whole | None = 0
    audio_tokens: Whole | None = 0


class MessageShape(Shape):
    """A message. `content` is not checked here: each block is checked by its type when it is read."""

    message_id: str | int = ""
    role: Literal["user", "assistant", "system", "tool"]
    content: JsonValue = None
    delta: bool = False
    tools_calls: list[dict[str, JsonValue]] | None = None
    reasoning: str | None = None
    timestamp: JsonValue = None
    metadata: dict[str, JsonValue] | None = None
    usages: UsageShape | None = None
    raw: dict[str, JsonValue] | None = None


def checked(shape: type[S], value: JsonValue, path: str, names: dict[str, str]) -> S:
    """Validate a value against its form.

    Args:
        shape: the form.
        value: the JSON to validate.
        path: path of the value; the path of an error starts with it.
        names: key → the alias that the data has in place of the key.

    Raises:
        DecodeError: a field is invalid. The error names the first invalid field as the data spells it.
    """
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        found, reason = first_fault(error)
        known = [part for part in found if part not in {"str", "int", "dict", "list"}]
        known[:1] = [names.get(name, name) for name in known[:1]]
        raise DecodeError(".".join([*([path] if path else []), *known]), reason) from None
