"""The status of a session's newest loop, folded from the extension lane: its turn, tool calls and commands. Pure.

A worker decides from this status and the LLM lane's `LoopState` alone. Events change the status. A command itself does
not change the loop; it is listed until a `ControlAnswered` answers the command. Imported entries change nothing.
"""

from collections.abc import Mapping
from typing import Literal, TypeVar

from lanebus.bus.errors import DecodeError, MessageError
from lanebus.bus.messages import (
    AgentEnded,
    AgentEvent,
    AgentStarted,
    Approve,
    CompactionEnded,
    CompactionFailed,
    Control,
    ControlAnswered,
    Deny,
    ExtensionMessage,
    Frozen,
    RequestDefined,
    SessionAssigned,
    SessionLinked,
    StopReason,
    ToolEnded,
    ToolStarted,
    ToolWaiting,
    TurnId,
    TurnStarted,
    UsageSettled,
    parse_control,
    parse_event,
)
from lanebus.bus.wire import Envelope
from lanebus.handlers.projections.definition import projection

T = TypeVar("T")

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
        SessionAssigned.KIND,
        SessionLinked.KIND,
        CompactionEnded.KIND,
        CompactionFailed.KIND,
        RequestDefined.KIND,
        UsageSettled.KIND,
    }
)
"""kinds of the messages that `STATUS` folds; other kinds change nothing"""

_DECIDED_KEPT = 64
"""A session can have any number of calls. Whoever decides late does so soon."""

_HALTS: Mapping[str, Literal["paused", "handoff"]] = {"control.pause": "paused", "control.handoff": "handoff"}


class Command(Frozen):
    """A `control.…` message and its position."""

    position: int
    message: ExtensionMessage

    @property
    def control(self) -> Control | MessageError:
        """The decoded command, or the error if it cannot be decoded."""
        try:
            return parse_control(self.message) or DecodeError("kind", "is no command's")
        except MessageError as error:
            return error


class Decided(Frozen):
    """A decision about a tool call that a worker has applied."""

    position: int
    """position of the command"""
    turn_id: TurnId
    tool_call_id: str
    decision: Literal["approve", "deny"]
    by: str | None = None
    """sender of the command"""


class LoopStatus(Frozen):
    """The status of the newest loop. All fields named `calls_…` concern only the loop's newest turn."""

    loop_id: str
    started: float
    """start of the loop, in seconds UTC by the server's clock"""
    position: int = 0
    """position of the loop's start, or of the stopped loop's start if this loop continues a stopped loop"""
    ended: StopReason | None = None
    """reason why the loop ended; None while the loop is open"""
    turn: TurnId | None = None
    """the newest turn; None before the first turn"""
    calls_started: Mapping[str, int] = {}
    """tool call id → position of the call's newest `ToolStarted`"""
    calls_attempts: Mapping[str, int] = {}
    """tool call id → number of times the call was started"""
    calls_waiting: Mapping[str, ToolWaiting] = {}
    """tool call id → the call's newest request for a person's approval, answered or not"""
    calls_answered: Mapping[str, Command] = {}
    """tool call id → the command that approved or denied the call's newest request, once a worker has applied the
    command"""
    assigned: int = 0
    """position of the newest handover to another agent since the newest turn began; 0 if there was none"""
    calls_lapsed: Mapping[str, Command] = {}
    """tool call id → the approval or denial that lapsed, because the session was handed over before the decision was
    carried out. A person is asked anew"""
    calls_ended: Mapping[str, int] = {}
    """tool call id → position of the call's `ToolEnded`"""

    @property
    def is_stopped(self) -> bool:
        """Whether the loop was stopped before it finished. The next loop continues the open calls of a stopped loop."""
        return self.ended in {"paused", "handoff", "contextCompacted"}


