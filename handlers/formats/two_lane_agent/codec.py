"""Read and write the exact JSON of the two-lane agent's messages.

Also node ids as the agent shows them to a model, and the JSON that a model was asked to answer with.

Also the words and moments of events: names of enum values, and RFC 3339 in UTC.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from types import MappingProxyType
from typing import Literal, TypeVar

from pydantic import BaseModel, JsonValue

from lanebus.bus.errors import DecodeError, MessageError, UnknownRole, require_instance
from lanebus.bus.messages import (
    LARGEST_NODE,
    AssistantMessage,
    Block,
    ContextEntry,
    Delta,
    ExtensionMessage,
    ImageBlock,
    LlmMessage,
    MediaRef,
    MessageEnded,
    NodeTag,
    Publishable,
    RevertCategory,
    SystemMessage,
    TagKind,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    TurnId,
    TurnStarted,
    UnknownBlock,
    Usage,
    UserMessage,
    parse_event,
    parse_json,
    require_json,
    sniff,
)
from lanebus.handlers.context import Object, as_flag, as_list, as_object, as_text, as_whole, below, made
from lanebus.handlers.formats.codec import Codec, Written, written
from lanebus.handlers.formats.transcript import datetime_of, milliseconds_of, parse_datetime

# This codec does not read or write the fields that only lanebus's own JSON has. It accepts and refuses the same JSON as
# the two-lane agent, with two exceptions that the reader below names.
#
# The two-lane agent has extension messages, and user, assistant and tool result messages. Their content is text, inline
# images, thinking and tool calls. All other messages and blocks of lanebus are reported as losses.

_CAMEL = {
    "error_message": "errorMessage",
    "cache_read": "cacheRead",
    "cache_write": "cacheWrite",
    "total_tokens": "totalTokens",
}


def _read(value: JsonValue) -> tuple[Publishable, ...]:
    require_json(value)
    return (read_message(value),)


def _read_camel(value: JsonValue) -> tuple[Publishable, ...]:
    require_json(value)
    if not isinstance(value, dict) or value.get("role") != "assistant":
        return (read_message(value),)
    usage = value.get("usage")
    snake = _snake(value, "")
    if isinstance(usage, dict):
        snake["usage"] = _snake(usage, "usage.")
    return (read_message(snake),)


def _snake(value: Object, path: str) -> Object:
    for name, camel in _CAMEL.items():
        if camel in value and name in value:
            raise DecodeError(f"{path}{camel}", f"is set twice. It is the same field as {name}")
    names = {camel: name for name, camel in _CAMEL.items()}
    return {names.get(key, key): item for key, item in value.items()}


def _write(messages: Sequence[Publishable], lossy: bool) -> Written:
    writer = MessageWriter()
    values = [writer.write(message, str(index)) for index, message in enumerate(messages)]
    return written("001", [value for value in values if value is not None], writer.losses, lossy=lossy)


def _write_camel(messages: Sequence[Publishable], lossy: bool) -> Written:
    found = _write(messages, lossy)
    return Written(tuple(_camel(value) for value in found.values), found.losses)


def _camel(value: JsonValue) -> JsonValue:
    if not isinstance(value, dict) or value.get("role") != "assistant":
        return value
    usage = value.get("usage")
    renamed = {_CAMEL.get(key, key): item for key, item in usage.items()} if isinstance(usage, dict) else usage
    return {_CAMEL.get(key, key): item for key, item in value.items()} | {"usage": renamed}


TWO_LANE_AGENT = Codec(name="001", about="an agent loop in Rust with two lanes", read=_read, write=_write)

TWO_LANE_AGENT_CAMEL = Codec(
    name="001-camel",
    about="the two-lane agent with camelCase names: writes errorMessage and usage so, and reads both spellings",
    read=_read_camel,
    write=_write_camel,
)


class Fields:
    """An object and its path. Unknown keys are ignored, as in the two-lane agent.

    Every method raises DecodeError, with the path to the field, if the field is missing or has another type.
    """

    def __init__(self, value: JsonValue, path: str = "") -> None:
        self.value, self.path = as_object(value, path), path

    def at(self, name: str) -> str:
        """Return the path of a field."""
        return below(self.path, name)

    def any(self, name: str) -> JsonValue:
        """Return the field's JSON of any type, null included. The field must exist."""
        if name not in self.value:
            raise DecodeError(self.at(name), "is missing")
        return self.value[name]

    def text(self, name: str) -> str:
        return as_text(self.any(name), self.at(name))

    def optional_text(self, name: str) -> str | None:
        """Return a text; None if the field is null or missing."""
        return None if self.value.get(name) is None else self.text(name)

    def flag(self, name: str) -> bool:
        return as_flag(self.any(name), self.at(name))

    def whole(self, name: str, *, bits: int = 64, default: int | None = None) -> int:
        """Return a whole number from 0 with at most `bits` bits.

        If the field is missing, return `default`; if `default` is None, the field is required.
        """
        if default is not None and name not in self.value:
            return default
        return _whole_number(self.any(name), self.at(name), bits)

    def optional_whole(self, name: str) -> int | None:
        """Return a whole number; None if the field is null or missing."""
        return None if self.value.get(name) is None else self.whole(name)

    def wholes(self, name: str) -> tuple[int, ...]:
        return tuple(_whole_number(item, f"{self.at(name)}.{index}", 64) for index, item in enumerate(self.items(name)))

    def items(self, name: str) -> list[JsonValue]:
        return as_list(self.any(name), self.at(name))

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(as_text(item, f"{self.at(name)}.{index}") for index, item in enumerate(self.items(name)))

    def object(self, name: str) -> "Fields":
        return Fields(self.any(name), self.at(name))


