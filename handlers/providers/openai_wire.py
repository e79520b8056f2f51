"""What OpenAI's two APIs have in common on the wire: parts of content, media, calls, fields, usage and limits."""

import json
from collections.abc import Iterable
from typing import Literal, NamedTuple

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import (
    AnnotationRef,
    AudioBlock,
    Block,
    DocumentBlock,
    ImageBlock,
    MediaRef,
    Rates,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    parse_json,
)
from lanebus.handlers.context import as_list, as_text, as_whole, below
from lanebus.handlers.providers.answer import count_of, priced
from lanebus.handlers.providers.request import (
    NO_OUTPUT,
    Json,
    Target,
    WireNames,
    WirePattern,
    arguments_of,
    flat,
    inline_type,
    is_failed,
    is_web,
    name_of,
    unreachable,
)

# The parts of a message's content, in a form that is independent of the JSON of OpenAI's two APIs.


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


PROVIDER = "openai"
"""Name of the provider in messages, the same for both APIs: ids and thinking of one API are valid in the other."""

Api = Literal["chat", "responses"]

TOOL_NAME = WirePattern.of("a-zA-Z0-9_-", 64)

PLACEHOLDER = "..."
"""Text of the user message that is sent if the context is empty, because a request needs a message."""


def tool_choice(target: Target, names: WireNames, *, nested: bool) -> Json:
    """Return an object with the key `tool_choice`. It is empty if there is no tool choice or no tool is offered.

    Args:
        target: the options of the request.
        names: names of the tools on the wire.
        nested: whether the tool's name is put into an object `function`, as Chat Completions requires.
    """
    choice = target.tool_choice
    if choice is None or not target.tools:
        return {}
    if choice.mode != "named":
        return {"tool_choice": choice.mode}
    named: Json = {"name": names.of(choice.name or "")}
    return {"tool_choice": {"type": "function", "function": named} if nested else {"type": "function", **named}}


# Convert the content of messages into parts. Content that an API cannot represent is left out, which is a loss.

MOVED = "(see the next message)"
"""Text of a result that has only media, if the API accepts no media in results."""


def parts_of(content: Iterable[Block], api: Api, target: Target, losses: list[str]) -> list[Part]:
    """Return the content as parts, in order. White space is kept; empty text is left out."""
    parts: list[Part] = []
    for block in content:
        part = _part(block, api, target)
        if not isinstance(part, str):
            parts += [part] if part else []
        elif isinstance(block, AudioBlock) and block.transcript:
            parts.append(Text(block.transcript))
            losses.append(f"audio sent as its transcript: {part}")
        else:
            losses.append(f"{name_of(block)} left out: {part}")
    return parts


def texts_of(content: Iterable[Block], losses: list[str], reason: str) -> list[str]:
    """Return the texts, in order. All other blocks are left out; each is a loss with this `reason`."""
    blocks = list(content)
    losses += [f"{name_of(block)} left out: {reason}" for block in blocks if not isinstance(block, TextBlock)]
    return [block.text for block in blocks if isinstance(block, TextBlock) and block.text]


def result_parts(message: ToolResultMessage, api: Api, target: Target, losses: list[str]) -> list[Part]:
    """Return a tool's result as parts: the content, or the structured JSON as text if there is no content.

    No OpenAI API has a field for failures, so a failed result starts with `error_prefix`.
    """
    parts: list[Part] = parts_of(flat(message.content), api, target, losses)
    if not parts and message.structured is not None:
        parts.append(Text(json.dumps(message.structured, ensure_ascii=False)))
    if api == "chat" and parts and not any(isinstance(part, Text) for part in parts):
        parts.insert(0, Text(MOVED))
    return _failed(parts, target.error_prefix) if is_failed(message) else parts


def _failed(parts: list[Part], prefix: str) -> list[Part]:
    """Put the prefix before the first text. If there is no text, add the prefix as a text of its own."""
    for at, part in enumerate(parts):
        if isinstance(part, Text):
            return [*parts[:at], Text(f"{prefix}{part.text}"), *parts[at + 1 :]]
    alone = prefix if parts else f"{prefix}{NO_OUTPUT}"
    return [Text(alone), *parts] if alone else parts