class Status(Frozen):
    """The status of a session's work as of the last folded entry."""

    loop: LoopStatus | None = None
    """the newest loop; None before the first loop"""
    halted: Literal["paused", "handoff"] | None = None
    """reason why workers do not answer the session; None if workers answer. `control.resume` sets it to None"""
    commands: tuple[Command, ...] = ()
    """commands that no `ControlAnswered` has answered, in order of position"""
    decided: tuple[Decided, ...] = ()
    """the newest decisions that a worker has applied, also about calls of earlier turns. Those that lapsed are left
    out"""
    assigned: int = 0
    """position of the newest handover to another agent. Approvals and denials before it that no worker has answered do
    not count; 0 if there was none"""
    link: SessionLinked | None = None
    """the link to the tool call that created this session, which is the first link; None if no tool call did"""
    session: str | None = None
    compactions_failed: int = 0
    """number of consecutive failed compactions since the newest loop started"""
    request: str | None = None
    """hash of the newest `RequestDefined`"""
    request_position: int = 0
    """position of the newest `RequestDefined`"""
    settled: tuple[int, ...] = ()
    """positions of the answers whose estimated usage was replaced by a `UsageSettled`"""

    def is_over(self, loop_id: str) -> bool:
        """Return whether `loop_id` is the newest loop and this loop has ended."""
        return self.loop is not None and self.loop.loop_id == loop_id and self.loop.ended is not None


def _evolve(status: Status, envelope: Envelope) -> Status:
    message = envelope.message
    if not isinstance(message, ExtensionMessage) or envelope.is_imported:
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
        case SessionAssigned(agent=agent, previous=previous):
            return status if agent == previous else _on_assigned(status, envelope.position)
        case SessionLinked(child=child):
            is_first = status.link is None and child == envelope.session
            return status.model_copy(update={"link": event}) if is_first else status
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
    """Return the status of a loop that starts. If the previous loop was stopped, its open calls are included."""
    if before is not None and before.is_stopped:
        return before.model_copy(
            update={
                "loop_id": loop_id,
                "started": envelope.time,
                "ended": None,
                "turn": None,
                "calls_started": _left(before, before.calls_started),
                "calls_attempts": _left(before, before.calls_attempts),
                "calls_waiting": _left(before, before.calls_waiting),
                "calls_answered": _left(before, before.calls_answered),
                "calls_lapsed": _left(before, before.calls_lapsed),
                "calls_ended": {},
            }
        )
    return LoopStatus(loop_id=loop_id, started=envelope.time, position=envelope.position)


def _left(loop: LoopStatus, known: Mapping[str, T]) -> Mapping[str, T]:
    """Return what is known of calls, without the calls that have ended.

    Some providers repeat call ids in each answer. So the id of an ended call may later name a new call.
    """
    return {call: each for call, each in known.items() if call not in loop.calls_ended}


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
            loop = loop.model_copy(update={"calls_started": started, "calls_attempts": attempts})
            # Workers of earlier versions carried out what had lapsed. In their logs, the call did run.
            return _answered_call(loop, loop.calls_lapsed[call]) if call in loop.calls_lapsed else loop
        case ToolEnded(turn_id=loop.turn, tool_call_id=call):
            return loop.model_copy(update={"calls_ended": {**loop.calls_ended, call: position}})
        case ToolWaiting(turn_id=loop.turn, tool_call_id=call):
            # A new request waits for a new answer. The answer to an earlier request does not apply.
            waiting = {**loop.calls_waiting, call: event}
            answered, lapsed = _without(loop.calls_answered, call), _without(loop.calls_lapsed, call)
            return loop.model_copy(
                update={"calls_waiting": waiting, "calls_answered": answered, "calls_lapsed": lapsed}
            )
        case _:
            return loop


def _without(known: Mapping[str, T], call: str) -> Mapping[str, T]:
    return {other: each for other, each in known.items() if other != call}


def _on_assigned(status: Status, position: int) -> Status:
    """Let the decisions lapse that were made for the old agent and not carried out."""
    status, loop = status.model_copy(update={"assigned": position}), status.loop
    if loop is None:
        return status
    lapsed = {
        call: reply
        for call, reply in loop.calls_answered.items()
        if call not in loop.calls_ended and loop.calls_started.get(call, 0) < reply.position
    }
    kept = {call: reply for call, reply in loop.calls_answered.items() if call not in lapsed}
    void = {reply.position for reply in lapsed.values()}
    decided = tuple(each for each in status.decided if each.position not in void)
    loop = loop.model_copy(
        update={"assigned": position, "calls_answered": kept, "calls_lapsed": {**loop.calls_lapsed, **lapsed}}
    )
    return status.model_copy(update={"loop": loop, "decided": decided})


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
        decided = (*status.decided, *_decided(command))[-_DECIDED_KEPT:]
        return status.model_copy(update={"loop": _answered_call(status.loop, command), "decided": decided})
    return status