def _whole_number(value: JsonValue, path: str, bits: int) -> int:
    return as_whole(value, path, limit=2**bits, wants=f"a whole number from 0, of {bits} bits")


# Read messages from the two-lane agent's JSON. The reader accepts what the agent accepts, with two exceptions.
#
# First, the role alone decides the lane. The two-lane agent reads `{"role":"user","kind":…,"data":…}` as an extension
# message; here this is an error. Second, the two-lane agent drops malformed optional fields, such as a turn id.
# Here they are kept in the metadata, under keys such as `invalidTurnId`, where no provider sees them.


def read_message(value: JsonValue, path: str = "") -> LlmMessage | ExtensionMessage:
    """Read a message of either lane. The paths in errors start with `path`.

    Raises:
        UnknownRole: the two-lane agent has no such role.
        DecodeError: a field is missing or has the wrong form. The error names the path to it.
    """
    fields = Fields(value, path)
    if fields.text("role") == "extension":
        return made(ExtensionMessage, {"kind": fields.text("kind"), "data": fields.any("data")}, path)
    return read_llm_message(value, path)


def read_llm_message(value: JsonValue, path: str = "") -> LlmMessage:
    """Read a message of the LLM lane; see `read_message`."""
    fields = Fields(value, path)
    role = fields.text("role")
    if role not in _ROLES:
        raise UnknownRole(role)
    cls, read = _ROLES[role]
    common: dict[str, object] = {"content": read_blocks(fields), "timestamp": fields.whole("timestamp")}
    return made(cls, {**common, **read(fields), **_tolerated(fields)}, path)


def read_blocks(fields: Fields) -> tuple[Block, ...]:
    """Read the blocks in the field `content`."""
    found = enumerate(fields.items("content"))
    return tuple(_read_block(Fields(item, f"{fields.at('content')}.{index}")) for index, item in found)


def read_usage(fields: Fields) -> Usage:
    """Read the counts of tokens, whose keys are in snake_case. Only `input` and `output` are required."""
    return Usage(
        input=fields.whole("input"),
        output=fields.whole("output"),
        reasoning=fields.whole("reasoning", default=0),
        cache_read=fields.whole("cache_read", default=0),
        cache_write=fields.whole("cache_write", default=0),
        total_tokens=fields.whole("total_tokens", default=0),
    )


def _assistant(fields: Fields) -> dict[str, object]:
    return {
        "stopReason": fields.text("stopReason"),  # the JSON key and not the field's name, so that errors name the key
        "model": fields.text("model"),
        "provider": fields.text("provider"),
        "usage": read_usage(fields.object("usage")),
        "error_message": fields.optional_text("error_message"),
    }


