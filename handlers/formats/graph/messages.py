"""Make the messages of the graph framework, and change the list of messages in a graph's state."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import JsonValue

from lanebus.bus.errors import InvalidContent
from lanebus.bus.messages import (
    AssistantMessage,
    AudioBlock,
    Block,
    Delta,
    DeveloperMessage,
    DocumentBlock,
    ImageBlock,
    LlmMessage,
    MediaRef,
    SystemMessage,
    TextBlock,
    ToolResultBlock,
    ToolResultMessage,
    UserMessage,
    VideoBlock,
    media_block,
    now_ms,
    uuid_id,
)

# The message constructors of the graph framework.
#
# Every message has an id; a constructor generates an id if the caller passes none.

SpokenRole = Literal["system", "developer", "user", "assistant"]

MediaType = Literal["image", "audio", "video", "document"]

M = TypeVar("M", bound=LlmMessage)

_ROLES = {
    "system": SystemMessage,
    "developer": DeveloperMessage,
    "user": UserMessage,
    "assistant": AssistantMessage,
}
_MEDIA = {"image": ImageBlock, "audio": AudioBlock, "video": VideoBlock, "document": DocumentBlock}


def text_message(content: str, role: SpokenRole = "user", id: str | None = None) -> LlmMessage:
    """Return a message with one text.

    Raises:
        InvalidContent: the role is unknown. For a tool's result, use `tool_message`.
    """
    return multimodal_message([content], role, id)


def multimodal_message(content: Sequence[Block | str], role: SpokenRole = "user", id: str | None = None) -> LlmMessage:
    """Return a message with texts and blocks, in order.

    Raises:
        InvalidContent: the role is unknown.
    """
    if role not in _ROLES:
        raise InvalidContent(f"Unsupported role: {role}")
    blocks = tuple(TextBlock(text=part) if isinstance(part, str) else part for part in content)
    message: LlmMessage = _ROLES[role](content=blocks, id=id or uuid_id(), timestamp=now_ms())
    return message


def image_message(
    image_url: str | None = None,
    image_base64: str | None = None,
    text: str | None = None,
    role: SpokenRole = "user",
    mime_type: str | None = None,
) -> LlmMessage:
    """Return a message with an image and, optionally, a text before it.

    Raises:
        InvalidContent: not exactly one of `image_url` and `image_base64` is set, the URL is a local path, the base64 is
            invalid, or the role is unknown.
    """
    if (image_url is None) == (image_base64 is None):
        raise InvalidContent("needs either image_url or image_base64")
    try:
        media = (
            MediaRef(kind="data", data=image_base64, mime_type=mime_type)
            if image_url is None
            else MediaRef.from_url(image_url, mime_type=mime_type)
        )
    except InvalidContent as error:
        raise InvalidContent(f"image: {error.fault.removeprefix('MediaRef: ')}", error.remedy) from None
    return multimodal_message([*([] if text is None else [text]), ImageBlock(media=media)], role)


def file_message(
    path: Path | str,
    text: str | None = None,
    mime_type: str | None = None,
    role: SpokenRole = "user",
    *,
    within: Path | None = None,
) -> LlmMessage:
    """Return a message with a local file and, optionally, a text before it. No other constructor opens a file.

    Raises:
        MediaRefused: the file is not a regular file, is empty, is outside of `within`, or does not match `mime_type`.
        MediaTooLarge: the file is larger than `MediaRef.from_file` accepts.
        OSError: the file does not exist or may not be read.
        InvalidContent: the role is unknown.
    """
    media = MediaRef.from_file(path, mime_type=mime_type, within=within)
    return multimodal_message([*([] if text is None else [text]), media_block(media)], role)


def tool_message(
    content: Sequence[ToolResultBlock], id: str | None = None, metadata: Mapping[str, JsonValue] | None = None
) -> tuple[ToolResultMessage, ...]:
    """Return the results of one batch, one message per result.

    The first message has the id and the metadata. The others have the id with a number. All have the id as `batch_id`.

    Raises:
        InvalidContent: there are no results.
    """
    if not content:
        raise InvalidContent("a tool message needs a result")
    id = id or uuid_id()
    first, *others = ToolResultMessage.from_results(content, batch_id=id)
    merged = {**(first.metadata or {}), **(metadata or {})}
    return (
        first.model_copy(update={"id": id, "metadata": merged or None}),
        *(result.model_copy(update={"id": f"{id}#{number}"}) for number, result in enumerate(others, 2)),
    )


def attach_media(message: M, media: MediaRef, as_type: MediaType) -> M:
    """Return the message with the media added to the end of its content.

    Raises:
        InvalidContent: `as_type` is unknown.
    """
    if as_type not in _MEDIA:
        raise InvalidContent(f"Unsupported media type: {as_type}")
    return message.model_copy(update={"content": (*message.content, _MEDIA[as_type](media=media))})


# Two pure operations on the list of messages in a graph's state.
#
# A log needs neither: a publish with a key is applied once, and deltas are not stored. Source: the code of the second
# graph format.


def add_messages(existing: Sequence[LlmMessage], new: Iterable[LlmMessage | Delta]) -> tuple[LlmMessage, ...]:
    """Return `existing` followed by the messages in `new`, without live deltas and without repeated ids.

    An id is repeated if an earlier message in `existing` or `new` has it. A message without an id is always added.
    """
    result = [*existing]
    known = {message.id for message in existing if message.id is not None}
    for message in new:
        if isinstance(message, Delta) or message.id in known:
            continue
        result.append(message)
        if message.id is not None:
            known.add(message.id)
    return tuple(result)


def without_tools(messages: Iterable[LlmMessage]) -> tuple[LlmMessage, ...]:
    """Remove messages with tool calls, and their results, if the next message after the results is an answer without
    calls.

    They are kept if the next message is not an answer, or if there is no next message.
    """
    kept: list[LlmMessage] = []
    pending: list[LlmMessage] = []
    for message in messages:
        match message:
            case AssistantMessage() if any(message.tool_calls()):
                pending.append(message)
            case ToolResultMessage():
                pending.append(message)
            case AssistantMessage():
                pending.clear()
                kept.append(message)
            case _:
                # Not an answer: the pending calls and results are kept, before this message.
                kept += pending
                pending.clear()
                kept.append(message)
    return (*kept, *pending)
