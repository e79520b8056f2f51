"""The messages of a session that were read or written so far, so that events can name them by position or id."""

from collections import defaultdict

from pydantic import JsonValue

from lanebus.bus.errors import MessageError
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import Block, TextBlock, ThinkingBlock
from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.events import MessageEnded, TurnStarted, parse_event
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.handlers.json_fields import Object

__all__ = ("Seen", "Spoken")

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
