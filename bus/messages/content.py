"""Content blocks of messages: one class for each block, with `type` as the discriminator, and the text of blocks."""

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, JsonValue, SerializeAsAny, SerializerFunctionWrapHandler, model_serializer, model_validator

from lanebus.bus.errors import require_instance, require_text
from lanebus.bus.messages.base import Wire
from lanebus.bus.messages.media import MediaRef

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
