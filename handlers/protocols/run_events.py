"""The events of a run: what a chat client learns while an agent works, and what was shown of one answer so far.

Ids of answers are the ids of their messages in the log. Ids of calls are made from the answer's id and the place of the
call in it, because a provider may repeat its own ids, and because live deltas do not have them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pydantic import JsonValue

from lanebus.bus.messages import (
    AssistantMessage,
    StopReason,
    ToolCallBlock,
    ToolResultMessage,
    TurnId,
    Usage,
    UserMessage,
)

if TYPE_CHECKING:
    from lanebus.bus.messages import Delta


@dataclass(frozen=True, slots=True)
class UserSpoke:
    """A user's message. The notes that a loop writes to its model are left out."""

    message_id: str
    message: UserMessage
    position: int


@dataclass(frozen=True, slots=True)
class StepBegun:
    """A turn began: one model call with its tools."""

    turn_id: TurnId


@dataclass(frozen=True, slots=True)
class StepEnded:
    """A turn ended."""

    turn_id: TurnId


@dataclass(frozen=True, slots=True)
class AnswerBegun:
    """An answer has its first piece. An answer without any content has no event but `AnswerSettled`."""

    message_id: str
    turn_id: TurnId | None


@dataclass(frozen=True, slots=True)
class TextAdded:
    """Text to append to an answer. All pieces together are the text of the message in the log."""

    message_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ThoughtAdded:
    """Readable thinking to append to the passage `thought_id` of an answer."""

    message_id: str
    thought_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ThoughtEnded:
    """A passage of thinking is complete, because the answer went on or was settled."""

    message_id: str
    thought_id: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    """The model began to write a tool call."""

    message_id: str
    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArgumentsAdded:
    """A fragment of the JSON of a call's arguments."""

    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class CallSettled:
    """A call is complete. Its fragments together are JSON that is equal to `block.arguments`."""

    message_id: str
    call_id: str
    block: ToolCallBlock
    """the call as the log has it; `block.id` is the provider's id"""


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A worker began to run a call."""

    call_id: str


@dataclass(frozen=True, slots=True)
class AnswerSettled:
    """An answer ended: its message is in the log, or it was cut and is not."""

    message_id: str
    message: AssistantMessage | None
    """None if the answer was cut and left no message"""
    position: int
    outcome: Literal["complete", "failed", "superseded"]
    """"failed": the model failed, or the answer was aborted; its text stays, and its calls never run. "superseded": the
    worker was lost or the call is tried again, and another answer takes its place"""
    is_replaced: bool
    """whether events of this answer have to be taken back: show the message as the log has it instead of the pieces, or
    nothing if it was superseded. False if no such event was returned"""


@dataclass(frozen=True, slots=True)
class CallProgressed:
    """A tool reported its progress to people."""

    call_id: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class ResultAdded:
    """A call has its result."""

    call_id: str
    message_id: str
    message: ToolResultMessage
    is_denied: bool = False
    """whether a person denied the call"""


@dataclass(frozen=True, slots=True)
class ChildBegun:
    """A call started a sub-agent, whose session is `child`."""

    child: str
    agent: str
    call_id: str | None
    """None if the call is not known"""


@dataclass(frozen=True, slots=True)
class ChildEnded:
    """The call that started a sub-agent has its result."""

    child: str
    result: ToolResultMessage


@dataclass(frozen=True, slots=True)
class NoteAdded:
    """A message of the extension lane that is neither an agent event nor a command."""

    kind: str
    data: JsonValue
    position: int


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A call that waits for a person."""

    call_id: str
    turn_id: TurnId
    block: ToolCallBlock
    """the call; its `call_hash` is what an approval has to name"""
    why: Literal["approval", "unknown"]


@dataclass(frozen=True, slots=True)
class RunRested:
    """The agent rests: it has nothing to do, or cannot go on without a person."""

    outcome: Literal["finished", "waiting", "paused", "aborted", "failed"]
    """"finished": the answer is complete. "waiting": calls wait for a person. "paused": the session is paused or handed
    over to a person, until `Resume`"""
    position: int
    stop_reason: StopReason | None = None
    """stop reason of the last loop; None if there was none"""
    fault: str | None = None
    """for "failed": the reason. It is LLM content"""
    waiting: tuple[WaitingCall, ...] = ()
    """for "waiting": the calls, in their order"""
    usage: tuple[tuple[str | None, str | None, Usage], ...] = ()
    """provider, model and usage of the run's answers, failed ones too"""


RunEvent = (
    UserSpoke
    | StepBegun
    | StepEnded
    | AnswerBegun
    | TextAdded
    | ThoughtAdded
    | ThoughtEnded
    | CallBegun
    | CallArgumentsAdded
    | CallSettled
    | CallStarted
    | AnswerSettled
    | CallProgressed
    | ResultAdded
    | ChildBegun
    | ChildEnded
    | NoteAdded
    | RunRested
)
"""One event of a run."""


# What was shown of one answer so far, and what its settled message adds to that. Pure.


def call_id(message_id: str, index: int) -> str:
    """Return the id of a call: the id of its answer, and its index among the answer's calls, from 0."""
    return f"{message_id}.call{index}"


@dataclass(slots=True)
class _ShownBlock:
    """The pieces of one block that were shown."""

    kind: str
    id: str = ""
    """of a thought or a call"""
    name: str = ""
    """of a call"""
    pieces: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""

    def new_part(self, delta: Delta) -> str | None:
        """Return what a delta adds; None if it contradicts what was shown."""
        if not delta.is_snapshot:
            return delta.delta
        shown, whole = self.text, delta.delta
        if shown.startswith(whole):
            return ""  # a snapshot from before the last pieces
        return whole[len(shown) :] if whole.startswith(shown) else None