def _part(block: Block, api: Api, target: Target) -> Part | str | None:
    """Return the part, the reason as text if the block cannot be sent, or None if the block is empty."""
    match block:
        case TextBlock(text=text):
            return Text(text) if text else None
        case ImageBlock():
            return image_part(block, target.resolved(block.media), api)
        case AudioBlock():
            return audio_part(target.resolved(block.media), api)
        case DocumentBlock():
            return document_part(block, target.resolved(block.media), api)
        case _:
            return "there is no form for it"


# Convert images, audio and documents for OpenAI's APIs. A reference is passed on or left out, never fetched.

_IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_AUDIO_FORMATS: dict[str, Literal["wav", "mp3"]] = {
    "audio/wav": "wav",
    "audio/wave": "wav",
    "audio/x-wav": "wav",
    "audio/mp3": "mp3",
    "audio/mpeg": "mp3",
}
_PDF = "application/pdf"
_ANYTHING = "application/octet-stream"


def image_part(block: ImageBlock, media: MediaRef, api: Api) -> Image | str:
    """Return the image at `media`. If it cannot be sent, return the reason as text.

    Inline media of unknown type are declared as PNG.
    """
    match media.kind:
        case "data":
            media_type = inline_type(media) or "image/png"
            if media_type not in _IMAGE_TYPES:
                return f"{media_type} is none of {', '.join(sorted(_IMAGE_TYPES))}"
            return Image(url=_data_uri(media_type, media), detail=block.detail)
        case "url" if is_web(media.url):
            return Image(url=media.url, detail=block.detail)
        case "file_id" if api == "responses":
            return Image(file_id=media.file_id, detail=block.detail)
        case "file_id":
            return "images by the id of a file are taken by Responses alone"
        case _:
            return unreachable(media)


def audio_part(media: MediaRef, api: Api) -> Audio | str:
    """Return the audio. If it cannot be sent, return the reason as text. Audio of unknown type is declared as WAV."""
    if api == "responses":
        return "Responses takes no audio"
    if media.kind != "data":
        return "audio is taken inline alone"
    media_type = inline_type(media) or "audio/wav"
    audio_format = _AUDIO_FORMATS.get(media_type)
    return Audio(media.data or "", audio_format) if audio_format else f"{media_type} is neither WAV nor MP3"


def document_part(block: DocumentBlock, media: MediaRef, api: Api) -> File | Text | str:
    """Return the document at `media`. If `media` cannot be sent, return the text extracted from the document.

    If there is no such text, return the reason as text.

    Source: Chat Completions reads only PDF and no URLs; Responses also reads office documents.
    """
    found = _file(media, api)
    if isinstance(found, str) and (text := block.text or block.excerpt):
        return Text(text)
    return found


def _file(media: MediaRef, api: Api) -> File | Text | str:
    match media.kind:
        case "data":
            media_type = inline_type(media) or _ANYTHING
            if media_type.startswith("text/"):
                return _decoded(media)
            if media_type != _PDF and (api == "chat" or media_type == _ANYTHING):
                return f"{media_type} is neither PDF nor text"
            # The API requires a name with the data.
            name = media.filename or ("document.pdf" if media_type == _PDF else "document")
            return File(data=_data_uri(media_type, media), filename=name)
        case "url" if api == "chat":
            return "Chat Completions reads no files at URLs"
        case "url" if is_web(media.url):
            return File(url=media.url)
        case "file_id":
            return File(file_id=media.file_id)
        case _:
            return unreachable(media)


def _decoded(media: MediaRef) -> Text | str:
    try:
        text = media.decoded().decode("utf-8")
    except UnicodeDecodeError:
        return "its text is not UTF-8"
    return Text(text) if text else "its text is empty"


def _data_uri(media_type: str, media: MediaRef) -> str:
    return f"data:{media_type};base64,{media.data}"


