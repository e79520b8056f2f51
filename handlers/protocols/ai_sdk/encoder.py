"""Turn the events of a run into the chunks of one UI message. Pure."""

from typing import assert_never

from lanebus.bus.error_text import without_secrets
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import ToolCallBlock
from lanebus.handlers.protocols.ai_sdk.approval_id import ApprovalId
from lanebus.handlers.protocols.ai_sdk.chunk import Chunk, error_chunk, finish_reason, tool_output
from lanebus.handlers.protocols.ai_sdk.text_parts import TextParts
from lanebus.handlers.protocols.ai_sdk.usage import usage_totals
from lanebus.handlers.protocols.ai_sdk.version import Version
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
)
from lanebus.handlers.protocols.shown_answer import call_id

__all__ = ("ChatEncoder",)

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
            return [*chunks, _failed(call, message.text_content() or "The tool failed.")]
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
        dropped = [_failed(call, _NOT_RUN) for call in self._writing]
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


def _failed(call: str, text: str) -> Chunk:
    return {"type": "tool-output-error", "toolCallId": call, "errorText": text, "dynamic": True}
