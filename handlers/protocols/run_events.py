"""The events of a run: what a chat client learns while an agent works, in the order in which it happens.

Ids of answers are the ids of their messages in the log. Ids of calls are made from the answer's id and the place of the
call in it, because a provider may repeat its own ids, and because live deltas do not have them.
"""

from dataclasses import dataclass
from typing import Literal

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
