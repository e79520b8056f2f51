"""Content blocks of messages: one class for each block, with `type` as the discriminator."""

import hashlib
import json
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
