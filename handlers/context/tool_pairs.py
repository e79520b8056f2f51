"""Put tool calls and their results into the one order that every provider accepts.

Each assistant message is followed by exactly one result per call, in the order of the calls. The order in which the
results arrived does not matter. A call without a result has a placeholder until its result arrives.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import TextBlock, ToolCallBlock, ToolResultBlock
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.handlers.persistent_list import PersistentList

__all__ = ("NO_RESULT", "Pairing")

NO_RESULT = "No result provided"
"""Text of the placeholder that the model reads if a call has no result. Source: pi."""


@dataclass(frozen=True, slots=True)
class Pairing:
    """Messages in provider order, and the calls that still wait for their results."""

    messages: PersistentList[LlmMessage] = field(default_factory=PersistentList[LlmMessage])
    waiting: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """Call id → indexes in `messages` of the placeholders for calls with this id. There are several only if one message
    repeats the id.
    """
    placeholders: frozenset[int] = frozenset()
    """Indexes in `messages` of all placeholders, also for calls whose results are no longer accepted."""

    def joined_by(self, message: LlmMessage) -> "Pairing":
        """Return the pairing with `message` added.

        - A failed or aborted answer is left out, together with its calls and the results of these calls.
        - A result is left out if no call waits for it: no call has its id, or the call already has a result.
        - Results inside another message are removed from that message and added like result messages.
        """
        if isinstance(message, ToolResultMessage):
            return self._answered(message)
        if isinstance(message, AssistantMessage) and message.is_failed:
            # Call ids may repeat. Later results belong to a call of this answer, not to an older call with the same id.
            return self._without({call.id for call in message.tool_calls()})
        results = [_as_message(block) for block in message.content if isinstance(block, ToolResultBlock)]
        rest = _without_results(message) if results else message
        joined = self if results and not rest.content else self._appended(rest)
        for result in results:
            joined = joined._answered(result)
        return joined

    def leaving_out(self, removed: Sequence[LlmMessage]) -> "Pairing":
        """Return the pairing without these message objects. None of `removed` may have a call or a result."""
        gone = Counter(map(id, removed))
        start, kept = len(self.messages), list[LlmMessage]()
        while start and gone.total():
            start -= 1
            message = self.messages[start]
            if gone[id(message)]:
                gone[id(message)] -= 1
            else:
                kept.append(message)
        # Each message after the first removed message has a new index.
        places = {id(message): place for place, message in enumerate(reversed(kept), start)}
        waiting = {
            call: tuple(place if place < start else places[id(self.messages[place])] for place in old)
            for call, old in self.waiting.items()
        }
        placeholders = (place if place < start else places[id(self.messages[place])] for place in self.placeholders)
        return Pairing(self.messages.beginning(start).appended(*reversed(kept)), waiting, frozenset(placeholders))

    def _appended(self, message: LlmMessage) -> "Pairing":
        calls = tuple(message.tool_calls()) if isinstance(message, AssistantMessage) else ()
        if not calls:
            return replace(self, messages=self.messages.appended(message))
        first = len(self.messages) + 1
        waiting = {**self._without({call.id for call in calls}).waiting}
        for place, call in enumerate(calls, first):
            waiting[call.id] = (*waiting.get(call.id, ()), place)
        placeholders = self.placeholders.union(range(first, first + len(calls)))
        return Pairing(self.messages.appended(message, *map(_no_result, calls)), waiting, placeholders)

    def _answered(self, result: ToolResultMessage) -> "Pairing":
        places = self.waiting.get(result.tool_call_id)
        if places is None:
            return self
        waiting = {**self.waiting, result.tool_call_id: places[1:]}
        if not places[1:]:
            del waiting[result.tool_call_id]
        return Pairing(self.messages.replaced(places[0], result), waiting, self.placeholders - {places[0]})

    def _without(self, ids: set[str]) -> "Pairing":
        if ids.isdisjoint(self.waiting):
            return self
        return replace(self, waiting={call: places for call, places in self.waiting.items() if call not in ids})


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
