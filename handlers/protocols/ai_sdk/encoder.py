"""Turn the events of a run into the chunks of one UI message. Pure.

An unknown kind of chunk is fatal for a client, and clients do not say which version they are. So a stream has only what
every version reads, unless the client names its version in the header `AI-SDK-Version`.
"""

import json
import re
from collections import Counter
from typing import Literal, NamedTuple, assert_never

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import (
    AssistantMessage,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    TurnId,
    Usage,
)
from lanebus.bus.text import without_secrets
from lanebus.handlers.projections import summary
from lanebus.handlers.protocols.run_events import (
    AnswerBegun,
    AnswerSettled,
    CallArgumentsAdded,
    CallBegun,
    CallProgressed,
    CallSettled,
    CallStarted,
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
    call_id,
)

# One chunk of a UI message stream, and the bytes that carry it.

Chunk = dict[str, JsonValue]
"""a chunk, with its kind in `type`"""

STREAM_HEADER = ("x-vercel-ai-ui-message-stream", "v1")
"""the response header that names the protocol"""

POSITION_HEADER = "Lanebus-Position"
"""the response header with the position of what was posted; to resume its answer, a client needs it"""

DONE = b"data: [DONE]\n\n"
"""the last frame of a complete stream"""

_FINISH_REASONS: dict[StopReason, str] = {
    "stop": "stop",
    "length": "length",
    "toolUse": "tool-calls",
    "guardRail": "content-filter",
    "error": "error",
}


