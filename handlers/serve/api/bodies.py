"""The JSON of answers, and of the bodies that clients post, as types: the OpenAPI document has their schemas."""

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Literal, NamedTuple, NotRequired, cast

from pydantic import Field, JsonValue, WithJsonSchema
from typing_extensions import TypedDict

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import CONTROLS, AnyContextEntry, Block, Control, Delta, MediaRef, Message, TextBlock, TurnId
from lanebus.bus.wire import CURSOR, Cursor
from lanebus.handlers.agent import read_control
from lanebus.handlers.context import Object, as_list, as_object, as_text, below
from lanebus.handlers.projections import CardState, Doing
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


class ProblemAnswer(TypedDict):
    """An error (RFC 9457)."""

    type: Literal["about:blank"]
    title: str
    """the HTTP status in words"""
    status: int
    detail: str
    """text for people; it may change"""
    error: str
    """name of the error, such as `session_closed`"""


class AccessAnswer(TypedDict):
    """What a token allows."""

    name: str
    canWrite: bool
    actions: list[str]
    lanes: list[Literal["llm", "extension"]]
    sessions: list[str]
    """patterns of session ids"""
    expires: float | None
    """Unix time in seconds"""


class ForkOrigin(TypedDict):
    """Where a fork began."""

    session: str
    position: int


class SessionAnswer(TypedDict):
    """The head of a session."""

    id: str
    agent: str | None
    hasWorker: bool
    position: int
    """position of the last entry; 0 if there is none"""
    created: float | None
    updated: float | None
    sizeBytes: int
    trimmed: int
    """position of the last trimmed entry"""
    firstKept: int
    archived: int
    isClosed: bool
    origin: ForkOrigin | None


class Failure(TypedDict):
    """Work of a session that was given up or is tried again."""

    group: str
    """the consumer group"""
    attempts: int
    """number of attempts that failed"""
    reason: str
    """why the last attempt failed"""
    since: float | None
    """when workers gave it up; null while they try again"""


class CallDecision(TypedDict):
    """The approval or denial of a call that no worker has applied yet."""

    decision: Literal["approve", "deny"]
    by: str | None
    position: int
    """position of the command"""


class ListedSession(SessionAnswer):
    """A session of the list. A field is null where the token does not allow it, or the entries were not read yet."""

    title: str | None
    state: CardState | None
    failure: Failure | None
    """why it is dead or tried again; null otherwise, and for a token that may not read its dead letters"""
    cost: float | None
    turns: int | None
    waiting: int | None
    """number of calls without an approval or denial"""
    isRead: bool


class ReadProgress(TypedDict):
    """How far the server has read the sessions, after its start or after new entries."""

    sessions: int
    """number of sessions that the token allows"""
    read: int
    """how many of them were read to their end"""


class SessionsAnswer(TypedDict):
    """A page of the sessions that match."""

    count: int
    """number of all that match"""
    sessions: list[ListedSession]
    cursor: str | None
    """value of `cursor` for the next page; null on the last one"""
    states: dict[CardState, int]
    """by state, the number of sessions that match if only the filter by state is changed to it"""
    agents: dict[str, int]
    """by agent, the same for the filter by agent. At most 100 agents, those with the most sessions"""
    isComplete: bool
    """whether all entries that the choice depends on were read: repeat the request until it is true"""
    progress: ReadProgress


class WaitingPlace(TypedDict):
    """A tool call that waits for a person, with its session."""

    session: str
    title: str | None
    agent: str
    turnId: TurnId
    toolCallId: str
    toolName: str
    why: str
    since: float | None
    position: int | None
    decision: CallDecision | None
    """null until a person approves or denies the call"""


class WaitingAnswer(TypedDict):
    """The calls of all sessions that wait for a person, the longest wait first."""

    count: int
    waiting: list[WaitingPlace]
    isComplete: bool
    """whether all sessions were read: until then, calls may be missing"""
    progress: ReadProgress


class InlineImage(TypedDict):
    """An image with nothing but inline data."""

    type: Literal["image"]
    data: str
    """base64"""
    mimeType: str


class ExtensionEntry(TypedDict):
    """A message of the extension lane: an event, a command or any other notice."""

    role: Literal["extension"]
    kind: str
    data: JsonValue


