"""The bodies that clients post: their JSON schemas, and how they are decoded. A test sends what the schemas allow."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Literal, NamedTuple, NotRequired, cast

from pydantic import Field, JsonValue, WithJsonSchema
from typing_extensions import TypedDict

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import CONTROLS, Block, Control, MediaRef, TextBlock, TurnId
from lanebus.bus.wire import CURSOR, Cursor
from lanebus.handlers.agent import read_control
from lanebus.handlers.context import Object, as_list, as_object, as_text, below
from lanebus.handlers.protocols import (
    DEFAULT_CONTENT_RULES,
    MEDIA_TYPES,
    MIME_TYPE,
    ContentRules,
    Given,
    check_content,
    check_count,
    data_media,
    media_block_of,
    text_block,
    url_media,
)
from lanebus.handlers.serve.errors import UploadMissing

# Decode the blocks of a posted message. Every error names the path of the field.
#
# Media are named by the SHA-256 of an upload, are inline, or are at an address that the server allows.

_SHA256_TEXT = re.compile(r"[0-9a-f]{64}")


class PostedMedia(NamedTuple):
    """A block of media, whose upload is still to be found if the media are not inline."""

    type: str
    media: MediaRef
    path: str


def read_content(value: JsonValue, path: str, rules: ContentRules) -> tuple[TextBlock | PostedMedia, ...]:
    """Decode the blocks of a message.

    Args:
        value: the JSON.
        path: path of the value, for errors.
        rules: how many blocks, how many bytes of inline media, and which addresses are allowed.

    Raises:
        DecodeError: the value is no list of blocks, or a block has another shape.
    """
    given = as_list(value, path)
    check_count(given, path, rules)
    return check_content([_block(each, below(path, at), rules) for at, each in enumerate(given)], path, rules)


async def with_media(
    blocks: tuple[TextBlock | PostedMedia, ...], store: Callable[[str], Awaitable[MediaRef]]
) -> tuple[Block, ...]:
    """Return the blocks of the message.

    Args:
        blocks: the posted blocks.
        store: moves an upload to the media store by its SHA-256, and returns the reference.

    Raises:
        DecodeError: there is no complete upload of this SHA-256, or it is of another type than its block.
        BusError: the upload could not be stored.
    """
    return tuple([each if isinstance(each, TextBlock) else await _stored(each, store) for each in blocks])


async def _stored(block: PostedMedia, store: Callable[[str], Awaitable[MediaRef]]) -> Block:
    media, path = block.media, below(block.path, "media")
    if media.kind == "sha256":
        try:
            media = await store(media.sha256 or "")
        except UploadMissing:
            raise DecodeError(
                below(path, "sha256"), "names no complete upload of yours to this session: upload the file first"
            ) from None
    return media_block_of(media, Given(block.type, below(block.path, "type")))


def _block(value: JsonValue, path: str, rules: ContentRules) -> TextBlock | PostedMedia:
    fields = as_object(value, path)
    kind = fields.get("type")
    if kind == "text":
        check_fields(fields, ("type", "text"), path)
        block = text_block(Given(fields.get("text"), below(path, "text")))
        if not block.text.strip():
            raise DecodeError(below(path, "text"), "must be a text that is not empty")
        return block
    if not isinstance(kind, str) or kind not in MEDIA_TYPES:
        raise DecodeError(below(path, "type"), f"must be text, {', '.join(MEDIA_TYPES)}")
    check_fields(fields, ("type", "media"), path)
    return PostedMedia(kind, _media(fields.get("media"), below(path, "media"), rules), path)


def _media(value: JsonValue, path: str, rules: ContentRules) -> MediaRef:
    fields = as_object(value, path)

    def given(name: str) -> Given:
        return Given(fields.get(name), below(path, name))

    match fields.get("kind"):
        case "sha256":
            check_fields(fields, ("kind", "sha256"), path)
            digest = as_text(fields.get("sha256"), below(path, "sha256"))
            if _SHA256_TEXT.fullmatch(digest) is None:
                raise DecodeError(below(path, "sha256"), "must be 64 lower-case hex digits")
            return MediaRef(kind="sha256", sha256=digest)
        case "data":
            check_fields(fields, ("kind", "data", "mimeType", "filename"), path)
            return data_media(given("data"), given("mimeType"), given("filename"))
        case "url" if rules.addresses.has_any:
            check_fields(fields, ("kind", "url", "mimeType", "filename"), path)
            return url_media(given("url"), given("mimeType"), given("filename"), rules)
        case _:
            raise DecodeError(below(path, "kind"), "must be sha256, of an upload, or data, in base64")


def check_fields(fields: Object, allowed: tuple[str, ...], path: str = "") -> None:
    """Check the names of an object's fields. Raise DecodeError with the path of the first unknown one."""
    if unknown := fields.keys() - {*allowed}:
        raise DecodeError(below(path, min(unknown)), f"is unknown: the fields are {', '.join(allowed)}")