class ShownAnswer:
    """One answer whose message is not in the log yet."""

    def __init__(self, message_id: str, turn_id: TurnId | None) -> None:
        self.message_id, self.turn_id = message_id, turn_id
        self._blocks: dict[int, _ShownBlock] = {}
        self._text: list[str] = []
        self._open_thought: _ShownBlock | None = None
        self._is_begun = self._is_wrong = False

    @property
    def is_shown(self) -> bool:
        """Whether an event of the answer was returned."""
        return self._is_begun

    def shown(self) -> list[RunEvent]:
        """Return the events so far again, joined."""
        events: list[RunEvent] = [AnswerBegun(self.message_id, self.turn_id)] if self._is_begun else []
        for block in self._blocks.values():
            match block.kind:
                case "text":
                    events.append(TextAdded(self.message_id, block.text))
                case "thinking":
                    events.append(ThoughtAdded(self.message_id, block.id, block.text))
                case _:
                    events += [
                        CallBegun(self.message_id, block.id, block.name),
                        CallArgumentsAdded(block.id, block.text),
                    ]
        return events

    def add(self, delta: Delta) -> list[RunEvent]:
        """Return the events of a live delta."""
        block = self._blocks.get(delta.block)
        events: list[RunEvent] = []
        if block is None:
            if delta.kind == "toolCall" and not delta.tool_name:
                return []  # a call cannot be shown without its name; the message has it
            block = self._blocks[delta.block] = _ShownBlock(delta.kind)
            events += self._begin(block, delta.tool_name)
        part = block.new_part(delta) if block.kind == delta.kind else None
        if part is None:
            self._is_wrong = True
            return events
        return [*events, *self._show(block, part)]

    def settle(self, message: AssistantMessage) -> tuple[list[RunEvent], bool]:
        """Return the events that complete the answer, and whether what was shown differs from the message."""
        events: list[RunEvent] = []
        self._settle_thoughts(message, events)
        text, shown = message.text_content(), "".join(self._text)
        if text.startswith(shown):
            block = _ShownBlock("text")
            events += [*self._begin(block, None), *self._show(block, text[len(shown) :])] if text != shown else []
        else:
            self._is_wrong = True
        events += self._end_thought()
        self._settle_calls(message, events)
        return events, self._is_wrong and self._is_begun

    def _begin(self, block: _ShownBlock, name: str | None) -> list[RunEvent]:
        events: list[RunEvent] = []
        if not self._is_begun:
            self._is_begun = True
            events.append(AnswerBegun(self.message_id, self.turn_id))
        events += self._end_thought()
        if block.kind == "thinking":
            block.id = f"{self.message_id}.thought{self._count('thinking', block)}"
            self._open_thought = block
        elif block.kind == "toolCall":
            block.id, block.name = call_id(self.message_id, self._count("toolCall", block)), name or ""
            events.append(CallBegun(self.message_id, block.id, block.name))
        return events

    def _count(self, kind: str, new: _ShownBlock) -> int:
        return sum(block.kind == kind for block in self._blocks.values() if block is not new)

    def _end_thought(self) -> list[RunEvent]:
        block, self._open_thought = self._open_thought, None
        return [] if block is None else [ThoughtEnded(self.message_id, block.id)]

    def _show(self, block: _ShownBlock, part: str) -> list[RunEvent]:
        if not part:
            return []
        block.pieces.append(part)
        match block.kind:
            case "text":
                self._text.append(part)
                return [TextAdded(self.message_id, part)]
            case "thinking":
                if self._open_thought is not block:  # the answer has gone on: a client may not take more
                    self._is_wrong = True
                    return []
                return [ThoughtAdded(self.message_id, block.id, part)]
            case _:
                return [CallArgumentsAdded(block.id, part)]

    def _settle_thoughts(self, message: AssistantMessage, events: list[RunEvent]) -> None:
        shown = [block for block in self._blocks.values() if block.kind == "thinking"]
        whole = [block.text for block in message.thinking() if block.text]
        for index, text in enumerate(whole):
            if index >= len(shown):
                block = self._blocks[-1 - len(self._blocks)] = _ShownBlock("thinking")
                events += [*self._begin(block, None), *self._show(block, text)]
            elif text.startswith(known := shown[index].text):
                events += self._show(shown[index], text[len(known) :])
            else:
                self._is_wrong = True
        if len(shown) > len(whole):
            self._is_wrong = True

    def _settle_calls(self, message: AssistantMessage, events: list[RunEvent]) -> None:
        shown = [block for block in self._blocks.values() if block.kind == "toolCall"]
        calls = () if message.is_failed else tuple(message.tool_calls())
        if len(shown) > len(calls):
            self._is_wrong = True
        for index, call in enumerate(calls):
            if index >= len(shown):
                block = self._blocks[-1 - len(self._blocks)] = _ShownBlock("toolCall")
                events += [*self._begin(block, call.name), *self._show(block, arguments_text(call))]
            elif shown[index].name != call.name or not _is_same(shown[index].text, call):
                self._is_wrong = True
            elif not shown[index].text:
                events += self._show(shown[index], arguments_text(call))
            events.append(CallSettled(self.message_id, call_id(self.message_id, index), call))


def arguments_text(call: ToolCallBlock) -> str:
    """Return the JSON of a call's arguments."""
    return call.arguments_raw if call.arguments_raw is not None else json.dumps(call.arguments, ensure_ascii=False)


def _is_same(shown: str, call: ToolCallBlock) -> bool:
    if call.arguments_raw is not None:
        return shown == call.arguments_raw
    try:
        read: JsonValue = json.loads(shown) if shown.strip() else {}
    except ValueError:
        return False
    return read == call.arguments