class Unreadable(TypedDict):
    """An entry that cannot be decoded."""

    role: Literal["unreadable"]
    error: str
    raw: str


class Entry(TypedDict):
    """A stored message with its place."""

    position: int
    delta: int
    """0, except for a live delta"""
    cursor: str
    lane: Literal["llm", "extension"]
    time: float
    """time of the append, in Unix seconds"""
    producer: str
    isImported: NotRequired[Literal[True]]
    message: Message | AnyContextEntry | ExtensionEntry | Unreadable


class ChatMessagesAnswer(TypedDict):
    """A conversation as a client of the AI SDK shows it."""

    messages: list[dict[str, JsonValue]]
    """each a `UIMessage` of the AI SDK"""
    after: int | None
    """position for `?after=` of the stream that resumes the open answer; null if no answer is open"""


class LiveDelta(TypedDict):
    """A piece of a message that a model is writing, as in the `delta` frames of an event stream."""

    position: int
    delta: int
    cursor: str
    lane: Literal["llm"]
    time: float
    producer: str
    message: Delta


class EntriesAnswer(TypedDict):
    """Entries in the order of their positions."""

    entries: list[Entry]
    cursor: str
    """cursor after the last position that was read"""
    more: bool
    """whether the range has more positions: request them with `after` and this cursor"""
    previous: int | None
    """value of `before` that reads the positions before this answer; null if there are none"""


class Published(TypedDict):
    """What was appended."""

    positions: list[int]
    duplicate: bool
    """whether an earlier request with the same key appended it"""
    agent: NotRequired[str]
    """the agent that the session belongs to now; only if the request names one. After a repeat, it may be another"""
    hasWorker: NotRequired[bool]
    """whether a live worker serves `agent`; only if the request names one"""


class CallAwaited(TypedDict):
    """A tool call that waits for a person."""

    turnId: TurnId
    toolCallId: str
    toolName: str
    why: str | None
    decision: CallDecision | None
    """null until a person approves or denies the call"""


class CurrentLoop(TypedDict):
    """The newest loop."""

    loopId: str
    turnIndex: int | None
    started: float
    ended: float | None


class OpenCommand(TypedDict):
    """A command without an answer."""

    position: int
    kind: str


class StatusAnswer(TypedDict):
    """What the agent does."""

    position: int
    state: CardState
    """what the session does, as in the list of sessions"""
    failure: Failure | None
    doing: Doing
    loop: CurrentLoop | None
    waiting: list[CallAwaited]
    commands: list[OpenCommand]


class CallAnswer(TypedDict):
    """A tool call of the newest loop."""

    toolCallId: str
    toolName: str
    position: int
    text: str
    """the arguments as JSON for people, or as the provider sent them"""
    callHash: str


class CostAnswer(TypedDict):
    """Exact amounts in US dollars, each as decimal text."""

    input: str
    output: str
    cache_read: str
    cache_write: str
    total: str
    source: NotRequired[str]


class TokensAnswer(TypedDict):
    """Tokens and cost."""

    input: int
    output: int
    reasoning: int
    cache_read: int
    cache_write: int
    total_tokens: int
    cost: CostAnswer | None


class UsageAnswer(TokensAnswer):
    """Tokens and cost of a session."""

    calls: int
    calls_of_unknown_cost: int
    countedFrom: int | None


class UploadAnswer(TypedDict):
    """An upload."""

    session: str
    sha256: str
    sizeBytes: int
    mimeType: str | None
    """what the client said; when the upload is complete, what its first bytes show, if they show a type"""
    filename: str | None
    offset: int
    """number of bytes that have arrived: send those that follow"""
    isComplete: bool
    """whether all bytes have arrived, with the right SHA-256"""
    pieceBytes: int
    """maximum number of bytes of one piece"""


# The bodies that clients post: their JSON schemas, and how they are decoded. A test sends what the schemas allow.


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
_COMMAND_CHARACTERS = 16_384
"""maximum number of characters of a command, without the text of a steer: workers and pages hold commands that wait"""


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

    Further fields are those of the command's class in `bus/messages/extension.py`. A `steer` has a "text" instead of a
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
    if len(json.dumps(data, ensure_ascii=False)) > _COMMAND_CHARACTERS:
        raise DecodeError("", f"has more than {_COMMAND_CHARACTERS} characters: shorten its texts")
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
