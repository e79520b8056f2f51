"""Encode the events of a run as AG-UI events. Pure.

The encoder keeps only what is open: the client refuses the end of a run in which anything is. What an answer showed and
the log does not confirm is taken back with a snapshot of the messages, which the caller makes: `needs_snapshot`.
"""

from __future__ import annotations

import json
import re

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import (
    Approve,
    Block,
    Control,
    Deny,
    Resume,
    TextBlock,
    ToolResultMessage,
    TurnId,
    Usage,
    UserMessage,
)
from lanebus.handlers.protocols.client_content import MediaBlock, shown_blocks
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
    WaitingCall,
)

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
                return [*self._open_text(message_id), _content_event("TEXT_MESSAGE_CONTENT", message_id, text)]
            case ThoughtAdded(thought_id=thought_id, text=text):
                return [*self._open_thought(thought_id), _content_event("REASONING_MESSAGE_CONTENT", thought_id, text)]
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
        return [_end_event("TEXT_MESSAGE_END", message_id)]

    def _open_thought(self, thought: str) -> list[AguiEvent]:
        if thought in self._thoughts:
            return []
        self._thoughts[thought] = None
        return _thought_begun(thought)

    def _close_thought(self, thought: str) -> list[AguiEvent]:
        if thought not in self._thoughts:
            return []
        del self._thoughts[thought]
        return [_end_event("REASONING_MESSAGE_END", thought), _end_event("REASONING_END", thought)]

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
        text = [_content_event("TEXT_MESSAGE_CONTENT", event.message_id, content)] if content else []
        return [start, *text, _end_event("TEXT_MESSAGE_END", event.message_id)]


def _content_event(type: str, message_id: str, text: str) -> AguiEvent:
    return {"type": type, "messageId": message_id, "delta": text}


def _end_event(type: str, message_id: str) -> AguiEvent:
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


# Interrupts: the questions to a person that end a run, and the answers that the next run begins with.
#
# The id of an interrupt says all that the answer needs: the turn, the call, and the hash of the arguments that the
# person saw. So no state is kept between the two runs, and an approval holds only for these arguments.

_TURN_END = re.compile(r"#[0-9]{1,18}/")
_CALL_HASH = re.compile(r"[0-9a-f]{64}")
_PAUSED_PREFIX = "paused/"
_ANSWER_ADVICE = 'answer with {"approved": true}, {"approved": false}, or the status "cancelled"'
_ANSWER_SCHEMA: JsonValue = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["approved"],
}


def interrupts_of(rested: RunRested) -> list[JsonValue]:
    """Return the interrupts of a run that waits for a person."""
    if rested.outcome == "paused":
        message = "A person took over" if rested.stop_reason == "handoff" else "The session is paused"
        return [
            {"id": f"{_PAUSED_PREFIX}{rested.position}", "reason": "lanebus:paused", "message": f"{message}: resume it"}
        ]
    return [_interrupt(call) for call in rested.waiting]


def _interrupt(call: WaitingCall) -> JsonValue:
    block = call.block
    is_unknown = call.why == "unknown"
    question = f"{block.name} was started and its outcome is unknown. Run it again?" if is_unknown else None
    return {
        "id": f"{call.turn_id}/{block.id}/{block.call_hash}",
        "reason": "tool_call",
        "message": question or f"Run {block.name}?",
        "toolCallId": call.call_id,
        "responseSchema": _ANSWER_SCHEMA,
        "metadata": {"lanebus": {"toolName": block.name, "arguments": block.arguments, "why": call.why}},
    }


def read_answer(interrupt_id: str, status: str, payload: JsonValue, by: str) -> Control | None:
    """Return the command that an answer to an interrupt stands for; None if it changes nothing.

    Args:
        interrupt_id: id of the interrupt.
        status: "resolved" or "cancelled".
        payload: the answer.
        by: name of the person.

    Raises:
        DecodeError: the id is of no interrupt, or the payload does not say whether the call is approved.
    """
    if interrupt_id.startswith(_PAUSED_PREFIX):
        return Resume(by=by) if status == "resolved" else None
    # In parts, because one pattern for all would take quadratic time: an id may be as long as a request.
    rest, _, call_hash = interrupt_id.rpartition("/")
    found = _TURN_END.search(rest, 1)
    if found is None or _CALL_HASH.fullmatch(call_hash) is None:
        raise DecodeError("resume.interruptId", "is no interrupt of this server")
    turn_id, call = TurnId.from_text(rest[: found.end() - 1]), rest[found.end() :]
    if status == "cancelled":
        return Deny(turn_id=turn_id, tool_call_id=call, by=by)
    fields = payload if isinstance(payload, dict) else {"approved": payload}
    is_approved, reason = fields.get("approved"), fields.get("reason")
    if not isinstance(is_approved, bool):
        raise DecodeError("resume.payload", _ANSWER_ADVICE)
    if is_approved:
        return Approve(turn_id=turn_id, tool_call_id=call, call_hash=call_hash, by=by)
    return Deny(turn_id=turn_id, tool_call_id=call, reason=reason if isinstance(reason, str) else None, by=by)