def _tool_result(fields: Fields) -> dict[str, object]:
    return {
        "tool_call_id": fields.text("toolCallId"),
        "tool_name": fields.text("toolName"),
        "is_error": fields.flag("isError"),
    }


_ROLES: dict[str, tuple[type[LlmMessage], Callable[[Fields], dict[str, object]]]] = {
    "user": (UserMessage, lambda _: {}),
    "assistant": (AssistantMessage, _assistant),
    "toolResult": (ToolResultMessage, _tool_result),
}


# Read blocks.


def _read_block(fields: Fields) -> Block:
    match fields.text("type"):
        case "text":
            return TextBlock(text=fields.text("text"))
        case "thinking":
            return ThinkingBlock(text=fields.text("thinking"), signature=fields.optional_text("signature"))
        case "toolCall":
            call: dict[str, object] = {
                "id": fields.text("id"),
                "name": fields.text("name"),
                "arguments": fields.any("arguments"),
            }
            return made(ToolCallBlock, call, fields.path)
        case "image":
            return _read_image(fields)
        case other:
            raise DecodeError(fields.at("type"), f"the two-lane agent has no block {other[:40]!r}")


def _read_image(fields: Fields) -> Block:
    data, mime_type = fields.text("data"), fields.text("mimeType")
    try:
        return ImageBlock(media=made(MediaRef, {"kind": "data", "data": data, "mime_type": mime_type}, fields.path))
    except DecodeError:
        # The two-lane agent does not check base64, so its logs may contain invalid data. An unknown block keeps the log
        # readable and reaches no provider.
        return UnknownBlock(raw={"type": "image", "data": data, "mimeType": mime_type})


# Read the fields that the two-lane agent adds to a bare message.


def _turn_id(fields: Fields) -> TurnId:
    turn = fields.object("turnId")
    return TurnId(loop_id=turn.text("loopId"), turn_index=turn.whole("turnIndex", bits=32))


def _tags(fields: Fields) -> tuple[NodeTag, ...] | None:
    found = [Fields(tag, f"{fields.at('tags')}.{index}") for index, tag in enumerate(fields.items("tags"))]
    return tuple(_tag(tag) for tag in found) or None


def _tag(tag: Fields) -> NodeTag:
    values: dict[str, object] = {
        "kind": tag.text("kind"),
        "text": tag.text("text"),
        "created_at_turn": tag.whole("created_at_turn", bits=32),
        "abandoned_node_ids": tag.wholes("abandoned_node_ids"),
    }
    return made(NodeTag, values, tag.path)


def _provenance_hint(fields: Fields) -> JsonValue:
    hint = fields.object("provenanceHint")
    hint.text("kind")
    return hint.value


_ADDED_FIELDS: dict[str, tuple[str, Callable[[Fields], object]]] = {
    "turnId": ("turn_id", _turn_id),
    "nodeId": ("node_id", lambda fields: fields.whole("nodeId")),
    "parentId": ("parent_id", lambda fields: fields.whole("parentId")),
    "tags": ("tags", _tags),
    "provenanceHint": ("provenance_hint", _provenance_hint),
}

INVALID = {f"invalid{key[0].upper()}{key[1:]}": key for key in _ADDED_FIELDS}
"""Key in the metadata for a malformed field → the field's own key."""


def is_malformed(key: str, value: JsonValue) -> bool:
    """Return whether the two-lane agent would drop `value` because it is malformed for the field `key`."""
    try:
        _ADDED_FIELDS[key][1](Fields({key: value}))
    except DecodeError:
        return value is not None
    return False


def _tolerated(fields: Fields) -> dict[str, object]:
    """Read the fields that may be absent, null or malformed."""
    found: dict[str, object] = {}
    invalid: Object = {}
    for name, key in INVALID.items():
        if fields.value.get(key) is None:
            continue
        ours, read = _ADDED_FIELDS[key]
        try:
            found[ours] = read(fields)
        except DecodeError:
            invalid[name] = fields.value[key]
    return {**found, "metadata": invalid} if invalid else found


# Write messages as the two-lane agent's JSON. Each part that this JSON cannot represent is a loss with its path.