# Decode the messages and commands that clients post.

KEY_LIMIT = 200
"""maximum number of characters of a key or an agent's name"""

_FIELDS = 100  # a command has a dozen at most; pydantic makes an error for each unknown one


class PostedCommand(NamedTuple):
    """A command from a client to an agent."""

    name: str
    control: Control
    key: str | None
    text: str | None
    """the user's message of `steer`; None for other commands"""


class PostedMessage(NamedTuple):
    """A message from a client."""

    content: tuple[TextBlock | PostedMedia, ...]
    key: str | None
    is_follow_up: bool
    agent: str | None
    """the agent that the session must belong to. A new session gets this agent. None means any agent"""
    expected: Cursor | None
    """the end of the session that the client saw; None means any end"""


class PostedHandover(NamedTuple):
    """A client's request to hand a session over."""

    agent: str
    reason: str | None
    key: str | None
    expected: Cursor | None
    """as for `PostedMessage`"""


def read_posted_message(body: JsonValue, rules: ContentRules = DEFAULT_CONTENT_RULES) -> PostedMessage:
    """Decode a message `{"text": …, "key"?: …, "followUp"?: …, "agent"?: …, "expected"?: …}`, or one with `content` for
    `text`.

    Args:
        body: the JSON.
        rules: how many blocks, how many bytes of inline media, and which addresses are allowed.

    Raises:
        DecodeError: the body is not a message, has other fields, or a field's value is not allowed.
        InvalidCursor: `expected` is not a cursor.
    """
    if not isinstance(body, dict):
        raise DecodeError(
            "",
            'post a message as {"text": …} or {"content": […]}, and perhaps "key", "followUp", "agent" or "expected"',
        )
    check_fields(body, ("text", "content", "key", "followUp", "agent", "expected"))
    if "text" in body and "content" in body:
        raise DecodeError("content", "give either a text or blocks")
    is_follow_up = body.get("followUp", False)
    if not isinstance(is_follow_up, bool):
        raise DecodeError("followUp", "must be true or false")
    agent = check_key(body.get("agent"), "agent")
    if is_follow_up and agent is not None:
        raise DecodeError("agent", "a follow-up goes to the agent of the session: leave it out")
    expected = _read_expected(body.get("expected"))
    if is_follow_up and expected is not None:
        raise DecodeError("expected", "a follow-up waits until the loop has ended: leave it out")
    if "content" in body:
        content = read_content(body["content"], "content", rules)
    else:
        content = (TextBlock(text=check_text(body.get("text"))),)
    return PostedMessage(content, check_key(body.get("key"), "key"), is_follow_up, agent, expected)


def read_handover(body: JsonValue) -> PostedHandover:
    """Decode a handover `{"agent": …, "reason"?: …, "key"?: …, "expected"?: …}`.

    Raises:
        DecodeError: the body is not a handover, has other fields, or a field's value is not allowed.
        InvalidCursor: `expected` is not a cursor.
    """
    _refuse_sender(body)
    if not isinstance(body, dict) or "agent" not in body:
        raise DecodeError("", 'hand a session over with {"agent": …}, with an optional "reason", "key" and "expected"')
    check_fields(body, ("agent", "reason", "key", "expected"))
    agent, reason, key = (check_key(body.get(field), field) for field in ("agent", "reason", "key"))
    if agent is None:
        raise DecodeError("agent", "must be the name of an agent")
    return PostedHandover(agent, reason, key, _read_expected(body.get("expected")))


