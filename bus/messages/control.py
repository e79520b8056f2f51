"""Commands to a running agent: typed messages of kind `control.<verb>` in the extension lane.

The session's worker handles each command once, in log order. It answers a command with a `ControlAnswered` event.
The event is in the same publish as the effect of the command. Until then the command changes nothing.

A command contains no text for a model. A user's text is in the LLM lane, and a `Steer` refers to it by position.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from lanebus.bus.errors import UnknownKind, require_instance
from lanebus.bus.messages.context_entry import Position
from lanebus.bus.messages.extension import CONTROL, EXTENSION_ADVICE, ExtensionData, ExtensionMessage
from lanebus.bus.messages.message import TurnId

_CALL_HASH = re.compile(r"[0-9a-f]{64}")


def _check_call_hash(text: str) -> str:
    if _CALL_HASH.fullmatch(text) is None:
        advice = "pass the call's `call_hash`, a SHA-256 of 64 digits 0-9 and a-f, or none"
        raise PydanticCustomError("call_hash", "{advice}", {"advice": advice})
    return text


class Control(ExtensionData):
    """The base class of all commands. `KIND` is the kind of the extension message that contains the command."""

    by: str | None = None
    """the person or program that sent the command, for readers of the log"""


class Abort(Control):
    """End the loop. If no loop is open, the command is answered as "late"."""

    KIND = "control.abort"
    loop_id: str | None = None
    """the loop to end. None ends the open loop"""
    when: Literal["now", "turn"] = "now"
    """"now": cancel the model call and the tools; the stop reason is `aborted`. "turn": finish the current turn first;
    the stop reason is `userStop`"""
    reason: str | None = None


class Steer(Control):
    """Send a user's message to the running loop."""

    KIND = "control.steer"
    position: Position
    """position of the user's message in the LLM lane, appended in the same publish"""
    when: Literal["next", "now"] = "next"
    """"next": include the message in the next request. "now": also cut the current answer and skip tools that still
    run"""


class Approve(Control):
    """Approve a tool call that waits for a person.

    If the call already has a result or a decision, the command is answered as "late"."""

    KIND = "control.approve"
    turn_id: TurnId
    tool_call_id: str
    call_hash: Annotated[str, AfterValidator(_check_call_hash)] | None = None
    """`ToolCallBlock.call_hash` of the call that the person saw. If the call has another hash, the command is answered
    as "refused". None approves the call whatever its arguments are"""


class Deny(Control):
    """Deny a tool call that waits for a person. The model reads that the call was denied, but not the reason.

    If the call already has a result or a decision, the command is answered as "late".
    """

    KIND = "control.deny"
    turn_id: TurnId
    tool_call_id: str
    reason: str | None = None


class Pause(Control):
    """Stop after the current turn; the loop ends as paused. Later messages of users wait until `Resume`."""

    KIND = "control.pause"
    reason: str | None = None


class Handoff(Control):
    """Pause the loop and hand the session to a person until `Resume`."""

    KIND = "control.handoff"
    to: str | None = None
    """the person that takes over"""
    reason: str | None = None


class Resume(Control):
    """Continue after `Pause` or `Handoff`: continue the stopped loop, with the messages that users have sent since."""

    KIND = "control.resume"


class Compact(Control):
    """Compact the context before the next turn, regardless of its size."""

    KIND = "control.compact"


CONTROLS: Mapping[str, type[Control]] = {
    control.KIND.removeprefix(CONTROL): control
    for control in (Abort, Steer, Approve, Deny, Pause, Handoff, Resume, Compact)
}
"""classes of the commands by verb: "abort" is the verb of the kind `control.abort`"""


def parse_control(message: ExtensionMessage) -> Control | None:
    """Return the command that an extension message contains; None if its kind is not a command.

    Raises:
        InvalidArgument: the argument is no extension message.
        UnknownKind: the message has a kind `control.…` that does not exist.
        DecodeError: the data does not fit the command.
    """
    require_instance("message", message, ExtensionMessage, EXTENSION_ADVICE)
    if not message.is_control:
        return None
    control = CONTROLS.get(message.kind.removeprefix(CONTROL))
    if control is None:
        raise UnknownKind(message.kind)
    return control.read(message.data)