_COMMON = ("role", "content", "timestamp", "turn_id", "node_id", "parent_id", "tags", "provenance_hint", "metadata")
_ASSISTANT = ("stop_reason", "model", "provider", "usage", "error_message")
_RESULT = ("tool_call_id", "tool_name", "is_error")
_USAGE = ("input", "output", "reasoning", "cache_read", "cache_write", "total_tokens")
# Size and checksum can be derived from the data, so leaving them out is no loss.
_IMAGE = ("kind", "data", "mime_type", "size_bytes", "sha256")


def write_usage(usage: Usage) -> Object:
    """Return the six counts of tokens that the two-lane agent's usage has."""
    return {name: getattr(usage, name) for name in _USAGE}


class MessageWriter:
    """Writes messages in order, and collects the losses.

    The two-lane agent requires the tool's name in every result. If a result has no name, the name is taken from the
    call.
    """

    def __init__(self) -> None:
        self.losses: list[str] = []
        self._names: dict[str, str] = {}

    def write(self, message: Publishable, path: str) -> Object | None:
        """Return the JSON of one message; None if the two-lane agent has no such message. Paths of losses start with
        `path`."""
        match message:
            case ExtensionMessage():
                return {"role": "extension", "kind": message.kind, "data": message.data}
            case UserMessage():
                self._lose_rest(message, _COMMON, path)
                own: Object = {}
            case AssistantMessage():
                self._lose_rest(message, (*_COMMON, *_ASSISTANT), path)
                self._names.update((call.id, call.name) for call in message.tool_calls())
                own = self._assistant(message, path)
            case ToolResultMessage():
                self._lose_rest(message, (*_COMMON, *_RESULT), path)
                own = self._result(message, path)
            case ContextEntry():
                self.losses.append(f"{path}: a context entry")
                return None
            case _:
                self.losses.append(
                    f"{path}: a {'system' if isinstance(message, SystemMessage) else 'developer'} message"
                )
                return None
        content: list[JsonValue] = [*self._content(message.content, f"{path}.content")]
        return {"role": message.role, "content": content, **own, **self._added(message, path)}

    def _assistant(self, message: AssistantMessage, path: str) -> Object:
        usage = message.usage or Usage()
        self._lose_rest(usage, _USAGE, f"{path}.usage")
        for name in ("model", "provider", "usage"):
            if getattr(message, name) is None:
                self.losses.append(f"{path}.{name}: is unknown")
        own: Object = {
            "stopReason": message.stop_reason,
            "model": message.model or "",
            "provider": message.provider or "",
            "usage": {name: self._u64(count, f"{path}.usage.{name}") for name, count in write_usage(usage).items()},
        }
        return own if message.error_message is None else {**own, "error_message": message.error_message}

    def _result(self, message: ToolResultMessage, path: str) -> Object:
        name = self._names.get(message.tool_call_id) if message.tool_name is None else message.tool_name
        if name is None:
            self.losses.append(f"{path}.toolName: is unknown")
        return {"toolCallId": message.tool_call_id, "toolName": name or "", "isError": message.is_error}

    def _added(self, message: LlmMessage, path: str) -> Object:
        """Return the timestamp, and the optional fields that the two-lane agent adds to a message, if they are set."""
        if message.timestamp is None:
            self.losses.append(f"{path}.timestamp: is missing")
        added: Object = {"timestamp": self._u64(message.timestamp or 0, f"{path}.timestamp")}
        if message.turn_id is not None:
            added["turnId"] = self._turn(message.turn_id, path)
        if message.node_id is not None:
            added["nodeId"] = message.node_id
        if message.parent_id is not None:
            added["parentId"] = message.parent_id
        if message.tags:
            added["tags"] = [tag.model_dump(mode="json") for tag in message.tags]
        match message.provenance_hint:
            case None:
                pass
            case {"kind": str()} as hint:
                added["provenanceHint"] = hint
            case _:
                self.losses.append(f"{path}.provenanceHint: it has no kind")
        for name, item in (message.metadata or {}).items():
            key = INVALID.get(name)
            # The reader keeps only malformed values here. A valid value was forged, and the two-lane agent would accept
            # it.
            if key is None or key in added or not is_malformed(key, item):
                self.losses.append(f"{path}.metadata.{name}")
            else:
                added[key] = item
        return added

    def _turn(self, turn_id: TurnId, path: str) -> Object:
        if turn_id.turn_index >= 2**32:
            self.losses.append(f"{path}.turnId: its value, which 001 ignores")
        return {"loopId": turn_id.loop_id, "turnIndex": turn_id.turn_index}

    def _content(self, blocks: tuple[Block, ...], path: str) -> Iterator[Object]:
        for index, block in enumerate(blocks):
            written = self._block(block, f"{path}.{index}")
            if written is None:
                self.losses.append(f"{path}.{index}: a block {block.type}")
            else:
                yield written

    def _block(self, block: Block, path: str) -> Object | None:
        match block:
            case TextBlock():
                self._lose_rest(block, ("type", "text"), path)
                return {"type": "text", "text": block.text}
            case ThinkingBlock():
                self._lose_rest(block, ("type", "text", "signature"), path)
                signature: Object = {} if block.signature is None else {"signature": block.signature}
                return {"type": "thinking", "thinking": block.text, **signature}
            case ToolCallBlock():
                self._lose_rest(block, ("type", "id", "name", "arguments"), path)
                return {"type": "toolCall", "id": block.id, "name": block.name, "arguments": block.arguments}
            case ImageBlock(media=MediaRef(kind="data", data=str() as data) as media):
                self._lose_rest(block, ("type", "media"), path)
                self._lose_rest(media, _IMAGE, f"{path}.media")
                self._lose_false(media, f"{path}.media")
                return {"type": "image", "data": data, "mimeType": self._mime_type(media, path)}
            case UnknownBlock(raw={"type": "image", "data": str() as data, "mimeType": str() as mime_type} as raw):
                # an image whose data is not base64; the reader keeps such an image as an unknown block
                return {"type": "image", "data": data, "mimeType": mime_type} if len(raw) == 3 else None
            case _:
                return None

    def _lose_false(self, media: MediaRef, path: str) -> None:
        """Add a loss for a size or checksum that does not match the data and so cannot be derived from the data."""
        if media.size_bytes not in (None, media.inline_size_bytes):
            self.losses.append(f"{path}.sizeBytes")
        if media.sha256 not in (None, sha256(media.decoded()).hexdigest()):
            self.losses.append(f"{path}.sha256")

    def _mime_type(self, media: MediaRef, path: str) -> str:
        if media.mime_type is not None:
            return media.mime_type
        found = sniff(media.decoded())
        if found is None:
            self.losses.append(f"{path}.media.mimeType: is unknown")
        return found or "application/octet-stream"

    def _u64(self, value: JsonValue, path: str) -> int:
        """Return `value` if the two-lane agent can read it. Otherwise add a loss and return 0."""
        if isinstance(value, int) and 0 <= value < 2**64:
            return value
        self.losses.append(f"{path}: its value")
        return 0

    def _lose_rest(self, value: BaseModel, kept: Collection[str], path: str) -> None:
        """Add a loss for every field that is set and is not in `kept`."""
        for name, field in type(value).model_fields.items():
            item: object = getattr(value, name)
            is_empty = item in (None, ()) or (name == "metadata" and item == {})
            if name not in kept and not is_empty and item != field.default:
                self.losses.append(f"{path}.{field.serialization_alias or name}")


