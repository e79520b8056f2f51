"""Turn the events of a run into ACP's session updates. Pure.

An editor keeps what it was sent: no update takes text back. If the log does not confirm a text that was shown, a note
says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from lanebus.bus.messages.content import TextBlock
from lanebus.handlers.protocols.acp.content import content_of, text_part
from lanebus.handlers.protocols.acp.plan import PLAN, plan_entries
from lanebus.handlers.protocols.run_events import (
    AnswerSettled,
    CallBegun,
    CallProgressed,
    CallSettled,
    CallStarted,
    ChildBegun,
    NoteAdded,
    ResultAdded,
    RunEvent,
    RunRested,
    TextAdded,
    ThoughtAdded,
    UserSpoke,
)

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from pydantic import JsonValue

    from lanebus.bus.messages.media import MediaRef

__all__ = ("CUT_OFF", "RECORDED", "AcpEncoder", "Update")

Update = dict[str, "JsonValue"]
"""One session update as JSON."""

CUT_OFF = "\n\n_(This answer was cut off. The agent begins it again.)_\n\n"
"""the note after a text that no message in the log has"""

RECORDED = "\n\n_(The answer as it was recorded:)_\n\n"
"""the note before a message that differs from the text that was shown"""

_NOT_RUN = "The call was not run."
_UNKNOWN = "Unknown outcome: the call was started, and left no result."


class AcpEncoder:
    """Encodes a session. Feed it all events in order; drop what it returns for what the editor knows already."""

    def __init__(self) -> None:
        self._writing: dict[str, str] = {}
        """calls that the model still writes → ids of their answers"""
        self._calls = set[str]()
        """complete calls without a result"""
        self._started = set[str]()
        """calls without a result that were started"""
        self._shown = set[str]()
        """open answers of which text or thinking was shown"""

    def add(self, event: RunEvent, media: Mapping[str, MediaRef]) -> list[Update]:
        """Return the updates of an event.

        Args:
            event: the event.
            media: stored media of the event's message that were loaded, by `MediaRef.address`.
        """
        match event:
            case UserSpoke(message_id=message_id, message=message):
                parts = content_of(message.content, media)
                return [_chunk("user_message_chunk", message_id, part) for part in parts]
            case TextAdded(message_id=message_id, text=text):
                self._shown.add(message_id)
                return [_chunk("agent_message_chunk", message_id, text_part(text))]
            case ThoughtAdded(message_id=message_id, thought_id=thought_id, text=text):
                self._shown.add(message_id)
                return [_chunk("agent_thought_chunk", thought_id, text_part(text))]
            case AnswerSettled():
                return self._settle(event)
            case NoteAdded(kind=kind, data=data) if kind == PLAN:
                entries = plan_entries(data)
                return [] if entries is None else [{"sessionUpdate": "plan", "entries": entries}]
            case RunRested(outcome="finished" | "aborted" | "failed"):
                open_calls = [*self._writing, *sorted(self._calls)]
                ended = _failed(open_calls, self._started)
                self._writing.clear()
                self._calls.clear()
                self._started.clear()
                return ended
            case _:
                return self._add_call(event, media)

    def _add_call(self, event: RunEvent, media: Mapping[str, MediaRef]) -> list[Update]:
        match event:
            case CallBegun(message_id=message_id, call_id=call, name=name):
                self._writing[call] = message_id
                return [{"sessionUpdate": "tool_call", "toolCallId": call, "title": name, "status": "pending"}]
            case CallSettled(call_id=call, block=block):
                self._writing.pop(call, None)
                self._calls.add(call)
                return [_update(call, {"rawInput": block.arguments})]
            case CallStarted(call_id=call):
                self._started.add(call)
                return [_update(call, {"status": "in_progress"})]
            case CallProgressed(call_id=call, text=text):
                return [_update(call, {"status": "in_progress", "content": _contents([text_part(text)])})]
            case ChildBegun(call_id=str(call), child=child, agent=agent):
                about: JsonValue = {"lanebus": {"session": child, "agent": agent}}
                return [_update(call, {"status": "in_progress", "_meta": about})]
            case ResultAdded(call_id=call, message=message):
                self._calls.discard(call)
                self._started.discard(call)
                parts = content_of(message.content, media)
                if not any(isinstance(block, TextBlock) for block in message.content):
                    text = message.text_with_results()
                    parts = [*([text_part(text)] if text else []), *parts]
                status = "failed" if message.is_error else "completed"
                return [_update(call, {"status": status, "content": _contents(parts)})]
            case _:
                return []

    def _settle(self, event: AnswerSettled) -> list[Update]:
        """Return the ends of calls that never become whole, and a note if the text that was shown does not hold."""
        left = [call for call, message_id in self._writing.items() if message_id == event.message_id]
        for call in left:
            del self._writing[call]
        updates, is_shown = _failed(left), event.message_id in self._shown
        self._shown.discard(event.message_id)
        if not event.is_replaced or not is_shown:
            return updates
        if event.outcome == "superseded" or event.message is None:
            return [*updates, _chunk("agent_message_chunk", event.message_id, text_part(CUT_OFF))]
        whole = text_part(f"{RECORDED}{event.message.text_content()}")
        return [*updates, _chunk("agent_message_chunk", event.message_id, whole)]


def _chunk(
    kind: Literal["user_message_chunk", "agent_message_chunk", "agent_thought_chunk"], message_id: str, part: JsonValue
) -> Update:
    return {"sessionUpdate": kind, "messageId": message_id, "content": part}


def _update(call: str, fields: Update) -> Update:
    return {"sessionUpdate": "tool_call_update", "toolCallId": call, **fields}


def _failed(calls: Iterable[str], started: Container[str] = ()) -> list[Update]:
    texts = {call: _UNKNOWN if call in started else _NOT_RUN for call in calls}
    return [_update(call, {"status": "failed", "content": _contents([text_part(texts[call])])}) for call in texts]


def _contents(parts: Iterable[JsonValue]) -> JsonValue:
    return [{"type": "content", "content": part} for part in parts]