def _left_alone(loop: LoopStatus) -> LoopStatus:
    """Drop the open calls of a loop that was aborted after it was stopped. No loop continues these calls."""
    return loop.model_copy(
        update={
            "calls_started": {},
            "calls_attempts": {},
            "calls_waiting": {},
            "calls_answered": {},
            "calls_lapsed": {},
        }
    )


def _decided(command: Command) -> tuple[Decided, ...]:
    control, at = command.control, command.position
    match control:
        case Approve(turn_id=turn, tool_call_id=call, by=by):
            return (Decided(position=at, turn_id=turn, tool_call_id=call, decision="approve", by=by),)
        case Deny(turn_id=turn, tool_call_id=call, by=by):
            return (Decided(position=at, turn_id=turn, tool_call_id=call, decision="deny", by=by),)
        case _:
            return ()


def _answered_call(loop: LoopStatus, command: Command) -> LoopStatus:
    control = command.control
    if not isinstance(control, Approve | Deny):
        return loop
    call = control.tool_call_id
    answered, lapsed = {**loop.calls_answered, call: command}, _without(loop.calls_lapsed, call)
    return loop.model_copy(update={"calls_answered": answered, "calls_lapsed": lapsed})


STATUS = projection("status", version=2, forked=Status())(_evolve)
"""The status of a session's agent. For a fork, the status covers only the fork's own entries."""


# Name the activity of a session's agent in one word, for a person who watches the session. Pure.

Doing = Literal["idle", "model", "tools", "waiting", "queued", "paused", "handoff"]
"""The activity of a session's agent.

`idle`: no loop is open. `model`: the agent waits for the model's answer. `tools`: the agent runs tools. `waiting`: at
least one tool call waits for a person; the loop continues when all such calls are approved or denied. `queued`: all
calls that waited were approved or denied, and a worker has to apply this. `paused`, `handoff`: workers do not answer
until the session is resumed.
"""


def doing(session: str, status: Status) -> Doing:
    """Return the activity of the agent of `session` according to `status`."""
    if status.halted is not None:
        return status.halted
    loop = own_loop(session, status)
    if loop is None or loop.ended is not None:
        return "idle"
    if waiting := waiting_calls(loop):
        decided = decisions(status)
        return "queued" if all(call.tool_call_id in decided for call in waiting) else "waiting"
    return "tools" if loop.calls_started else "model"


def own_loop(session: str, status: Status) -> LoopStatus | None:
    """Return the newest loop if it belongs to `session`, otherwise None. In a fork, it may belong to the parent."""
    loop = status.loop
    return loop if loop is not None and loop.loop_id.partition(".")[0] == session else None


def waiting_calls(loop: LoopStatus) -> tuple[ToolWaiting, ...]:
    """Return the tool calls that wait for the approval or denial of a person, in the order in which they began to wait.

    This includes the calls of `decisions`: a call waits until a worker has applied the command. The calls of a stopped
    loop wait until the loop is continued.
    """
    over = loop.calls_ended.keys() if loop.is_stopped else loop.calls_answered.keys() | loop.calls_ended.keys()
    return tuple(call for name, call in loop.calls_waiting.items() if name not in over)


def decisions(status: Status) -> Mapping[str, Command]:
    """Return the commands that approve or deny waiting calls and that no worker has carried out, by tool call id.

    A worker applies the first command for a call, so only this one is returned. Commands from before a handover to
    another agent do not count.
    """
    if status.loop is None:
        return {}
    waiting = {call.tool_call_id: call.turn_id for call in waiting_calls(status.loop)}
    found = {call: command for call, command in status.loop.calls_answered.items() if call in waiting}
    for command in status.commands:
        control = command.control
        if command.position < status.assigned or not isinstance(control, Approve | Deny):
            continue
        if waiting.get(control.tool_call_id) == control.turn_id:
            found.setdefault(control.tool_call_id, command)
    return found


def earlier_decision(status: Status, control: Approve | Deny) -> Decided | None:
    """Return the decision about the call of `control` that counts; None if the status has none.

    Of calls of earlier turns, only the newest decisions are known.
    """
    loop, call = status.loop, control.tool_call_id
    question = None if loop is None else loop.calls_waiting.get(call)
    if loop is not None and question is not None and question.turn_id == control.turn_id:
        command = loop.calls_answered.get(call) or decisions(status).get(call)
        return None if command is None else next(iter(_decided(command)), None)
    known = (each for each in reversed(status.decided) if each.tool_call_id == call)
    return next((each for each in known if each.turn_id == control.turn_id), None)
