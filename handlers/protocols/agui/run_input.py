"""Read the request of a run. Pure."""

from collections.abc import Sized
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from pydantic.alias_generators import to_camel

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import Block, TextBlock, UserMessage, json_reason, now_ms
from lanebus.bus.wire import check_session_id
from lanebus.handlers.protocols.client_content import (
    DEFAULT_CONTENT_RULES,
    ContentRules,
    Given,
    check_content,
    check_count,
    data_media,
    media_block_of,
    plain_type,
    text_block,
    url_media,
)

_ID_LIMIT = 200


T = TypeVar("T")

_Several = Annotated[list[T], Field(fail_fast=True)]
"""A list whose first fault ends the reading: only this one is told, and a body can hold half a million."""


class _Read(BaseModel):
    """Unknown fields are ignored, as the protocol wants it."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=False)


class _Source(_Read):
    type: Literal["data", "url", "file"]
    value: str
    mime_type: str | None = None


class _Part(_Read):
    type: Literal["text", "image", "audio", "video", "document"]
    text: str | None = None
    source: _Source | None = None


class _Message(_Read):
    id: Annotated[str, Field(min_length=1)]
    role: str
    content: object = None  # JSON already: only that of new messages is read


class _Resume(_Read):
    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: JsonValue = None


class _Tool(_Read):
    name: str


class _Input(_Read):
    thread_id: str
    run_id: Annotated[str, Field(min_length=1, max_length=_ID_LIMIT)]
    protocol_version: str | None = None
    messages: _Several[_Message]
    tools: _Several[_Tool] | None = None
    resume: _Several[_Resume] | None = None


class _Parts(_Read):
    content: str | _Several[_Part]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A user's message that may be new."""

    key: str
    """idempotency key, made of the client's id of the message"""
    message: UserMessage


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """An answer to an interrupt."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: JsonValue
    key: str
    """idempotency key, made of the ids of the run and the interrupt"""


@dataclass(frozen=True, slots=True)
class RunInput:
    """The request of a run."""

    thread_id: str
    run_id: str
    is_current: bool
    """whether the client speaks version 1.0 or later"""
    prompts: tuple[Prompt, ...]
    """the user's messages after the last answer that the client knows, without those whose ids the server made"""
    answers: tuple[GivenAnswer, ...]
    known: tuple[str, ...]
    """ids of all messages that the client shows, in their order"""
    tools: tuple[str, ...]
    """names of the first tools that the client offers, to be shown to people"""


def read_run_input(body: JsonValue, rules: ContentRules = DEFAULT_CONTENT_RULES, *, most: int = 200) -> RunInput:
    """Read a `RunAgentInput`. `state`, `context` and `forwardedProps` are not read.

    Only the user's messages after the last answer can be new: the log is the truth about all before. Publish each of
    them with its key, which adds nothing if it was published before.

    Args:
        body: the JSON.
        rules: what a new message may hold.
        most: maximum number of new messages, and of answers to interrupts. Each is published by itself.

    Raises:
        DecodeError: the body is no such request. The error names the path of the fault.
        InvalidSessionId: the thread's id cannot be that of a session.
    """
    try:
        read = _Input.model_validate(body)
    except ValidationError as error:
        raise _fault(error) from None
    newest = list[_Message]()
    for message in reversed(read.messages):
        if message.role == "user":
            newest.append(message)
        elif message.role in {"assistant", "tool"}:
            break
    for path, new in (("messages", newest), ("resume", read.resume or [])):
        if len(new) > most:
            raise DecodeError(path, f"has {len(new)} new ones for the agent: send at most {most}")
    return RunInput(
        thread_id=check_session_id(read.thread_id, "threadId"),
        run_id=read.run_id,
        is_current=read.protocol_version is not None,
        prompts=tuple(_prompt(each, rules) for each in reversed(newest) if not each.id.startswith("lanebus-")),
        answers=tuple(
            GivenAnswer(each.interrupt_id, each.status, each.payload, _key(read.run_id, each.interrupt_id))
            for each in read.resume or ()
        ),
        known=tuple(each.id for each in read.messages),
        tools=tuple(each.name[:64] for each in (read.tools or ())[:20]),
    )


def _prompt(read: _Message, rules: ContentRules) -> Prompt:
    # The ids of answers have a `#`. A user's message with the id of an answer would take its place.
    if len(read.id) > _ID_LIMIT or not read.id.isprintable() or "#" in read.id:
        raise DecodeError("messages.id", f"must be 1 to {_ID_LIMIT} printable characters, without #")
    if isinstance(read.content, Sized) and not isinstance(read.content, str):
        check_count(read.content, "messages.content", rules)
    try:
        content = _Parts.model_validate({"content": read.content}).content
    except ValidationError as error:
        raise _fault(error, "messages.") from None
    parts = [_Part(type="text", text=content)] if isinstance(content, str) else content
    blocks = [_block(part, rules) for part in parts]
    if not any(not isinstance(block, TextBlock) or block.text.strip() for block in blocks):
        raise DecodeError("messages.content", "must not be empty")
    checked = check_content(blocks, "messages.content", rules)
    return Prompt(_key(read.id), UserMessage(content=checked, id=read.id, timestamp=now_ms()))


def _block(part: _Part, rules: ContentRules) -> Block:
    if part.type == "text":
        return text_block(Given(part.text or "", "messages.content.text"))
    path, source = "messages.content.source", part.source
    if source is None or source.type == "file":
        raise DecodeError(path, "must have the type data or url")
    value, mime_type = Given(source.value, f"{path}.value"), Given(plain_type(source.mime_type), f"{path}.mimeType")
    name = Given(None, path)
    media = url_media(value, mime_type, name, rules) if source.type == "url" else data_media(value, mime_type, name)
    return media_block_of(media, Given(part.type, "messages.content.type"))


def _key(*parts: str) -> str:
    return f"agui.{sha256(chr(0).join(parts).encode(errors='surrogatepass')).hexdigest()[:32]}"


def _fault(error: ValidationError, path: str = "") -> DecodeError:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return DecodeError(path + ".".join(map(str, first["loc"])), json_reason(first))