# Node ids as the two-lane agent shows them to a model, and the tags that a revert adds to nodes.

TAG_OF: Mapping[RevertCategory, TagKind] = MappingProxyType(
    {
        "failure": "lesson",
        "tangent": "finding",
        "finding": "finding",
        "completion": "outcome",
        "step-summary": "checkpoint",
    }
)
"""Category of a revert → kind of the tag at the target of the revert. The tag holds the summary of the branch."""

_NODE_TEXT = re.compile(r"n?([0-9]{1,20})")


def node_text(node: int) -> str:
    """Return a node's id as a model reads it, such as `n12`."""
    return f"n{node}"


def parse_node_id(text: str) -> int | None:
    """Return the node id 12 for `n12` or `12`. Return None for other text, or if the number needs more than 64 bits."""
    match = _NODE_TEXT.fullmatch(text)
    node = int(match[1]) if match else None
    return node if node is not None and node <= LARGEST_NODE else None


ANSWER_TOOL = "respond_json"
"""Name of the tool that a model without a JSON mode calls to answer."""


def extract_json(message: AssistantMessage) -> JsonValue:
    """Return the arguments of the first call of `respond_json`. Without such a call, read the whole text as JSON.

    Raises:
        DecodeError: the text is not JSON.

    Source: the two-lane agent.
    """
    require_instance("message", message, AssistantMessage, "pass an AssistantMessage")
    for call in message.tool_calls():
        if call.name == ANSWER_TOOL:
            return call.arguments
    try:
        return parse_json(message.text_content())
    except DecodeError as error:
        raise DecodeError(".".join(filter(None, ("content", error.path))), error.reason) from None


