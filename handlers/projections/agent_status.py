"""What the extension lane says about a session's loop: what was begun, what was commanded, and what became of it. Pure.

With the LLM lane's `LoopState` it is all a worker has to know. Facts change it; a command alone only waits to be
answered.
"""

from collections.abc import Mapping
from typing import Literal

from lanebus.bus.errors import DecodeError, MessageError
from lanebus.bus.messages.base import Frozen
from lanebus.bus.messages.control import Approve, Control, Deny, parse_control
from lanebus.bus.messages.events import (
    AgentEnded,
    AgentEvent,
    AgentStarted,
    CompactionEnded,
    CompactionFailed,
    ControlAnswered,
    RequestDefined,
    SessionLinked,
    ToolEnded,
    ToolStarted,
    ToolWaiting,
    TurnStarted,
    UsageSettled,
    parse_event,
)
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.message import StopReason
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.wire.envelope import Envelope
from lanebus.handlers.projections.definition import projection

__all__ = ("STATUS", "STATUS_KINDS", "Command", "LoopStatus", "Status")

STATUS_KINDS = frozenset(
    {
        "control.*",
        AgentStarted.KIND,
        AgentEnded.KIND,
        TurnStarted.KIND,
        ToolStarted.KIND,
        ToolWaiting.KIND,
        ToolEnded.KIND,
        ControlAnswered.KIND,
        SessionLinked.KIND,
        CompactionEnded.KIND,
        CompactionFailed.KIND,
        RequestDefined.KIND,
        UsageSettled.KIND,
    }
)
"""the messages that the fold looks at; others change nothing"""

_HALTS: Mapping[str, Literal["paused", "handoff"]] = {"control.pause": "paused", "control.handoff": "handoff"}


class Command(Frozen):
    """A `control.…` message in its place."""

    position: int
    message: ExtensionMessage

    @property
    def control(self) -> Control | MessageError:
        """What it says; an error where it cannot be read."""
        try:
            return parse_control(self.message) or DecodeError("kind", "is no command's")
        except MessageError as error:
            return error


class LoopStatus(Frozen):
    """The newest loop."""

    loop_id: str
    started: float
    """seconds UTC by the server's clock"""
    position: int = 0
    """where it began; of a loop that goes on from one that was stopped, where that one did"""
    ended: StopReason | None = None
    """None while it is open"""
    turn: TurnId | None = None
    """the newest one"""
    calls_started: Mapping[str, int] = {}
    """of that turn: tool call id → position of its newest `ToolStarted`"""
    calls_attempts: Mapping[str, int] = {}
    """of that turn: tool call id → how often it was started"""
    calls_waiting: Mapping[str, ToolWaiting] = {}
    """of that turn: calls that were put to a person, answered or not"""
    calls_answered: Mapping[str, Command] = {}
    """of that turn: what the person said to the newest question, once the worker has taken it"""
    calls_ended: Mapping[str, int] = {}
    """of that turn: tool call id → position of its `ToolEnded`"""

    @property
    def is_stopped(self) -> bool:
        """It ended before it was done: what it left open, the next loop goes on with."""
        return self.ended in {"paused", "handoff", "contextCompacted"}


class Status(Frozen):
    """Where a session's work stands as of the last entry folded in."""

    loop: LoopStatus | None = None
    halted: Literal["paused", "handoff"] | None = None
    """nothing is answered until it is resumed"""
    commands: tuple[Command, ...] = ()
    """not answered yet, in the order of the log"""
    link: SessionLinked | None = None
    """what the session was begun for, if another one began it"""
    session: str | None = None
    compactions_failed: int = 0
    """tries in a row that gave no summary, since the newest loop began"""
    request: str | None = None
    """hash of the newest `RequestDefined`"""
    request_position: int = 0
    """where that stands"""
    settled: tuple[int, ...] = ()
    """positions of the answers whose usage was estimated, and is settled"""

    def is_over(self, loop_id: str) -> bool:
        """Whether the newest loop is this one, and has ended."""
        return self.loop is not None and self.loop.loop_id == loop_id and self.loop.ended is not None


def _evolve(status: Status, envelope: Envelope) -> Status:
    message = envelope.message
    if not isinstance(message, ExtensionMessage):
        return status
    if message.is_control:
        return status.model_copy(
            update={"commands": (*status.commands, Command(position=envelope.position, message=message))}
        )
    try:
        event = parse_event(message)
    except MessageError:
        return status
    return status if event is None else _on_event(status, event, envelope)


