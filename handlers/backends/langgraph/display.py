"""Shows the messages of a graph's state in the LLM lane, in the same publish as their checkpoint."""

from collections.abc import Sequence
from typing import cast

from langchain_core.messages import BaseMessage

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.context_entry import LeafMove, Prune
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.llm import LlmMessage
from lanebus.handlers.backends.bounds import BackendBounds
from lanebus.handlers.backends.langgraph.entries import MessagesShown
from lanebus.handlers.backends.langgraph.messages import lane_message
from lanebus.handlers.backends.langgraph.shown import ShownGraph, step_to

__all__ = ("Display", "display_of")


class Display:
    """The messages of one checkpoint."""

    def __init__(self, messages: Sequence[BaseMessage], digests: Sequence[str], bounds: BackendBounds) -> None:
        """
        Args:
            messages: the messages of the state.
            digests: a digest of each.
            bounds: how many are appended at a time, and the size of each.
        """
        self._messages, self._digests, self._bounds = messages, digests, bounds
        self._made = dict[int, tuple[LlmMessage, int]]()
        self.is_complete = False
        """whether the entries of the last call show all messages"""

    def entries(self, shown: ShownGraph) -> list[Publishable]:
        """Return the entries to append, so that these messages are shown; at most as many as one append may hold."""
        step = step_to(shown, self._digests)
        first: list[Publishable] = []
        if step.pruned is not None:
            first.append(Prune(pruned=step.pruned))
        elif step.is_moved:
            first.append(LeafMove(to=step.target.leaf if step.target else None))
        end, counted = self._end(step.start), list[str]()
        for index in range(step.start, end):
            message = self._message(index)[0]
            if isinstance(message, AssistantMessage) and message.usage is not None:
                key = message.id or self._digests[index]
                if key in shown.counted or key in counted:
                    message = message.model_copy(update={"usage": None})
                else:
                    counted.append(key)
            first.append(message)
        self.is_complete = end == len(self._messages)
        if not first:
            return []
        said = MessagesShown(
            messages=tuple(self._digests[step.start : end]),
            path=(step.target.path if step.target else "") if step.is_moved else None,
            pruned=step.pruned,
            counted=tuple(counted),
        )
        return [*first, said.as_extension()]

    def _end(self, start: int) -> int:
        """Return the end of the messages from `start` on that one append may hold: at least one."""
        room, end = self._bounds.batch_bytes, start
        while end < min(len(self._messages), start + self._bounds.batch_count):
            room -= self._message(end)[1]
            if room < 0 and end > start:
                break
            end += 1
        return end

    def _message(self, index: int) -> tuple[LlmMessage, int]:
        """Return a message for the lane, and the size of its JSON."""
        if index not in self._made:
            made = lane_message(self._messages[index], limit_bytes=self._bounds.shown_bytes)
            self._made[index] = (made, len(made.to_json_bytes()))
        return self._made[index]


def display_of(value: object, digests: Sequence[str] | None, bounds: BackendBounds) -> Display | None:
    """Return the display of a channel's value; None if the value is not a list of messages."""
    if digests is None or not isinstance(value, list):
        return None
    messages = [each for each in cast("list[object]", value) if isinstance(each, BaseMessage)]
    return Display(messages, digests, bounds) if len(messages) == len(digests) else None
