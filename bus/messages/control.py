"""What people and programs tell a running agent: typed messages that ride the extension lane as kind `control.<verb>`.

They are commands. Nothing is changed by one until the session's worker answers it with a `ControlAnswered` event, in
the step in which it takes effect; the worker takes them in the order of the log, each once. None carries words for a
model: what a user says stands in the LLM lane, and a `Steer` names its position.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import JsonValue, ValidationError

from lanebus.bus.errors import DecodeError, UnknownKind
from lanebus.bus.messages.base import Wire
from lanebus.bus.messages.context_entry import Position
from lanebus.bus.messages.extension import CONTROL, ExtensionMessage
from lanebus.bus.messages.turn import TurnId

__all__ = (
    "CONTROLS",
    "Abort",
    "Approve",
    "Compact",
    "Control",
    "Deny",
    "Handoff",
    "Pause",
    "Resume",
    "Steer",
    "parse_control",
)


class Control(Wire):
    """The root of all commands; `KIND` is what the extension message is called."""

    KIND: ClassVar[str]

    by: str | None = None
    """who asks, for those who read the log"""

    def as_extension(self) -> ExtensionMessage:
        """This command as it is published."""
        return ExtensionMessage(kind=self.KIND, data=self.model_dump(mode="json", by_alias=True, exclude_none=True))

    @classmethod
    def read(cls, data: JsonValue) -> Self:
        """The command from an extension message's `data`.

        Raises:
            DecodeError: the data does not fit it.
        """
        try:
            return cls.model_validate(data, strict=False)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            raise DecodeError(".".join(("data", *map(str, first["loc"]))), first["msg"]) from None


class Abort(Control):
    """End the loop. Late where none is open."""

    KIND = "control.abort"
    loop_id: str | None = None
    """only if it is this one; None is the one that is open"""
    when: Literal["now", "turn"] = "now"
    """now: the model is cut short and tools are cancelled, the stop reason is aborted. turn: the turn that is under way
    is finished first, the stop reason is userStop"""
    reason: str | None = None


class Steer(Control):
    """A user's word that is meant for the loop that is running."""

    KIND = "control.steer"
    position: Position
    """of the user's message in the LLM lane, appended in the same step"""
    when: Literal["next", "now"] = "next"
    """next: the next request has it. now: the answer that is being spoken is cut, and tools that still run are
    skipped"""


class Approve(Control):
    """Let a tool run that waits for a person. Late where the call has its result, or its answer."""

    KIND = "control.approve"
    turn_id: TurnId
    tool_call_id: str


class Deny(Control):
    """Do not let a tool run that waits for a person: the model is told so, and not why. Late as `Approve` is."""

    KIND = "control.deny"
    turn_id: TurnId
    tool_call_id: str
    reason: str | None = None


class Pause(Control):
    """Stop after the turn that is under way; the loop ends as paused. What users say waits until `Resume`."""

    KIND = "control.pause"
    reason: str | None = None


class Handoff(Control):
    """As `Pause`, and the session is a person's until `Resume`."""

    KIND = "control.handoff"
    to: str | None = None
    """whom it is handed to"""
    reason: str | None = None


class Resume(Control):
    """Go on after `Pause` or `Handoff`: with the loop that was stopped, and with what users said since."""

    KIND = "control.resume"


class Compact(Control):
    """Compact the context before the next turn, however far from full it is."""

    KIND = "control.compact"


CONTROLS: Mapping[str, type[Control]] = {
    control.KIND.removeprefix(CONTROL): control
    for control in (Abort, Steer, Approve, Deny, Pause, Handoff, Resume, Compact)
}
"""verb → the command of the kind `control.<verb>`"""


def parse_control(message: ExtensionMessage) -> Control | None:
    """The command that an extension message is; None where its kind is no command's.

    Raises:
        UnknownKind: a kind `control.…` that does not exist.
        DecodeError: the data does not fit the command.
    """
    if not message.is_control:
        return None
    control = CONTROLS.get(message.kind.removeprefix(CONTROL))
    if control is None:
        raise UnknownKind(message.kind)
    return control.read(message.data)