def _on_event(status: Status, event: AgentEvent, envelope: Envelope) -> Status:
    match event:
        case AgentStarted(loop_id=loop_id):
            if status.loop is not None and status.loop.loop_id == loop_id:
                return status
            loop = _begun(status.loop, loop_id, envelope)
            return status.model_copy(update={"loop": loop, "compactions_failed": 0})
        case CompactionEnded():
            return status.model_copy(update={"compactions_failed": 0})
        case CompactionFailed(is_interrupted=False):
            return status.model_copy(update={"compactions_failed": status.compactions_failed + 1})
        case ControlAnswered():
            return _on_answered(status, event)
        case SessionLinked(child=child):
            return status.model_copy(update={"link": event}) if child == envelope.session else status
        case RequestDefined(hash=hash):
            return status.model_copy(update={"request": hash, "request_position": envelope.position})
        case UsageSettled(message=message):
            known = message in status.settled
            return status if known else status.model_copy(update={"settled": (*status.settled, message)})
        case _ if status.loop is not None:
            loop = _in_loop(status.loop, event, envelope.position)
            return status if loop is status.loop else status.model_copy(update={"loop": loop})
        case _:
            return status


def _begun(before: LoopStatus | None, loop_id: str, envelope: Envelope) -> LoopStatus:
    """A loop that begins. One that goes on from a loop that was stopped has what is known of its open calls."""
    if before is not None and before.is_stopped:
        changes = {"loop_id": loop_id, "started": envelope.time, "ended": None, "turn": None}
        return before.model_copy(update={**changes, **_open_calls(before)})
    return LoopStatus(loop_id=loop_id, started=envelope.time, position=envelope.position)


def _open_calls(loop: LoopStatus) -> dict[str, Mapping[str, object]]:
    """What is known of the calls that have not ended. The others' ids may come again: a provider that counts them anew
    in each answer calls none of those that were."""

    def left(known: Mapping[str, object]) -> Mapping[str, object]:
        return {call: each for call, each in known.items() if call not in loop.calls_ended}

    return {
        "calls_started": left(loop.calls_started),
        "calls_attempts": left(loop.calls_attempts),
        "calls_waiting": left(loop.calls_waiting),
        "calls_answered": left(loop.calls_answered),
        "calls_ended": {},
    }


def _in_loop(loop: LoopStatus, event: AgentEvent, position: int) -> LoopStatus:
    match event:
        case AgentEnded(loop_id=loop.loop_id, stop_reason=stop_reason):
            return loop.model_copy(update={"ended": stop_reason})
        case TurnStarted(turn_id=turn_id) if turn_id.loop_id == loop.loop_id:
            if turn_id == loop.turn:
                return loop
            if loop.turn is None:
                return loop.model_copy(update={"turn": turn_id})
            return LoopStatus(loop_id=loop.loop_id, started=loop.started, position=loop.position, turn=turn_id)
        case ToolStarted(turn_id=loop.turn, tool_call_id=call):
            attempts = {**loop.calls_attempts, call: event.attempt or 1}
            started = {**loop.calls_started, call: position}
            return loop.model_copy(update={"calls_started": started, "calls_attempts": attempts})
        case ToolEnded(turn_id=loop.turn, tool_call_id=call):
            return loop.model_copy(update={"calls_ended": {**loop.calls_ended, call: position}})
        case ToolWaiting(turn_id=loop.turn, tool_call_id=call):
            # Asked again, it waits again: an answer to an earlier question is none to this one.
            answered = {known: each for known, each in loop.calls_answered.items() if known != call}
            waiting = {**loop.calls_waiting, call: event}
            return loop.model_copy(update={"calls_waiting": waiting, "calls_answered": answered})
        case _:
            return loop


def _on_answered(status: Status, event: ControlAnswered) -> Status:
    command = next((each for each in status.commands if each.position == event.control), None)
    if command is None:
        return status
    status = status.model_copy(update={"commands": tuple(each for each in status.commands if each is not command)})
    if event.outcome != "applied":
        return status
    kind = command.message.kind
    if kind in _HALTS:
        return status.model_copy(update={"halted": _HALTS[kind]})
    if kind == "control.resume":
        return status.model_copy(update={"halted": None})
    if kind == "control.abort" and status.loop is not None and status.loop.ended is not None:
        return status.model_copy(update={"loop": _left_alone(status.loop)})
    if kind in {"control.approve", "control.deny"} and status.loop is not None:
        return status.model_copy(update={"loop": _answered_call(status.loop, command)})
    return status


def _left_alone(loop: LoopStatus) -> LoopStatus:
    """A loop that was stopped and then aborted: nobody goes on with its calls, and none waits for a person."""
    return loop.model_copy(
        update={"calls_started": {}, "calls_attempts": {}, "calls_waiting": {}, "calls_answered": {}}
    )


def _answered_call(loop: LoopStatus, command: Command) -> LoopStatus:
    control = command.control
    if not isinstance(control, Approve | Deny):
        return loop
    return loop.model_copy(update={"calls_answered": {**loop.calls_answered, control.tool_call_id: command}})


STATUS = projection("status", version=1, forked=Status())(_evolve)