def _read_expected(value: JsonValue) -> Cursor | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise DecodeError("expected", "must be the text of a cursor, as the server has sent it")
    return Cursor.parse(value)


def read_command(body: JsonValue, session: str, by: str) -> PostedCommand:
    """Decode a command `{"command": "abort", "key"?: …, …}`.

    Further fields are those of the command's class in `bus/messages/control.py`. A `steer` has a "text" instead of a
    "position". A "turnId" may be written as a string, such as "main.3#0".

    Args:
        body: the JSON.
        session: id of the session that the command is for.
        by: name of the sender.

    Raises:
        DecodeError: the body is not a command, or has fields that the command does not accept.
        UnknownKind: there is no command of this name.
    """
    if not isinstance(body, dict) or not isinstance(name := body.get("command"), str):
        raise DecodeError("", 'post a command as {"command": <name>, …}')
    if len(body) + sum(len(value) for value in body.values() if isinstance(value, dict | list)) > _FIELDS:
        raise DecodeError("", f"has more than {_FIELDS} fields, which no command has")
    _refuse_sender(body)
    key = check_key(body.get("key"), "key")
    data = {field: value for field, value in body.items() if field not in {"command", "key"}}
    if isinstance(turn := data.get("turnId"), str):
        try:
            data["turnId"] = TurnId.from_text(turn, session).model_dump(mode="json", by_alias=True)
        except DecodeError as error:
            raise DecodeError("turnId", error.reason) from None
    text = None
    if name == "steer":
        text = check_text(data.pop("text", None))
        if "position" in data:
            raise DecodeError("position", "leave it out: the server sets it")
    return PostedCommand(name, read_control(name, {**data, "by": by}), key, text)


def _refuse_sender(body: JsonValue) -> None:
    if isinstance(body, dict) and "by" in body:
        raise DecodeError("by", "leave it out: the sender is the name that belongs to the token")


def check_key(value: JsonValue, field: str) -> str | None:
    """Return an optional key or name; None if `value` is missing.

    Raises:
        DecodeError: `value` is not a printable text of 1 to `KEY_LIMIT` characters.
    """
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= KEY_LIMIT or not value.isprintable():
        raise DecodeError(field, f"must be 1 to {KEY_LIMIT} printable characters")
    return value


def check_text(value: JsonValue) -> str:
    """Return the text of a user's message.

    Raises:
        DecodeError: `value` is missing, not a text, empty, or no text that UTF-8 can hold.
    """
    if not isinstance(value, str) or not value.strip():
        raise DecodeError("text", "must be a text that is not empty")
    return text_block(Given(value, "text")).text


# The JSON schemas of request bodies. They are decoded above; a test sends what these schemas allow.

_TEXT = r"\S"
_KEY = rf"^[ -~]{{1,{KEY_LIMIT}}}$"  # other printable characters are accepted too, but no pattern names them

_SHA256_PATTERN = r"^[0-9a-f]{64}$"
_MediaType = Annotated[str, Field(pattern=f"^{MIME_TYPE}$")]
_FileName = Annotated[str, Field(min_length=1, max_length=255)]
_Cursor = Annotated[str, Field(pattern=rf"^(?:{CURSOR.pattern})$")]

Name = Annotated[str, Field(pattern=_KEY)]
"""a key or a name"""

ProtocolBody = Annotated[JsonValue, WithJsonSchema({"type": "object"})]
"""the body of another project's protocol, which has its own schema"""


class _AboutMessage(TypedDict):
    __pydantic_config__ = {"extra": "forbid"}  # type: ignore[misc]  # noqa: RUF012  # pydantic reads it from the class
    key: NotRequired[Name | None]
    followUp: NotRequired[bool | None]
    agent: NotRequired[Name | None]
    expected: NotRequired[_Cursor | None]


class TextBody(_AboutMessage):
    """A user's message of one text."""

    text: Annotated[str, Field(pattern=_TEXT)]


class UploadedMedia(TypedDict):
    """A complete upload of the sender to this session."""

    __pydantic_config__ = {"extra": "forbid"}  # type: ignore[misc]  # noqa: RUF012  # pydantic reads it from the class
    kind: Literal["sha256"]
    sha256: Annotated[str, Field(pattern=_SHA256_PATTERN)]