def arguments_text(call: ToolCallBlock, losses: list[str]) -> str:
    """Return the arguments as the text of a JSON object.

    If the model's arguments were not a JSON object, their text goes back unchanged. This is reported as a loss, because
    servers may refuse such text.
    """
    if not call.arguments_raw or call.arguments:
        return json.dumps(arguments_of(call, losses), ensure_ascii=False)
    try:
        is_object = isinstance(parse_json(call.arguments_raw), dict)
    except DecodeError:
        is_object = False
    if not is_object:
        losses.append(f"arguments of tool call {call.id!r} are no JSON object, sent as they came")
    return call.arguments_raw


# Read and check fields of OpenAI's JSON. Errors name the path to the field.


def list_at(holder: Json, name: str, path: str) -> list[JsonValue]:
    """Return the list in a field; empty if the field is missing or null.

    Raises:
        DecodeError: the field holds something other than a list.
    """
    value = holder.get(name)
    return [] if value is None else as_list(value, below(path, name))


def text_at(holder: Json, name: str, path: str, *, required: bool = False) -> str:
    """Return the text in a field; "" if the field is missing or null, and not required.

    Raises:
        DecodeError: the field holds something other than text, or is required and missing or null.
    """
    value = holder.get(name)
    return "" if value is None and not required else as_text(value, below(path, name))


def index_at(holder: Json, name: str, path: str) -> int:
    """Return the index in a field.

    Raises:
        DecodeError: the field does not hold a whole number from 0.
    """
    return as_whole(holder.get(name), below(path, name))


def refs_of(annotations: list[JsonValue]) -> tuple[AnnotationRef, ...]:
    """Return the sources that a text's annotations name. Annotations that are not objects are ignored."""
    return tuple(ref_of(each) for each in annotations if isinstance(each, dict))


def ref_of(annotation: Json) -> AnnotationRef:
    """Return the source of one annotation. Chat Completions nests the fields in an object `url_citation`."""
    nested = annotation.get("url_citation")
    fields = nested if isinstance(nested, dict) else annotation
    url, file_id, index = fields.get("url"), fields.get("file_id"), fields.get("index")
    title = fields.get("title") or fields.get("filename")
    return AnnotationRef(
        url=url if isinstance(url, str) else None,
        file_id=file_id if isinstance(file_id, str) else None,
        index=index if isinstance(index, int) and not isinstance(index, bool) else None,
        title=title if isinstance(title, str) else None,
    )


def usage_of(value: JsonValue, rates: Rates | None, path: str = "usage") -> Usage | None:
    """Read a usage with the field names of Chat Completions or of Responses. Return None if `value` is None.

    OpenAI's input count includes tokens read from and written to the cache; `Usage.input` does not. The output count
    includes reasoning, as `Usage.output` does. The total is the provider's total, or else input plus output.

    Args:
        value: the JSON of the usage.
        rates: US dollars per million tokens; None leaves the cost unknown.
        path: path of `value`, for errors.

    Raises:
        DecodeError: `value` is not an object.
    """
    if value is None:
        return None
    if not isinstance(value, dict):
        raise DecodeError(path, "usage is a JSON object")
    into = _details(value, "prompt_tokens_details", "input_tokens_details")
    out = _details(value, "completion_tokens_details", "output_tokens_details")
    read, write = count_of(into.get("cached_tokens")), count_of(into.get("cache_write_tokens"))
    asked, answered = (
        _count(value, "prompt_tokens", "input_tokens"),
        _count(value, "completion_tokens", "output_tokens"),
    )
    usage = Usage(
        input=max(asked - read - write, 0),
        output=answered,
        reasoning=count_of(out.get("reasoning_tokens")),
        cache_read=read,
        cache_write=write,
        total_tokens=count_of(value.get("total_tokens")) or asked + answered,
        image_tokens=_sum(into, out, "image_tokens"),
        audio_tokens=_sum(into, out, "audio_tokens"),
        raw={**value},
    )
    return priced(usage, rates)


def _count(value: Json, *names: str) -> int:
    return next((count_of(value[name]) for name in names if name in value), 0)


def _details(value: Json, *names: str) -> Json:
    for name in names:
        if isinstance(details := value.get(name), dict):
            return details
    return {}


def _sum(into: Json, out: Json, name: str) -> int | None:
    """Return the sum of a count over input and output details; None if neither has this count."""
    counts = [count_of(details[name]) for details in (into, out) if details.get(name) is not None]
    return sum(counts) if counts else None
