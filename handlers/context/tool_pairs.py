"""Tool calls and their results, brought into the one order that every provider takes.

Behind each assistant message stand exactly as many results as it has calls, in the order of the calls, whatever order
they came in. A call that has no result yet has a made-up one in its place, until the real one comes and replaces it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lanebus.bus.messages.content import TextBlock, ToolCallBlock, ToolResultBlock
from lanebus.bus.messages.message import AssistantMessage, LlmMessage, ToolResultMessage
from lanebus.handlers.persistent_list import PersistentList

__all__ = ("NO_RESULT", "Pairing")

NO_RESULT = "No result provided"
"""what the model reads as the result of a call that has none. Source: pi"""


@dataclass(frozen=True, slots=True)
class Pairing:
    """Messages in provider order, and the calls that still wait for their results."""

    messages: PersistentList[LlmMessage] = field(default_factory=PersistentList[LlmMessage])
    waiting: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """call id → where in `messages` its made-up results are: more than one only if one message repeats the id"""

    def joined_by(self, message: LlmMessage) -> "Pairing":
        """The messages once `message` was said, in which

        - a failed or aborted answer is left out, and with it its calls and their results;
        - a result without a waiting call is left out: an orphan, or a second one for its call;
        - results inside another message are taken out of it and stand like all others.
        """
        if isinstance(message, ToolResultMessage):
            return self._answered(message)
        if isinstance(message, AssistantMessage) and message.is_failed:
            # An id may be used again: results that come now are for this call, not for an older one of the same id.
            return self._without({call.id for call in message.tool_calls()})
        results = [_as_message(block) for block in message.content if isinstance(block, ToolResultBlock)]
        said = _without_results(message) if results else message
        joined = self if results and not said.content else self._said(said)
        for result in results:
            joined = joined._answered(result)
        return joined

    def leaving_out(self, said: Sequence[LlmMessage]) -> "Pairing":
        """The messages but for these very ones, none of which has a call or a result in it."""
        gone = Counter(map(id, said))
        start, kept = len(self.messages), list[LlmMessage]()
        while start and gone.total():
            start -= 1
            message = self.messages[start]
            if gone[id(message)]:
                gone[id(message)] -= 1
            else:
                kept.append(message)
        # Whatever stands behind has moved by as many as were taken out before it.
        places = {id(message): place for place, message in enumerate(reversed(kept), start)}
        waiting = {
            call: tuple(place if place < start else places[id(self.messages[place])] for place in old)
            for call, old in self.waiting.items()
        }
        return Pairing(self.messages.beginning(start).appended(*reversed(kept)), waiting)

    def _said(self, message: LlmMessage) -> "Pairing":
        calls = tuple(message.tool_calls()) if isinstance(message, AssistantMessage) else ()
        if not calls:
            return Pairing(self.messages.appended(message), self.waiting)
        first = len(self.messages) + 1
        waiting = {**self._without({call.id for call in calls}).waiting}
        for place, call in enumerate(calls, first):
            waiting[call.id] = (*waiting.get(call.id, ()), place)
        return Pairing(self.messages.appended(message, *map(_no_result, calls)), waiting)

    def _answered(self, result: ToolResultMessage) -> "Pairing":
        places = self.waiting.get(result.tool_call_id)
        if places is None:
            return self
        waiting = {**self.waiting, result.tool_call_id: places[1:]}
        if not places[1:]:
            del waiting[result.tool_call_id]
        return Pairing(self.messages.replaced(places[0], result), waiting)

    def _without(self, ids: set[str]) -> "Pairing":
        if ids.isdisjoint(self.waiting):
            return self
        return Pairing(self.messages, {call: places for call, places in self.waiting.items() if call not in ids})


def _no_result(call: ToolCallBlock) -> LlmMessage:
    return ToolResultMessage(
        tool_call_id=call.id, tool_name=call.name, content=(TextBlock(text=NO_RESULT),), is_error=True
    )


def _as_message(block: ToolResultBlock) -> ToolResultMessage:
    return ToolResultMessage(
        tool_call_id=block.tool_call_id,
        content=block.content,
        structured=block.structured,
        is_error=block.is_error,
        status=block.status,
        metadata=block.metadata,
        terminate=block.terminate,
        terminate_message=block.terminate_message,
    )


def _without_results(message: LlmMessage) -> LlmMessage:
    rest = tuple(block for block in message.content if not isinstance(block, ToolResultBlock))
    return message.model_copy(update={"content": rest})