class InlineMedia(TypedDict):
    """Small media in base64. The first bytes decide the type, if they show one."""

    __pydantic_config__ = {"extra": "forbid"}  # type: ignore[misc]  # noqa: RUF012  # pydantic reads it from the class
    kind: Literal["data"]
    data: Annotated[str, Field(min_length=4, pattern=r"^[A-Za-z0-9+/]+={0,2}$")]
    mimeType: NotRequired[_MediaType | None]
    filename: NotRequired[_FileName | None]


class AddressedMedia(TypedDict):
    """Media at an address that `lanebus serve --allow-media-url` allows. The provider fetches it."""

    __pydantic_config__ = {"extra": "forbid"}  # type: ignore[misc]  # noqa: RUF012  # pydantic reads it from the class
    kind: Literal["url"]
    url: str
    mimeType: NotRequired[_MediaType | None]
    filename: NotRequired[_FileName | None]


class PostedText(TypedDict):
    """A text of a user's message."""

    __pydantic_config__ = {"extra": "forbid"}  # type: ignore[misc]  # noqa: RUF012  # pydantic reads it from the class
    type: Literal["text"]
    text: Annotated[str, Field(pattern=_TEXT)]


class PostedFile(TypedDict):
    """An image, a clip or a document of a user's message. Other than a document, the media must be of this type."""

    __pydantic_config__ = {"extra": "forbid"}  # type: ignore[misc]  # noqa: RUF012  # pydantic reads it from the class
    type: Literal["image", "audio", "video", "document"]
    media: UploadedMedia | InlineMedia | AddressedMedia


PostedBlock = PostedText | PostedFile
"""a block of a user's message"""


class ContentBody(_AboutMessage):
    """A user's message of several blocks."""

    content: Annotated[list[PostedBlock], Field(min_length=1)]


MessageBody = TextBody | ContentBody
"""a user's message"""


class UploadBody(TypedDict):
    """The announcement of a file."""

    __pydantic_config__ = {"extra": "forbid"}  # type: ignore[misc]  # noqa: RUF012  # pydantic reads it from the class
    sha256: Annotated[str, Field(pattern=_SHA256_PATTERN)]
    sizeBytes: Annotated[int, Field(ge=1)]
    mimeType: NotRequired[_MediaType | None]
    filename: NotRequired[_FileName | None]


class HandoverBody(TypedDict):
    """A handover of the session to an agent."""

    __pydantic_config__ = {"extra": "forbid"}  # type: ignore[misc]  # noqa: RUF012  # pydantic reads it from the class
    agent: Name
    reason: NotRequired[Name | None]
    key: NotRequired[Name | None]
    expected: NotRequired[_Cursor | None]


def _command(name: str, control: type[Control]) -> Mapping[str, JsonValue]:
    """Return the schema of one command: the fields of its class, as `read_command` takes them."""
    made = cast("dict[str, JsonValue]", control.model_json_schema(by_alias=True))
    fields = dict(cast("Mapping[str, JsonValue]", made.get("properties", {})))
    required = set(cast("list[str]", made.get("required", [])))
    fields.pop("by")
    if "turnId" in fields:
        fields["turnId"] = {"anyOf": [cast("dict[str, JsonValue]", made["$defs"])["TurnId"], {"type": "string"}]}
    if "callHash" in fields:
        fields["callHash"] = {"anyOf": [{"type": "string", "pattern": "^[0-9a-f]{64}$"}, {"type": "null"}]}
    if name == "steer":
        fields["text"] = {"type": "string", "pattern": _TEXT}
        fields.pop("position")
        required = (required - {"position"}) | {"text"}
    return {
        "type": "object",
        "title": control.__name__,
        "description": made.get("description", ""),
        "properties": {
            "command": {"const": name},
            "key": {"anyOf": [{"type": "string", "pattern": _KEY}, {"type": "null"}]},
            **fields,
        },
        "required": ["command", *sorted(required)],
        "additionalProperties": False,
    }


CommandBody = Annotated[
    JsonValue, WithJsonSchema({"oneOf": [dict(_command(name, each)) for name, each in CONTROLS.items()]})
]
