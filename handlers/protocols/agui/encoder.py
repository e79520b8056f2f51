"""Encode the events of a run as AG-UI events. Pure.

The encoder keeps only what is open: the client refuses the end of a run in which anything is. What an answer showed and
the log does not confirm is taken back with a snapshot of the messages, which the caller makes: `needs_snapshot`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanebus.handlers.protocols.agui.interrupts import interrupts_of
from lanebus.handlers.protocols.agui.json_end import json_end
from lanebus.handlers.protocols.agui.messages import result_content, user_content
from lanebus.handlers.protocols.agui.usage import cost_of, token_usage
from lanebus.handlers.protocols.run_events import (
    AnswerSettled,
    CallArgumentsAdded,
    CallBegun,
    CallProgressed,
    CallSettled,
    ChildBegun,
    ChildEnded,
    NoteAdded,
    ResultAdded,
    RunEvent,
    RunRested,
    StepBegun,
    StepEnded,
    TextAdded,
    ThoughtAdded,
    ThoughtEnded,
    UserSpoke,
)

if TYPE_CHECKING:
    from pydantic import JsonValue

__all__ = ("PROTOCOL_VERSION", "AguiEncoder", "AguiEvent")

PROTOCOL_VERSION = "1.0"

AguiEvent = dict[str, "JsonValue"]
"""One AG-UI event as JSON."""


class AguiEncoder:
    """Encodes one run. Feed it all events from the beginning of the fold, and drop what it returns
    until all stored entries were read.

    Then send `started`, a snapshot of the messages and `reopened`, and from there on what `add` returns.
    """

    def __init__(self, thread_id: str, run_id: str, *, is_current: bool = True) -> None:
        """
        Args:
            thread_id: the session.
            run_id: the client's id of the run.
            is_current: whether the client speaks version 1.0. Older clients fail at a cancelled run.
        """
        self._ids: AguiEvent = {"threadId": thread_id, "runId": run_id}
        self._is_current = is_current
        self._step: str | None = None
        self._texts: dict[str, None] = {}
        self._thoughts: dict[str, None] = {}
        self._calls: dict[str, CallBegun] = {}
        self._arguments: dict[str, list[str]] = {}
        self._children: dict[str, ChildBegun] = {}
        self.needs_snapshot = False
        """whether the client shows what is not in the log: send a snapshot of the messages, and set this to False"""

    def started(self) -> AguiEvent:
        """Return the first event of the run."""
        return {"type": "RUN_STARTED", **self._ids, "protocolVersion": PROTOCOL_VERSION}

    def failed(self, message: str, code: str) -> AguiEvent:
        """Return an event that ends the run with an error. Open parts may stay open."""
        return {"type": "RUN_ERROR", "message": message, "code": code}

    def reopened(self) -> list[AguiEvent]:
        """Return the beginnings of what is open, for a client that just got a snapshot.

        The snapshot has the text and the thinking so far, and further pieces are appended to it. It does not have open
        calls: their arguments are sent again from the start, so that they are whole JSON in this stream.
        """
        events: list[AguiEvent] = []
        if self._step is not None:
            events.append({"type": "STEP_STARTED", "stepName": self._step})
        events += [_child_begun(child) for child in self._children.values()]
        for message_id in self._texts:
            events.append({"type": "TEXT_MESSAGE_START", "messageId": message_id, "role": "assistant"})
        for thought in self._thoughts:
            events += _thought_begun(thought)
        for call, begun in self._calls.items():
            events.append(_call_begun(begun))
            if text := "".join(self._arguments[call]):
                events.append({"type": "TOOL_CALL_ARGS", "toolCallId": call, "delta": text})
        return events

    @property
    def open_calls(self) -> frozenset[str]:
        """Ids of the calls whose arguments are not complete."""
        return frozenset(self._calls)

    def add(self, event: RunEvent) -> list[AguiEvent]:
        """Return the AG-UI events of an event of the run, but nothing for a `RunRested`: see `finished`."""
        match event:
            case TextAdded(message_id=message_id, text=text):
                return [*self._open_text(message_id), _content("TEXT_MESSAGE_CONTENT", message_id, text)]
            case ThoughtAdded(thought_id=thought_id, text=text):
                return [*self._open_thought(thought_id), _content("REASONING_MESSAGE_CONTENT", thought_id, text)]
            case ThoughtEnded(thought_id=thought_id):
                return self._close_thought(thought_id)
            case CallBegun(call_id=call_id):
                self._calls[call_id], self._arguments[call_id] = event, []
                return [_call_begun(event)]
            case CallArgumentsAdded(call_id=call_id, text=text):
                self._arguments[call_id].append(text)
                return [{"type": "TOOL_CALL_ARGS", "toolCallId": call_id, "delta": text}]
            case CallSettled(call_id=call_id):
                return self._close_call(call_id)
            case AnswerSettled():
                return self._settle(event)
            case UserSpoke(message_id=message_id):
                return self._user(event)
            case ResultAdded(call_id=call_id, message_id=message_id, message=message):
                result: AguiEvent = {"type": "TOOL_CALL_RESULT", "messageId": message_id, "toolCallId": call_id}
                return [{**result, "content": result_content(message), "role": "tool"}]
            case _:
                return self._add_other(event)

    def _add_other(self, event: RunEvent) -> list[AguiEvent]:
        match event:
            case StepBegun(turn_id=turn_id):
                self._step = str(turn_id)
                return [{"type": "STEP_STARTED", "stepName": self._step}]
            case StepEnded():
                return self._end_step()
            case CallProgressed(call_id=call_id, name=name, text=text):
                content: JsonValue = {"toolCallId": call_id, "toolName": name, "text": text}
                kind = {"messageId": f"{call_id}.progress", "activityType": "lanebus.progress"}
                return [{"type": "ACTIVITY_SNAPSHOT", **kind, "content": content}]
            case ChildBegun(child=child):
                if child in self._children:
                    return []
                self._children[child] = event
                return [_child_begun(event)]
            case ChildEnded(child=child, result=result):
                if self._children.pop(child, None) is None:
                    return []
                if result.is_error:
                    return [{"type": "SUBAGENT_ERROR", "subagentRunId": child, "message": result_content(result)}]
                return [{"type": "SUBAGENT_FINISHED", "subagentRunId": child, "outcome": {"type": "success"}}]
            case NoteAdded(kind=kind, data=data):
                return [{"type": "CUSTOM", "name": kind, "value": data}]
            case _:
                return []

    def finished(self, rested: RunRested) -> list[AguiEvent]:
        """Return the events that end the run: the ends of all that is open, and the outcome."""
        events = self._close_all()
        spent: AguiEvent = {"usage": usage} if (usage := token_usage(rested)) else {}
        if (cost := cost_of(rested)) is not None:
            spent["metadata"] = {"lanebus": {"costUsd": cost}}
        if rested.outcome == "failed":
            error = self.failed(rested.fault or "the agent failed", rested.stop_reason or "error")
            return [*events, {**error, **spent}]
        return [*events, {"type": "RUN_FINISHED", **self._ids, **self._outcome(rested), **spent}]

    def _outcome(self, rested: RunRested) -> AguiEvent:
        match rested.outcome:
            case "waiting" | "paused":
                return {"outcome": {"type": "interrupt", "interrupts": interrupts_of(rested)}}
            case "aborted":
                return {"outcome": {"type": "cancelled"}} if self._is_current else {"result": {"cancelled": True}}
            case _:
                return {"outcome": {"type": "success"}}

    def _open_text(self, message_id: str) -> list[AguiEvent]:
        if message_id in self._texts:
            return []
        self._texts[message_id] = None
        return [{"type": "TEXT_MESSAGE_START", "messageId": message_id, "role": "assistant"}]

    def _close_text(self, message_id: str) -> list[AguiEvent]:
        if message_id not in self._texts:
            return []
        del self._texts[message_id]
        return [_end("TEXT_MESSAGE_END", message_id)]

    def _open_thought(self, thought: str) -> list[AguiEvent]:
        if thought in self._thoughts:
            return []
        self._thoughts[thought] = None
        return _thought_begun(thought)

    def _close_thought(self, thought: str) -> list[AguiEvent]:
        if thought not in self._thoughts:
            return []
        del self._thoughts[thought]
        return [_end("REASONING_MESSAGE_END", thought), _end("REASONING_END", thought)]

    def _close_call(self, call: str) -> list[AguiEvent]:
        """Return the end of a call. The arguments of a call that was cut are completed: they have to be JSON."""
        if self._calls.pop(call, None) is None:
            return []
        text = "".join(self._arguments.pop(call))
        rest = json_end(text)
        events: list[AguiEvent] = [{"type": "TOOL_CALL_ARGS", "toolCallId": call, "delta": rest}] if rest else []
        return [*events, {"type": "TOOL_CALL_END", "toolCallId": call}]

    def _settle(self, event: AnswerSettled) -> list[AguiEvent]:
        if event.is_replaced:
            self.needs_snapshot = True
        mine = [call for call, begun in self._calls.items() if begun.message_id == event.message_id]
        thoughts = [each for each in self._thoughts if each.startswith(f"{event.message_id}.")]
        return [
            *(end for each in thoughts for end in self._close_thought(each)),
            *(end for call in mine for end in self._close_call(call)),
            *self._close_text(event.message_id),
        ]

    def _end_step(self) -> list[AguiEvent]:
        step, self._step = self._step, None
        return [] if step is None else [{"type": "STEP_FINISHED", "stepName": step}]

    def _close_all(self) -> list[AguiEvent]:
        events = [end for each in [*self._thoughts] for end in self._close_thought(each)]
        events += [end for call in [*self._calls] for end in self._close_call(call)]
        events += [end for message_id in [*self._texts] for end in self._close_text(message_id)]
        for child in self._children:
            events.append({"type": "SUBAGENT_FINISHED", "subagentRunId": child})
        self._children.clear()
        return [*events, *self._end_step()]

    def _user(self, event: UserSpoke) -> list[AguiEvent]:
        content = user_content(event.message)
        if not isinstance(content, str):
            self.needs_snapshot = True  # no event but a snapshot has parts other than text
            return []
        start: AguiEvent = {"type": "TEXT_MESSAGE_START", "messageId": event.message_id, "role": "user"}
        text = [_content("TEXT_MESSAGE_CONTENT", event.message_id, content)] if content else []
        return [start, *text, _end("TEXT_MESSAGE_END", event.message_id)]


def _content(type: str, message_id: str, text: str) -> AguiEvent:
    return {"type": type, "messageId": message_id, "delta": text}


def _end(type: str, message_id: str) -> AguiEvent:
    return {"type": type, "messageId": message_id}


def _call_begun(call: CallBegun) -> AguiEvent:
    named: AguiEvent = {"toolCallName": call.name, "parentMessageId": call.message_id}
    return {"type": "TOOL_CALL_START", "toolCallId": call.call_id, **named}


def _thought_begun(thought: str) -> list[AguiEvent]:
    return [
        {"type": "REASONING_START", "messageId": thought},
        {"type": "REASONING_MESSAGE_START", "messageId": thought, "role": "reasoning"},
    ]


def _child_begun(child: ChildBegun) -> AguiEvent:
    begun: AguiEvent = {"type": "SUBAGENT_STARTED", "subagentRunId": child.child, "name": child.agent}
    return begun if child.call_id is None else {**begun, "parentToolCallId": child.call_id}