# Contents of messages in the form of AG-UI. Pure.


def user_content(message: UserMessage) -> JsonValue:
    """Return a user's content: a text, or parts if there is more than text.

    Media that the server stores have no address that the protocol can name, so they are a text in brackets.
    """
    if all(isinstance(block, TextBlock) for block in message.content):
        return message.text_content()
    return [_content_part(block) for block in shown_blocks(message)]


def as_shown(message: UserMessage) -> UserMessage:
    """Return a user's message as a client reads it from `user_content`, and may send it back with the same id."""
    if all(isinstance(block, TextBlock) for block in message.content):
        blocks: tuple[Block, ...] = (TextBlock(text=message.text_content()),)
    else:
        blocks = tuple(shown_blocks(message))
    return message.model_copy(update={"content": blocks})


def result_content(message: ToolResultMessage) -> str:
    """Return a tool's result as text. Clients before version 1.0 accept nothing else."""
    return message.text_with_results()


def _content_part(block: TextBlock | MediaBlock) -> JsonValue:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    media = block.media
    named: dict[str, JsonValue] = {} if media.mime_type is None else {"mimeType": media.mime_type}
    return {"type": block.type, "source": {"type": media.kind, "value": media.url or media.data, **named}}


# Usage in the form of AG-UI, where totals include their parts.

_MOST = 2**53 - 1
"""the largest integer that the protocol allows"""


def token_usage(rested: RunRested) -> list[JsonValue]:
    """Return the tokens of a run, one entry for each provider and model."""
    return [_usage_entry(provider, model, usage) for provider, model, usage in rested.usage]


def cost_of(rested: RunRested) -> str | None:
    """Return the cost of a run in US dollars as a decimal text; None if it is not known."""
    total = Usage()
    for _, _, usage in rested.usage:
        total = total.combine(usage)
    return None if total.cost is None else str(total.cost.total)


def _usage_entry(provider: str | None, model: str | None, usage: Usage) -> JsonValue:
    names: dict[str, JsonValue] = {}
    if provider:
        names["provider"] = provider
    if model:
        names["model"] = model
    whole = usage.input + usage.cache_read + usage.cache_write
    return {
        **names,
        "inputTokens": _token_count(whole),
        "outputTokens": _token_count(usage.output),
        "totalTokens": _token_count(usage.total_tokens or whole + usage.output),
        "reasoningTokens": _token_count(usage.reasoning),
        "cachedInputTokens": _token_count(usage.cache_read),
        "cacheWriteInputTokens": _token_count(usage.cache_write),
    }


def _token_count(tokens: int) -> int:
    return min(max(tokens, 0), _MOST)  # counts come from the provider unchecked


_JSON_TAILS = ("", '"', "0", "null", ":null", '":null', "rue", "ue", "e", "alse", "lse", "se", "ull", "ll", "l", '\\"')
_ESCAPE_TAILS = ('0"', '00"', '000"', '0000"')
_BRACKETS = {"{": "}", "[": "]"}


def json_end(text: str) -> str | None:
    """Return a short text that makes the beginning of a JSON text whole; None if it is no such beginning."""
    if not text.strip():
        return ""
    closers = _closing_brackets(text)
    for tail in (*_JSON_TAILS, *_ESCAPE_TAILS, *(f"{each}:null" for each in _ESCAPE_TAILS), '\\":null', '"":null'):
        end = tail + closers
        try:
            json.loads(text + end)
        except ValueError:
            continue
        return end
    return None


def _closing_brackets(text: str) -> str:
    """Return the brackets that close those that are open at the end of a text."""
    is_open, is_escaped, stack = False, False, list[str]()
    for each in text:
        if is_open:
            if is_escaped:
                is_escaped = False
            elif each == "\\":
                is_escaped = True
            elif each == '"':
                is_open = False
        elif each == '"':
            is_open = True
        elif each in _BRACKETS:
            stack.append(_BRACKETS[each])
        elif each in "]}" and stack:
            stack.pop()
    return "".join(reversed(stack))