# The messages of a session that were read or written so far, so that events can name them by position or id.


Spoken = LlmMessage | ExtensionMessage


class Seen:
    """Messages, results and drafts of a session. The object grows with the session, as the two-lane agent's own record
    does.

    `add` adds entries of the log. Partial results and drafts come from the two-lane agent's events and have no entry in
    the log. They exist only in this object.
    """

    def __init__(self) -> None:
        self.entries: dict[int, Publishable] = {}
        self.arguments: dict[str, JsonValue] = {}
        """Tool call id → the call's arguments."""
        self.results: dict[str, Object] = {}
        """Tool call id → the last result that an event reported, in the two-lane agent's form."""
        self.drafts: dict[str, Spoken] = {}
        """Message id → the streamed part of the message."""
        self.summaries: dict[int, str] = {}
        """Position of the event of a refused revert → the revert's summary."""
        self._loops: defaultdict[str, dict[int, None]] = defaultdict(dict)
        self._reported: set[str] = set()

    def add(self, position: int, message: Publishable | Delta) -> None:
        """Add an entry of the log or a live delta. The position of a live delta is ignored."""
        if isinstance(message, Delta):
            self._extend(message)
            return
        self.entries[position] = message
        if isinstance(message, LlmMessage) and message.turn_id is not None:
            self._loops[message.turn_id.loop_id][position] = None
        if isinstance(message, AssistantMessage):
            self.arguments.update((call.id, call.arguments) for call in message.tool_calls())
        if isinstance(message, ExtensionMessage):
            self._note(message)

    def tell_draft(self, message_id: str, message: Spoken) -> None:
        """Set the streamed part of a message. Later deltas do not extend this draft."""
        self.drafts[message_id] = message
        self._reported.add(message_id)

    def message(self, position: int | None) -> Spoken | None:
        """Return the message at a position; None if it is unknown."""
        found = self.entries.get(position or 0)
        return found if isinstance(found, LlmMessage | ExtensionMessage) else None

    def of_loop(self, loop_id: str) -> dict[int, Spoken]:
        """Return a loop's messages by position: messages with the loop's turn ids, its prompts and its extension
        messages."""
        found = {position: self.message(position) for position in sorted(self._loops.get(loop_id, {}))}
        return {position: message for position, message in found.items() if message is not None}

    def result(self, call: str) -> ToolResultMessage | None:
        """Return the newest result of a call."""
        for message in reversed(self.entries.values()):
            if isinstance(message, ToolResultMessage) and message.tool_call_id == call:
                return message
        return None

    def beside(self, call: str) -> Object:
        """Return the fields that an event reported with a call's result, except `content` and null fields."""
        reported = self.results.get(call, {})
        return {name: value for name, value in reported.items() if name != "content" and value is not None}

    def node(self, node: int) -> int | None:
        """Return the position of the newest message whose `node_id` is `node`; None if there is no such message."""
        found = (place for place, each in self.entries.items() if isinstance(each, LlmMessage) and each.node_id == node)
        return max(found, default=None)

    def _note(self, message: ExtensionMessage) -> None:
        try:
            event = parse_event(message)
        except MessageError:
            return
        match event:
            case TurnStarted(turn_id=turn_id, prompts=prompts):
                self._loops[turn_id.loop_id].update(dict.fromkeys(prompts))
            case MessageEnded(turn_id=turn_id, position=position):
                self._loops[turn_id.loop_id][position] = None
            case _:
                pass

    def _extend(self, delta: Delta) -> None:
        if delta.kind == "cut" or delta.message_id in self._reported:
            return
        draft = self.drafts.get(delta.message_id)
        blocks = list(draft.content) if isinstance(draft, AssistantMessage) else []
        piece = _piece(delta)
        if piece is not None:
            last = blocks[-1] if blocks else None
            if last is not None and type(last) is type(piece):
                blocks[-1] = _joined(last, piece)
            else:
                blocks.append(piece)
        self.drafts[delta.message_id] = AssistantMessage(content=tuple(blocks))


