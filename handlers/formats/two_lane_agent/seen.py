"""The messages of a session that were read or written so far, so that events can name them by position or id.

Also the words and moments of events: names of enum values, and RFC 3339 in UTC.
"""

from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeVar

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, MessageError
from lanebus.bus.messages import (
    AssistantMessage,
    Block,
    Delta,
    ExtensionMessage,
    LlmMessage,
    MessageEnded,
    Publishable,
    TextBlock,
    ThinkingBlock,
    ToolResultMessage,
    TurnStarted,
    parse_event,
)
from lanebus.handlers.context import Object
from lanebus.handlers.formats.timestamps import datetime_of, milliseconds_of, parse_datetime
from lanebus.handlers.formats.two_lane_agent.codec import Fields

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
