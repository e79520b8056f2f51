"""What a reader of both lanes has seen of a session: the words that events name and do not repeat."""

from collections import defaultdict

from pydantic import JsonValue

from lanebus.bus.errors import MessageError
from lanebus.bus.messages.content import Block, TextBlock, ThinkingBlock
from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.events import MessageEnded, TurnStarted, parse_event
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.message import AssistantMessage, LlmMessage, ToolResultMessage
from lanebus.handlers.json_fields import Object

__all__ = ("Seen", "Spoken")

Spoken = LlmMessage | ExtensionMessage


class Seen:
    """Everything by the name under which an event speaks of it. It grows with the session, as 001's own record does.

    The entries of the log come in by `add`. The rest is what 001 tells inside an event and the log has no entry for:
    a tool's result so far, a message so far; it is here as long as this object is.
    """

    def __init__(self) -> None:
        self.entries: dict[int, Publishable] = {}
        self.arguments: dict[str, JsonValue] = {}
        """of each tool call, by its id"""
        self.results: dict[str, Object] = {}
        """the last that was told of each call's result, as 001 writes it, by the call's id"""
        self.drafts: dict[str, Spoken] = {}
        """each message as far as it was spoken, by its id"""
        self.summaries: dict[int, str] = {}
        """of a revert that was refused, by its event's position"""
        self._loops: defaultdict[str, dict[int, None]] = defaultdict(dict)
        self._told: set[str] = set()

    def add(self, position: int, message: Publishable | Delta) -> None:
        """An entry of the log at its position, or a live delta, whose position says nothing."""
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
        """How far a message has come, where somebody says so; deltas add nothing to that."""
        self.drafts[message_id] = message
        self._told.add(message_id)

    def message(self, position: int | None) -> Spoken | None:
        """The message at a position; None where there is none, or it was not seen."""
        found = self.entries.get(position or 0)
        return found if isinstance(found, LlmMessage | ExtensionMessage) else None

    def of_loop(self, loop_id: str) -> dict[int, Spoken]:
        """What a loop has said and was told, by position: its stamped messages, its prompts, its extensions."""
        found = {position: self.message(position) for position in sorted(self._loops.get(loop_id, {}))}
        return {position: message for position, message in found.items() if message is not None}

    def result(self, call: str) -> ToolResultMessage | None:
        """The newest result of a call."""
        for message in reversed(self.entries.values()):
            if isinstance(message, ToolResultMessage) and message.tool_call_id == call:
                return message
        return None

    def beside(self, call: str) -> Object:
        """What was told with a call's result and is not its content."""
        told = self.results.get(call, {})
        return {name: value for name, value in told.items() if name != "content" and value is not None}

    def node(self, node: int) -> int | None:
        """The position of the newest message that is this node of its author's tree."""
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
        if delta.kind == "cut" or delta.message_id in self._told:
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
            return None  # arguments are JSON only when they are whole


def _joined(one: Block, more: Block) -> Block:
    if isinstance(one, TextBlock | ThinkingBlock) and isinstance(more, TextBlock | ThinkingBlock):
        return one.model_copy(update={"text": one.text + more.text})
    return more
