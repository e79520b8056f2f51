"""Blocks: what a message is made of. One class a block, told apart by `type`."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue, SerializeAsAny, SerializerFunctionWrapHandler, model_serializer, model_validator

from lanebus.bus.messages.base import Wire
from lanebus.bus.messages.media import MediaRef

__all__ = (
    "AnnotationBlock",
    "AnnotationRef",
    "AudioBlock",
    "Block",
    "Blocks",
    "DataBlock",
    "DocumentBlock",
    "ErrorBlock",
    "ImageBlock",
    "RedactedThinkingBlock",
    "TextBlock",
    "ThinkingBlock",
    "ToolCallBlock",
    "ToolResultBlock",
    "UnknownBlock",
    "VideoBlock",
    "media_block",
)

Metadata = dict[str, JsonValue]


class AnnotationRef(Wire):
    """A source that a text refers to."""

    url: str | None = None
    file_id: str | None = None
    page: int | None = None
    index: int | None = None
    title: str | None = None


class TextBlock(Wire):
    type: Literal["text"] = "text"
    text: str
    annotations: Annotated[tuple[AnnotationRef, ...] | None, Field(strict=False)] = None
    signature: str | None = None
    """of the thinking behind it, where the provider signs text: it goes back with it to the model that wrote it"""


class ImageBlock(Wire):
    """One image. Inline and with nothing else to say it has seed 001's JSON: `{"type":"image","data","mimeType"}`."""

    type: Literal["image"] = "image"
    media: MediaRef
    alt_text: str | None = None
    bbox: Annotated[tuple[float, float, float, float] | None, Field(strict=False)] = None
    """x1, y1, x2, y2"""
    group_id: str | None = None
    """images that one block of seed 000 held share it"""
    detail: Literal["auto", "low", "high"] | None = None
    """how closely a model is to look"""
    signature: str | None = None
    """of the thinking behind an image that a model made, see `TextBlock`"""

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
    type: Literal["audio"] = "audio"
    media: MediaRef
    transcript: str | None = None
    sample_rate: int | None = None
    """hertz"""
    channels: int | None = None
    group_id: str | None = None
    """clips that one block of seed 000 held share it"""


class VideoBlock(Wire):
    type: Literal["video"] = "video"
    media: MediaRef
    thumbnail: MediaRef | None = None


class DocumentBlock(Wire):
    type: Literal["document"] = "document"
    media: MediaRef
    text: str | None = None
    """the whole text, extracted"""
    pages: Annotated[tuple[int, ...] | None, Field(strict=False)] = None
    excerpt: str | None = None


class DataBlock(Wire):
    """Other data, for programs; no provider takes it."""

    type: Literal["data"] = "data"
    mime_type: str
    media: MediaRef | None = None


class ThinkingBlock(Wire):
    """A model's thinking. It goes back to the model that wrote it, with its signature, and to no other as it is."""

    type: Literal["thinking"] = "thinking"
    text: Annotated[str, Field(validation_alias="thinking", serialization_alias="thinking")]
    signature: str | None = None
    details: Annotated[tuple[str, ...] | None, Field(strict=False)] = None


class RedactedThinkingBlock(Wire):
    """Thinking that the provider keeps unreadable. It is never shown as text."""

    type: Literal["redacted_thinking"] = "redacted_thinking"
    data: str


class ToolCallBlock(Wire):
    """A model's wish to have a tool run. `id` is what the tool's result answers."""

    type: Literal["toolCall"] = "toolCall"
    id: str
    name: str
    arguments: JsonValue = Field(default_factory=dict[str, JsonValue])
    arguments_raw: str | None = None
    """the provider's text, kept where it did not parse"""
    tool_kind: str | None = None
    """a hint for UIs"""
    tool_type: str | None = None
    """such as web_search"""
    call_type: str | None = None
    """how the provider calls this kind of call, such as function"""
    remote: bool | None = None
    """runs in the user's client"""
    signature: str | None = None
    """of the thinking behind it, where the provider signs calls, see `TextBlock`"""
    metadata: Metadata | None = None
    """private: on no provider's wire"""

    @property
    def effective_call_type(self) -> str:
        """`call_type`, or "function" where nothing is said. Source: seed 004."""
        return self.call_type or "function"


class ToolResultBlock(Wire):
    """A tool's result inside another message. In the log a result is its own message; this is one that came so."""

    type: Literal["toolResult"] = "toolResult"
    tool_call_id: str
    content: Annotated[tuple["Block", ...], Field(strict=False)] = ()
    structured: JsonValue | None = None
    """the result as JSON, where the tool gave JSON"""
    is_error: bool = False
    status: Literal["completed", "failed"] | None = None
    metadata: Metadata | None = None
    """private: on no provider's wire"""
    terminate: bool | None = None
    """no model call has to follow"""
    terminate_message: str | None = None
    """what is said in the model's place then"""


class AnnotationBlock(Wire):
    type: Literal["annotation"] = "annotation"
    kind: Literal["citation", "note"] = "citation"
    refs: Annotated[tuple[AnnotationRef, ...], Field(strict=False)] = ()
    spans: Annotated[tuple[Annotated[tuple[int, int], Field(strict=False)], ...] | None, Field(strict=False)] = None
    """start and end of each place, in characters"""


class ErrorBlock(Wire):
    type: Literal["error"] = "error"
    message: str
    code: str | None = None
    data: Metadata | None = None


class UnknownBlock(Wire):
    """A block of a type we do not know, kept whole in the log and left out of requests.

    One that a provider's own tools made goes back to the model in whose answer it stood, as it came.
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

# Each block by its own serializer: through the union's a message takes a fifth longer to write.
Blocks = Annotated[tuple[SerializeAsAny[Block], ...], Field(strict=False)]

ToolResultBlock.model_rebuild()


def media_block(media: MediaRef) -> ImageBlock | AudioBlock | VideoBlock | DocumentBlock:
    """Return the block for media of this type: a document if it is no image, sound or video."""
    match (media.mime_type or "").partition("/")[0]:
        case "image":
            return ImageBlock(media=media)
        case "audio":
            return AudioBlock(media=media)
        case "video":
            return VideoBlock(media=media)
        case _:
            return DocumentBlock(media=media)
