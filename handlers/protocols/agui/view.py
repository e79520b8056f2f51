"""The messages of a snapshot, folded from the events of a run. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lanebus.handlers.protocols.agui.messages import result_content, user_content
from lanebus.handlers.protocols.run_events import (
    AnswerBegun,
    AnswerSettled,
    CallArgumentsAdded,
    CallBegun,
    ResultAdded,
    RunEvent,
    TextAdded,
    ThoughtAdded,
    UserSpoke,
)
from lanebus.handlers.protocols.shown_answer import ShownAnswer

if TYPE_CHECKING:
    from pydantic import JsonValue

__all__ = ("AguiView",)


@dataclass(slots=True)
class _Call:
    name: str
    pieces: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class _Shown:
    """One message: a whole one, or an answer that grows."""

    whole: JsonValue = None
    text: list[str] = field(default_factory=list[str])
    calls: dict[str, _Call] = field(default_factory=dict[str, _Call])
    owner: str = ""
    """the answer of a thought"""
    size: int = 0


class AguiView:
    """The newest messages that a client should show, in their order. Older ones are dropped at the bounds."""

    def __init__(self, *, messages: int, size: int) -> None:
        """
        Args:
            messages: maximum number of messages.
            size: maximum number of characters of all messages together; the newest message may be longer.
        """
        self._messages: dict[str, _Shown] = {}
        self._owners: dict[str, str] = {}
        """call → its answer"""
        self._most, self._most_size, self._size = messages, size, 0

    @property
    def size(self) -> int:
        """The number of characters of all messages."""
        return self._size

    @property
    def ids(self) -> list[str]:
        """Ids of the messages, in their order."""
        return [*self._messages]

    def add(self, event: RunEvent) -> None:
        """Fold an event."""
        match event:
            case UserSpoke(message_id=message_id, message=message):
                content = user_content(message)
                self._put(message_id, {"id": message_id, "role": "user", "content": content}, len(message.to_json()))
            case AnswerBegun(message_id=message_id):
                self._messages.setdefault(message_id, _Shown())
            case TextAdded(message_id=message_id, text=text):
                self._grow(message_id, text)
            case ThoughtAdded(message_id=message_id, thought_id=thought_id, text=text):
                self._open_thought(message_id, thought_id)
                self._grow(thought_id, text)
            case CallBegun(message_id=message_id, call_id=call_id, name=name):
                self._owners[call_id] = message_id
                if (shown := self._messages.get(message_id)) is not None:
                    shown.calls[call_id] = _Call(name)
            case CallArgumentsAdded(call_id=call_id, text=text):
                owner = self._messages.get(self._owners.get(call_id, ""))
                if owner is not None and (call := owner.calls.get(call_id)) is not None:
                    call.pieces.append(text)
                    self._count(owner, len(text))
            case AnswerSettled():
                self._settle(event)
            case ResultAdded(call_id=call_id, message_id=message_id, message=message):
                if self._owners.pop(call_id, None) in self._messages:
                    content = result_content(message)
                    tool: JsonValue = {"id": message_id, "role": "tool", "toolCallId": call_id, "content": content}
                    self._put(message_id, tool, len(content))
            case _:
                pass

    def messages(self, *, without: Collection[str] = ()) -> list[JsonValue]:
        """Return the messages.

        Args:
            without: calls to leave out.
        """
        found: list[JsonValue] = []
        for id, shown in self._messages.items():
            if shown.whole is not None:
                found.append(shown.whole)
                continue
            text = "".join(shown.text)
            if shown.owner:
                found.append({"id": id, "role": "reasoning", "content": text})
                continue
            message: dict[str, JsonValue] = {"id": id, "role": "assistant"}
            calls: list[JsonValue] = [
                _tool_call(call, each) for call, each in shown.calls.items() if call not in without
            ]
            if text or not calls:
                message["content"] = text
            if calls:
                message["toolCalls"] = calls
            found.append(message)
        return found

    def _open_thought(self, message_id: str, thought_id: str) -> None:
        """Put a thought before its answer, if nothing of the answer is there yet."""
        if thought_id in self._messages:
            return
        answer = self._messages.get(message_id)
        is_empty = answer is not None and not answer.text and not answer.calls
        if is_empty:
            del self._messages[message_id]
        self._messages[thought_id] = _Shown(owner=message_id)
        if is_empty and answer is not None:
            self._messages[message_id] = answer

    def _settle(self, event: AnswerSettled) -> None:
        if event.is_replaced:
            self._drop(event.message_id)
            if event.message is not None and event.outcome != "superseded":
                events, _ = ShownAnswer(event.message_id, event.message.turn_id).settle(event.message)
                for each in events:
                    self.add(each)
        shown = self._messages.get(event.message_id)
        if shown is not None and not shown.text and not shown.calls and shown.whole is None:
            self._forget(event.message_id)

    def _drop(self, message_id: str) -> None:
        for id in [id for id, shown in self._messages.items() if message_id in {id, shown.owner}]:
            self._forget(id)

    def _forget(self, id: str) -> None:
        self._size -= self._messages.pop(id).size

    def _put(self, id: str, whole: JsonValue, size: int) -> None:
        if id in self._messages:
            self._forget(id)
        shown = self._messages[id] = _Shown(whole=whole)
        self._count(shown, size)

    def _grow(self, id: str, text: str) -> None:
        if (shown := self._messages.get(id)) is not None:
            shown.text.append(text)
            self._count(shown, len(text))

    def _count(self, shown: _Shown, size: int) -> None:
        shown.size += size
        self._size += size
        while len(self._messages) > 1 and (len(self._messages) > self._most or self._size > self._most_size):
            self._forget(next(iter(self._messages)))


def _tool_call(id: str, call: _Call) -> JsonValue:
    return {"id": id, "type": "function", "function": {"name": call.name, "arguments": "".join(call.pieces)}}