def _piece(delta: Delta) -> Block | None:
    match delta.kind:
        case "text":
            return TextBlock(text=delta.delta)
        case "thinking":
            return ThinkingBlock(text=delta.delta)
        case _:
            return None  # arguments are JSON only once they are complete


def _joined(one: Block, more: Block) -> Block:
    if isinstance(one, TextBlock | ThinkingBlock) and isinstance(more, TextBlock | ThinkingBlock):
        return one.model_copy(update={"text": one.text + more.text})
    return more


# The two-lane agent's names of enum values → lanebus's names.

T = TypeVar("T", bound=str)

CONTINUATION: Mapping[str, Literal["initial", "default", "rerun", "branch", "compaction"]] = MappingProxyType(
    {"Initial": "initial", "Default": "default", "Rerun": "rerun", "Branch": "branch", "Compaction": "compaction"}
)
"""How a loop continues another loop: the two-lane agent's name → lanebus's name."""

TRIGGER: Mapping[str, Literal["user", "subAgent", "continuation", "branch"]] = MappingProxyType(
    # FollowUp is the two-lane agent's old name of Continuation. The two-lane agent still reads the old name.
    {
        "User": "user",
        "SubAgent": "subAgent",
        "Continuation": "continuation",
        "Branch": "branch",
        "FollowUp": "continuation",
    }
)
"""Why a turn starts: the two-lane agent's name → lanebus's name."""

DELTA: Mapping[str, Literal["text", "thinking", "toolCall"]] = MappingProxyType(
    {"Text": "text", "Thinking": "thinking", "ToolCallDelta": "toolCall"}
)
"""Which kind of content a delta extends: the two-lane agent's name → lanebus's name."""

SCOPE: Mapping[str, Literal["ephemeral", "persistent"]] = MappingProxyType(
    {"Ephemeral": "ephemeral", "Persistent": "persistent"}
)
"""How long a session is kept: the two-lane agent's name → lanebus's name. lanebus keeps every session, so no other
module uses this map."""


def to_ours(names: Mapping[str, T], theirs: str, path: str) -> T:
    """Return lanebus's name for the two-lane agent's name `theirs`.

    Raises:
        DecodeError: `names` has no key `theirs`.
    """
    if theirs not in names:
        raise DecodeError(path, f"{theirs[:40]!r} is none of {', '.join(names)}")
    return names[theirs]


def to_theirs(names: Mapping[str, T], ours: str) -> str:
    """Return the two-lane agent's name for lanebus's name `ours`. If several names mean `ours`, return the first."""
    return next(theirs for theirs, name in names.items() if name == ours)


# Read and write moments of the two-lane agent's events: RFC 3339 in UTC.
#
# lanebus stores whole milliseconds; smaller fractions of a second are cut off.


def read_moment(fields: Fields) -> int:
    """Return the field `timestamp` in milliseconds UTC.

    Raises:
        DecodeError: the field is missing, is not a moment, or has no time zone.
    """
    text = fields.text("timestamp")
    moment = parse_datetime(text, fields.at("timestamp"), "RFC 3339")
    if moment.tzinfo is None or "T" not in text.upper():
        raise DecodeError(fields.at("timestamp"), f"{text[:40]!r} names no zone")
    return milliseconds_of(moment)


def write_moment(milliseconds: int) -> str:
    """Return text such as `2026-01-01T00:00:00Z`. Milliseconds are included if they are not 0."""
    text = datetime_of(milliseconds).isoformat(timespec="milliseconds" if milliseconds % 1000 else "seconds")
    return text.removesuffix("+00:00") + "Z"