def encode_chunk(chunk: Chunk) -> bytes:
    """Return the frame of a chunk: one `data:` line in ASCII, without an event name or an id."""
    return b"data: " + json.dumps(chunk, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n\n"


def error_chunk(text: str) -> Chunk:
    """Return the chunk that ends a stream with an error. Clients show the text to people."""
    return {"type": "error", "errorText": text}


def finish_reason(reason: StopReason | None) -> str:
    """Return the finish reason for a stop reason; "other" if all versions of the client know no nearer one."""
    return _FINISH_REASONS.get(reason, "other") if reason is not None else "other"


def tool_output(message: ToolResultMessage) -> JsonValue:
    """Return a result as clients show it: its JSON if the tool returned JSON, its text if it has nothing else,
    otherwise a list of blocks."""
    if message.structured is not None:
        return message.structured
    if all(isinstance(block, TextBlock) for block in message.content):
        return message.text_content()
    return [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in message.content]


# Which version of the AI SDK reads a stream. An unknown kind of chunk is fatal for a client, and clients do not say
# which version they are.
#
# So a stream has only what every version reads, unless the client names its version in the header `AI-SDK-Version`.

VERSION_HEADER = "ai-sdk-version"

Version = Literal[5, 6, 7]
"""
- 5: approvals are data parts; a text that was taken back stays. The default
- 6: approvals are those of the AI SDK
- 7: also takes back what an answer showed that another answer replaces
"""

_VERSION_FORM = re.compile(r"([1-9][0-9]{0,3})(\.[0-9A-Za-z.-]{1,40})?")


def read_version(text: str | None) -> Version:
    """Return the version that a header names, such as `6` or `6.0.322`. None or "" means 5, and 8 or later means 7.

    Raises:
        DecodeError: the text is no version, or names one before 5.
    """
    if not text:
        return 5
    found = _VERSION_FORM.fullmatch(text.strip())
    number = int(found[1]) if found else 0
    if number < 5:
        raise DecodeError(VERSION_HEADER, "must be the version of the package ai, from 5, such as 6 or 6.0.322")
    return 5 if number == 5 else 6 if number == 6 else 7


_NOT_RUN = "The call was not run."


class ChatEncoder:
    """Encodes one run as one UI message. The same events give the same chunks, so a resumed stream repeats the message.

    After the chunks of a `RunRested`, the stream is complete.
    """

    def __init__(self, version: Version = 5, *, message_id: str | None = None, fault_characters: int = 500) -> None:
        """
        Args:
            version: the client's version.
            message_id: id of the UI message. None means the id of the run's first loop.
            fault_characters: maximum number of characters that are shown of the reason of a failure.
        """
        self._version, self._message_id, self._fault_characters = version, message_id, fault_characters
        self._is_begun = self._is_in_step = False
        self._parts = TextParts()
        self._writing: dict[str, str] = {}
        """calls that the model still writes → the names of their tools"""
        self._calls = set[str]()
        """calls that the client knows"""
        self._children: dict[str, Chunk] = {}

    def skip(self, event: RunEvent) -> None:
        """Note an event that the client has already. Call it instead of `add` to continue a message."""
        match event:
            case CallBegun(call_id=call) | CallSettled(call_id=call):
                self._calls.add(call)
            case StepBegun(turn_id=turn_id):
                self._message_id = self._message_id or turn_id.loop_id
            case ChildBegun():
                self._child_begun(event)
            case _:
                pass

    def add(self, event: RunEvent) -> list[Chunk]:
        """Return the chunks of an event."""
        match event:
            case UserSpoke() | CallStarted():
                return []
            case StepBegun(turn_id=turn_id):
                return [*self._begin(turn_id.loop_id), *self._end_step(), *self._begin_step()]
            case StepEnded():
                return self._end_step()
            case AnswerBegun(message_id=message_id):
                self._parts.begin_answer()
                return self._begin(message_id)
            case TextAdded() | ThoughtAdded() | ThoughtEnded():
                return self._on_piece(event)
            case CallBegun() | CallArgumentsAdded() | CallSettled() | CallProgressed() | ResultAdded():
                return self._on_call(event)
            case AnswerSettled():
                return self._settle(event)
            case ChildBegun():
                return [*self._begin(event.child), self._child_begun(event)]
            case ChildEnded():
                return self._child_ended(event)
            case NoteAdded(kind=kind, data=data, position=position):
                return [{"type": f"data-{kind}", "id": str(position), "data": data, "transient": True}]
            case RunRested():
                return self._rest(event)
            case _:
                assert_never(event)

    def _begin(self, fallback: str) -> list[Chunk]:
        """Return the start of the message, once.

        Args:
            fallback: the id of the message, if it has none yet.
        """
        if self._is_begun:
            return []
        self._is_begun = True
        self._message_id = self._message_id or fallback
        return [{"type": "start", "messageId": self._message_id}]

    def _begin_step(self) -> list[Chunk]:
        self._is_in_step = True
        return [{"type": "start-step"}]

    def _end_step(self) -> list[Chunk]:
        chunks = self._parts.end()
        if self._is_in_step:
            self._is_in_step = False
            chunks.append({"type": "finish-step"})
        return chunks

    def _on_piece(self, event: TextAdded | ThoughtAdded | ThoughtEnded) -> list[Chunk]:
        match event:
            case TextAdded(message_id=message_id, text=text):
                return [*self._begin(message_id), *self._parts.add_text(message_id, text)]
            case ThoughtAdded(message_id=message_id, thought_id=thought, text=text):
                return [*self._begin(message_id), *self._parts.add_thought(thought, text)]
            case ThoughtEnded(thought_id=thought):
                return self._parts.end_thought(thought)

    def _on_call(
        self, event: CallBegun | CallArgumentsAdded | CallSettled | CallProgressed | ResultAdded
    ) -> list[Chunk]:
        match event:
            case CallBegun(message_id=message_id, call_id=call, name=name):
                return [*self._begin(message_id), *self._parts.end(), self._begin_call(call, name)]
            case CallArgumentsAdded(call_id=call, text=text):
                return [{"type": "tool-input-delta", "toolCallId": call, "inputTextDelta": text}]
            case CallSettled(call_id=call, block=block):
                return [self._settle_call(call, block)]
            case CallProgressed(call_id=call, name=name, text=text):
                said: Chunk = {"toolCallId": call, "toolName": name, "text": text}
                return [{"type": "data-tool-progress", "data": said, "transient": True}]
            case ResultAdded():
                return self._result(event)

    def _begin_call(self, call: str, name: str) -> Chunk:
        self._writing[call] = name
        self._calls.add(call)
        return {"type": "tool-input-start", "toolCallId": call, "toolName": name, "dynamic": True}

    def _settle_call(self, call: str, block: ToolCallBlock) -> Chunk:
        self._writing.pop(call, None)
        about: Chunk = {"toolCallId": call, "toolName": block.name, "dynamic": True}
        if block.arguments_raw is not None:
            fault = "The arguments are not valid JSON."
            return {"type": "tool-input-error", **about, "input": block.arguments_raw, "errorText": fault}
        return {"type": "tool-input-available", **about, "input": block.arguments}

    def _result(self, event: ResultAdded) -> list[Chunk]:
        call, message = event.call_id, event.message
        chunks = [*self._begin(event.message_id), *self._parts.end()]
        if call not in self._calls:  # a call from before the stream. A result without its call is fatal for clients
            self._calls.add(call)
            about: Chunk = {"toolCallId": call, "toolName": message.tool_name or "tool", "dynamic": True}
            chunks.append({"type": "tool-input-available", **about, "input": {}})
        if event.is_denied and self._version > 5:
            return [*chunks, {"type": "tool-output-denied", "toolCallId": call}]
        if message.is_error:
            return [*chunks, _failed_call(call, message.text_content() or "The tool failed.")]
        return [
            *chunks,
            {"type": "tool-output-available", "toolCallId": call, "output": tool_output(message), "dynamic": True},
        ]

    def _settle(self, event: AnswerSettled) -> list[Chunk]:
        chunks = self._parts.end()
        match event.outcome:
            case "superseded" if event.is_replaced:
                return [*chunks, *self._take_back()]
            case "complete" if event.is_replaced and event.message is not None:
                return [*chunks, *self._correct(event.message_id, event.message)]
            case "complete":
                return chunks
            case _:
                return [*chunks, *self._drop_calls()]

    def _correct(self, message_id: str, message: AssistantMessage) -> list[Chunk]:
        """Show an answer as the log has it. Its calls were corrected when they were settled."""
        if self._parts.shows(message):
            return []
        if self._version < 7:
            return self._parts.add_whole(message_id, message)
        chunks = [*self._take_back(), *self._parts.add_whole(message_id, message)]
        for index, block in enumerate(message.tool_calls()):
            call = call_id(message_id, index)
            chunks += [self._begin_call(call, block.name), self._settle_call(call, block)]
        return chunks

    def _take_back(self) -> list[Chunk]:
        """Remove what the step has shown; before version 7, continue in a new step."""
        if self._version >= 7:
            self._writing.clear()
            return [{"type": "reset-step"}]
        return [*self._drop_calls(), *([*self._end_step(), *self._begin_step()] if self._is_in_step else [])]

    def _drop_calls(self) -> list[Chunk]:
        """Return the ends of the calls that the model has not completed."""
        dropped = [_failed_call(call, _NOT_RUN) for call in self._writing]
        self._writing.clear()
        return dropped

    def _child_begun(self, event: ChildBegun) -> Chunk:
        data: Chunk = {"session": event.child, "agent": event.agent, "toolCallId": event.call_id, "state": "running"}
        self._children[event.child] = data
        return {"type": "data-subagent", "id": event.child, "data": data}

    def _child_ended(self, event: ChildEnded) -> list[Chunk]:
        state = "failed" if event.result.is_error else "completed"
        data: Chunk = {**self._children.pop(event.child, {"session": event.child}), "state": state}
        return [*self._begin(event.child), {"type": "data-subagent", "id": event.child, "data": data}]

    def _rest(self, event: RunRested) -> list[Chunk]:
        chunks = [*self._parts.end(), *self._drop_calls()]
        if event.outcome == "waiting":
            chunks += self._begin(str(event.position))
            chunks += [self._approval(call, event.position) for call in event.waiting]
        totals = usage_totals(event)
        if totals is not None and self._is_begun:
            chunks.append({"type": "data-usage", "id": "usage", "data": totals})
        chunks += self._end_step()
        about: Chunk = {"outcome": event.outcome, "stopReason": event.stop_reason}
        if totals is not None:
            about["usage"] = totals
        match event.outcome:
            case "aborted":
                return [*chunks, {"type": "message-metadata", "messageMetadata": about}, {"type": "abort"}]
            case "failed":
                text = without_secrets(event.fault or "The agent failed.")[: self._fault_characters]
                return [*chunks, {"type": "message-metadata", "messageMetadata": about}, error_chunk(text)]
            case "waiting" | "paused" | "finished":
                reason = "tool-calls" if event.outcome == "waiting" else finish_reason(event.stop_reason)
                return [*chunks, {"type": "finish", "finishReason": reason, "messageMetadata": about}]

    def _approval(self, call: WaitingCall, position: int) -> Chunk:
        approval = str(ApprovalId(call.turn_id, position, call.block.call_hash, call.block.id))
        if self._version > 5:
            return {"type": "tool-approval-request", "approvalId": approval, "toolCallId": call.call_id}
        command: Chunk = {
            "turnId": str(call.turn_id),
            "toolCallId": call.block.id,
            "callHash": call.block.call_hash,
        }
        data: Chunk = {
            "approvalId": approval,
            "toolCallId": call.call_id,
            "toolName": call.block.name,
            "why": call.why,
            "command": command,
        }
        return {"type": "data-approval", "id": call.call_id, "data": data}


def _failed_call(call: str, text: str) -> Chunk:
    return {"type": "tool-output-error", "toolCallId": call, "errorText": text, "dynamic": True}


class TextParts:
    """Opens and closes parts, and knows what they show of the present answer."""

    def __init__(self) -> None:
        self._text: str | None = None
        """id of the text part that is open"""
        self._thought: str | None = None
        self._numbers = Counter[str]()
        """number of the text parts of each answer"""
        self._shown_text, self._shown_thoughts = list[str](), list[str]()

    def begin_answer(self) -> None:
        """Forget what is shown, because another answer begins."""
        self._shown_text, self._shown_thoughts = [], []

    def add_text(self, message_id: str, text: str) -> list[Chunk]:
        """Return the chunks that append text."""
        chunks: list[Chunk] = []
        if self._text is None:
            chunks += self.end()
            self._numbers[message_id] += 1
            self._text = f"{message_id}.text{self._numbers[message_id]}"
            chunks.append({"type": "text-start", "id": self._text})
        self._shown_text.append(text)
        return [*chunks, {"type": "text-delta", "id": self._text, "delta": text}]

    def add_thought(self, thought: str, text: str) -> list[Chunk]:
        """Return the chunks that append to a passage of reasoning."""
        chunks: list[Chunk] = []
        if self._thought != thought:
            chunks += self.end()
            self._thought = thought
            chunks.append({"type": "reasoning-start", "id": thought})
        self._shown_thoughts.append(text)
        return [*chunks, {"type": "reasoning-delta", "id": thought, "delta": text}]

    def end_thought(self, thought: str) -> list[Chunk]:
        """Return the end of a passage of reasoning, if it is open."""
        return self.end() if self._thought == thought else []

    def end(self) -> list[Chunk]:
        """Return the end of the open part."""
        chunks: list[Chunk] = []
        if self._text is not None:
            chunks.append({"type": "text-end", "id": self._text})
        if self._thought is not None:
            chunks.append({"type": "reasoning-end", "id": self._thought})
        self._text = self._thought = None
        return chunks

    def shows(self, message: AssistantMessage) -> bool:
        """Return whether the parts show all text and reasoning of an answer, and nothing else."""
        thoughts = "".join(block.text for block in message.thinking())
        return "".join(self._shown_text) == message.text_content() and "".join(self._shown_thoughts) == thoughts

    def add_whole(self, message_id: str, message: AssistantMessage) -> list[Chunk]:
        """Return the chunks that show all text and reasoning of an answer, in new parts."""
        chunks = self.end()
        for index, block in enumerate(message.content):
            if isinstance(block, TextBlock) and block.text:
                chunks += self.add_text(message_id, block.text)
            elif isinstance(block, ThinkingBlock) and block.text:
                chunks += self.add_thought(f"{message_id}.whole{index}", block.text)
        return [*chunks, *self.end()]


def usage_totals(rested: RunRested) -> JsonValue:
    """Return the usage of a run, in all and of each model; None if nothing is known of it."""
    if not rested.usage:
        return None
    total = Usage()
    for _, _, usage in rested.usage:
        total = total.combine(usage)
    models: list[JsonValue] = [
        {"provider": provider, "model": model, **_usage_numbers(usage)} for provider, model, usage in rested.usage
    ]
    return {**_usage_numbers(total), "models": models}


def _usage_numbers(usage: Usage) -> dict[str, JsonValue]:
    found = summary(usage)
    cost = found["cost"]
    return {
        "input": found["input"],
        "output": found["output"],
        "reasoning": found["reasoning"],
        "cacheRead": found["cache_read"],
        "cacheWrite": found["cache_write"],
        "totalTokens": found["total_tokens"],
        "cost": None if cost is None else cost["total"],
    }


# The id of a tool approval in the AI SDK. It names the turn, the request, the shown arguments and the call. So the
# answer needs nothing but this id, and approves no other arguments.

_APPROVAL_ID = re.compile(r"([^@/]+)@([1-9][0-9]{0,15})/([0-9a-f]{64})/(.+)", re.DOTALL)


class ApprovalId(NamedTuple):
    """What an approval id names."""

    turn_id: TurnId
    position: int
    """position of the request for the approval. A second request for the same call has another position"""
    call_hash: str
    """`ToolCallBlock.call_hash` of the call that the client shows"""
    tool_call_id: str

    def __str__(self) -> str:
        return f"{self.turn_id}@{self.position}/{self.call_hash}/{self.tool_call_id}"

    @classmethod
    def read(cls, text: str, path: str) -> "ApprovalId":
        """Read an id as `str` writes it.

        Args:
            text: the id.
            path: path of the id, for the error.

        Raises:
            DecodeError: the text is no such id.
        """
        parts = _APPROVAL_ID.fullmatch(text)
        if parts is None:
            raise DecodeError(path, "is no approval id of this server: answer with the id of the approval request")
        turn, position, call_hash, call = parts.groups()
        return cls(TurnId.from_text(turn), int(position), call_hash, call)
