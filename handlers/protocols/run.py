"""Fold the entries and live deltas of a session into the events of a run. Pure.

A run begins with a user's message, or with the answer to a call that waited, and lasts until the agent rests: it may
have several turns, and several loops if the context is compacted or further messages arrive meanwhile.

`WorkState` says whether the agent rests, and why. `RunPlace` is where a run is in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import JsonValue

from lanebus.bus.errors import MessageError
from lanebus.bus.messages import (
    AgentEnded,
    AgentStarted,
    Approve,
    AssistantMessage,
    ControlAnswered,
    Delta,
    Deny,
    ExtensionMessage,
    LlmMessage,
    MessageEnded,
    MessageStarted,
    Progress,
    SessionLinked,
    ToolResultMessage,
    ToolStarted,
    ToolWaiting,
    TurnEnded,
    TurnStarted,
    Usage,
    UsageSettled,
    UserMessage,
    parse_control,
    parse_event,
)
from lanebus.handlers.agent import FOLLOW_UP, LastAnswer, is_cut, wanted_calls
from lanebus.handlers.context import deferred_positions, is_prompt, read_position
from lanebus.handlers.projections import Loop, TurnsState, find_loop
from lanebus.handlers.protocols.run_events import (
    AnswerSettled,
    CallProgressed,
    CallStarted,
    ChildBegun,
    ChildEnded,
    NoteAdded,
    ResultAdded,
    RunEvent,
    RunRested,
    ShownAnswer,
    StepBegun,
    StepEnded,
    UserSpoke,
    WaitingCall,
    call_id,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lanebus.bus.messages import AgentEvent, Control, StopReason, ToolCallBlock, TurnId
    from lanebus.bus.wire import Envelope


def message_id_of(envelope: Envelope) -> str:
    """Return the id by which events name a message: the author's id, or one made of the position.

    An imported message may have any id, so it always gets one made of the position.
    """
    message = envelope.message
    own = message.id if isinstance(message, LlmMessage) and not envelope.is_imported else None
    return own or f"lanebus-{envelope.position}"


class RunFold:
    """Reads a session's envelopes, in order, and returns the events of the run.

    Begin some entries before the run, so that the fold knows what is under way. Feed it both lanes, and live deltas if
    text is wanted while a model writes it. The joined pieces of an answer do not depend on how it was shown live.
    """

    def __init__(self, after: int = 0, *, counted_after: int | None = None) -> None:
        """
        Args:
            after: position of the message or command that began the run. A rest before it does not end the run.
            counted_after: position after which the usage of answers counts; None means `after`.
        """
        self.rested: RunRested | None = None
        """the first rest since the run began; None while the agent works"""
        self._after = after
        self._counted_after = after if counted_after is None else counted_after
        self._work = WorkState()
        self._answers: dict[str, ShownAnswer] = {}
        self._step: TurnId | None = None
        self._imported: dict[str, OpenCall] = {}
        """calls of the last imported answer that have no result. No agent runs them"""
        self._children: dict[str, str] = {}
        """call → child session"""
        self._usage: dict[int, tuple[str | None, str | None, Usage]] = {}
        """position of an answer of the run → its provider, model and usage"""

    def add(self, envelope: Envelope) -> list[RunEvent]:
        """Return the events of an entry or a live delta. The last one is a `RunRested` if the run ends with it."""
        message = envelope.message
        if isinstance(message, Delta):
            return self._on_delta(message)
        if isinstance(message, ExtensionMessage):
            events = [] if envelope.is_imported else self._on_extension(envelope, message)
        elif isinstance(message, LlmMessage):
            events = self._on_message(envelope, message)
        else:
            return []
        if self.rested is None and envelope.position >= self._after and not envelope.is_imported:
            self.rested = self.rest(envelope.position)
            if self.rested is not None:
                events.append(self.rested)
        return events

    def begin(self, position: int) -> RunRested | None:
        """Begin the run here: the next rest at this position or later ends it.

        Call it once all stored entries were read. A rest that was found in them is forgotten, because the agent may
        have gone on since.

        Args:
            position: the last position that was read.

        Returns:
            The rest that the agent is in now; None if it works.
        """
        self._after, self.rested = position, self.rest(position)
        return self.rested

    def shown(self) -> list[RunEvent]:
        """Return the events of the answers that are not settled, joined: they begin anew what was shown of them."""
        return [event for answer in self._answers.values() for event in answer.shown()]

    def rest(self, position: int) -> RunRested | None:
        """Return why the agent rests as of this position; None if it works, or has work to do."""
        rested = self._work.rest(position)
        return None if rested is None else _with_usage(rested, self._usage)

    def _on_delta(self, delta: Delta) -> list[RunEvent]:
        shown = self._answers.get(delta.message_id)
        if delta.kind == "cut":
            return self._drop(delta.message_id)
        if shown is None:
            shown = self._answers[delta.message_id] = ShownAnswer(delta.message_id, delta.turn_id)
        return shown.add(delta)

    def _drop(self, message_id: str, position: int = 0) -> list[RunEvent]:
        """Return the end of an answer that leaves no message."""
        shown = self._answers.pop(message_id, None)
        if shown is None or not shown.is_shown:
            return []
        return [AnswerSettled(message_id, None, position, "superseded", is_replaced=True)]

    def _drop_all(self, position: int, *, turn_id: TurnId | None = None, loop_id: str | None = None) -> list[RunEvent]:
        """Return the ends of the open answers of a turn or a loop."""
        gone = [
            id
            for id, shown in self._answers.items()
            if shown.turn_id is not None and (shown.turn_id == turn_id or shown.turn_id.loop_id == loop_id)
        ]
        return [event for id in gone for event in self._drop(id, position)]

    def _on_message(self, envelope: Envelope, message: LlmMessage) -> list[RunEvent]:
        message_id = message_id_of(envelope)
        known: OpenCall | None = None
        if isinstance(message, ToolResultMessage):  # before the result closes the call
            call = message.tool_call_id
            known = self._work.calls.get(call) or self._imported.pop(call, None)
        if not envelope.is_imported:
            self._work.add_message(envelope, message_id)
        match message:
            case UserMessage(turn_id=None):
                return [UserSpoke(message_id, message, envelope.position)]
            case AssistantMessage():
                return self._on_answer(envelope, message_id, message)
            case ToolResultMessage():
                return self._on_result(message_id, message, known)
            case _:
                return []

    def _on_answer(self, envelope: Envelope, message_id: str, message: AssistantMessage) -> list[RunEvent]:
        position = envelope.position
        if position > self._counted_after and message.usage is not None and not envelope.is_imported:
            self._usage[position] = (message.provider, message.model, message.usage)
        shown = self._answers.pop(message_id, None) or ShownAnswer(message_id, message.turn_id)
        if not envelope.is_imported and is_cut(message):
            return [AnswerSettled(message_id, message, position, "superseded", is_replaced=shown.is_shown)]
        if envelope.is_imported:
            self._imported = {
                call.id: OpenCall(call_id(message_id, at), call) for at, call in enumerate(message.tool_calls())
            }
        events, is_replaced = shown.settle(message)
        outcome: Literal["failed", "complete"] = "failed" if message.is_failed else "complete"
        return [*events, AnswerSettled(message_id, message, position, outcome, is_replaced)]

    def _on_result(self, message_id: str, message: ToolResultMessage, known: OpenCall | None) -> list[RunEvent]:
        events: list[RunEvent] = []
        if known is not None:
            is_denied = message.is_error and self._work.was_denied(message.tool_call_id)
            events.append(ResultAdded(known.id, message_id, message, is_denied))
        if (child := self._children.pop(message.tool_call_id, None)) is not None:
            events.append(ChildEnded(child, message))
        return events

    def _on_extension(self, envelope: Envelope, message: ExtensionMessage) -> list[RunEvent]:
        if message.is_control:
            self._work.add_command(envelope.position, message)
            return []
        try:
            event = parse_event(message)
        except MessageError:
            return []
        if event is None:
            is_own = message.kind.startswith("session.")
            return [] if is_own else [NoteAdded(message.kind, message.data, envelope.position)]
        self._work.add_event(event)
        return self._on_event(event, envelope)

    def _on_event(self, event: AgentEvent, envelope: Envelope) -> list[RunEvent]:
        match event:
            case TurnStarted(turn_id=turn_id):
                if self._step == turn_id:
                    return []
                return [*self._end_step(), *self._begin_step(turn_id)]
            case TurnEnded(turn_id=turn_id):
                ended = self._end_step() if self._step == turn_id else []
                return [*self._drop_all(envelope.position, turn_id=turn_id), *ended]
            case MessageEnded(message_id=str(message_id)):
                return self._drop(message_id, envelope.position)
            case AgentEnded(loop_id=loop_id):
                return [*self._drop_all(envelope.position, loop_id=loop_id), *self._end_step()]
            case UsageSettled(message=position, usage=usage) if position in self._usage:
                self._usage[position] = (*self._usage[position][:2], usage)
                return []
            case ToolStarted(tool_call_id=call) if call in self._work.calls:
                return [CallStarted(self._work.calls[call].id)]
            case Progress(tool_call_id=call, tool_name=name, text=text) if call in self._work.calls:
                return [CallProgressed(self._work.calls[call].id, name, text)]
            case SessionLinked(parent=envelope.session, child=child, tool_call_id=call, agent=agent):
                if call in self._children:
                    return []
                self._children[call] = child
                known = self._work.calls.get(call)
                return [ChildBegun(child, agent, None if known is None else known.id)]
            case _:
                return []

    def _begin_step(self, turn_id: TurnId) -> list[RunEvent]:
        self._step = turn_id
        return [StepBegun(turn_id)]

    def _end_step(self) -> list[RunEvent]:
        step, self._step = self._step, None
        return [] if step is None else [StepEnded(step)]


def _with_usage(rested: RunRested, usage: dict[int, tuple[str | None, str | None, Usage]]) -> RunRested:
    """Return the rest with the usage of the answers, one sum for each provider and model."""
    sums: dict[tuple[str | None, str | None], Usage] = {}
    for provider, model, each in usage.values():
        sums[provider, model] = sums.get((provider, model), Usage()).combine(each)
    entries = tuple((provider, model, each) for (provider, model), each in sums.items())
    return RunRested(rested.outcome, rested.position, rested.stop_reason, rested.fault, rested.waiting, entries)


# Whether the agent of a session rests, and why. Pure.

_HALT_REASONS: Mapping[str, Literal["paused", "handoff"]] = {"paused": "paused", "handoff": "handoff"}
"""stop reasons of loops after which workers wait for `Resume`"""


class OpenCall(NamedTuple):
    """A call without a result."""

    id: str
    """as events name it"""
    block: ToolCallBlock


class WorkState:
    """What is left to do in a session, as far as the entries that were folded say.

    The fold may begin at any position: it then learns of the open loop with the loop's next event.
    """

    def __init__(self) -> None:
        self.calls: dict[str, OpenCall] = {}
        """calls of the newest answers that have no result, by the provider's id"""
        self._unread: dict[int, bool] = {}
        """position of each message that no model has read → whether it waits for the end of the loop"""
        self._commands: dict[int, Control | None] = {}
        """position → command that is not answered; None if it cannot be read"""
        self._waiting: dict[str, ToolWaiting] = {}
        self._denied = set[str]()
        """calls of the newest answer that a person denied"""
        self._loop: str | None = None
        """the open loop"""
        self._stopped: StopReason | None = None
        """stop reason of the last loop, or of the last answer outside of a loop"""
        self._halted: Literal["paused", "handoff"] | None = None
        self._last = LastAnswer()

    def add_message(self, envelope: Envelope, message_id: str) -> None:
        """Fold an entry of the LLM lane.

        Args:
            envelope: the entry, which is not imported.
            message_id: the id of the message for events.
        """
        message = envelope.message
        if (seen := read_position(envelope)) is not None:
            held = deferred_positions(envelope)
            self._unread = {at: late for at, late in self._unread.items() if at > seen or at in held}
        match message:
            case UserMessage() if is_prompt(envelope):
                self._unread[envelope.position] = FOLLOW_UP in (message.metadata or {})
            case UserMessage():
                self._last.add(message)
            case AssistantMessage():
                self._last.add(message)
                calls = wanted_calls(message)
                self.calls = {
                    call.id: OpenCall(call_id(message_id, index), call)
                    for index, call in enumerate(message.tool_calls())
                    if call in calls
                }
                self._waiting.clear()
                self._denied.clear()
                # Outside of loops: an agent that is a function, an abort, or the record of a failure. A failure without
                # a turn also ends a loop that can no longer be read, or that a fork took over from its parent.
                is_outside = self._loop is None or (message.turn_id is None and message.is_failed)
                if is_outside and not calls and not is_cut(message):
                    self._loop, self._stopped = None, message.stop_reason
            case ToolResultMessage(tool_call_id=call):
                self.calls.pop(call, None)
                self._waiting.pop(call, None)
            case _:
                pass

    def add_command(self, position: int, message: ExtensionMessage) -> None:
        """Fold a command."""
        try:
            self._commands[position] = parse_control(message)
        except MessageError:
            self._commands[position] = None

    def add_event(self, event: AgentEvent) -> None:
        """Fold an agent event."""
        match event:
            case AgentStarted(loop_id=loop_id):
                self._loop, self._stopped, self._halted = loop_id, None, None
            case TurnStarted(turn_id=turn_id) | MessageStarted(turn_id=turn_id):
                self._loop, self._stopped = turn_id.loop_id, None
            case AgentEnded(stop_reason=stop_reason):
                self._loop, self._stopped = None, stop_reason
                self._halted = _HALT_REASONS.get(stop_reason) or self._halted
            case ToolWaiting(tool_call_id=call):
                self._waiting[call] = event
            case ToolStarted(turn_id=turn_id, tool_call_id=call):
                self._loop, self._stopped = turn_id.loop_id, None
                self._waiting.pop(call, None)
            case ControlAnswered(control=position, outcome=outcome):
                self._on_answered(position, is_applied=outcome == "applied")
            case _:
                pass

    def _on_answered(self, position: int, *, is_applied: bool) -> None:
        command = self._commands.pop(position, None)
        if not is_applied or command is None:
            return
        match command:
            case Approve(tool_call_id=call):
                self._waiting.pop(call, None)
            case Deny(tool_call_id=call):
                question = self._waiting.pop(call, None)
                if question is None or question.why == "approval":  # otherwise the call was started, and may have run
                    self._denied.add(call)
            case _ if command.KIND == "control.pause":
                self._halted = "paused"
            case _ if command.KIND == "control.handoff":
                self._halted = "handoff"
            case _ if command.KIND == "control.resume":
                self._halted = None
            case _ if command.KIND == "control.abort" and self._loop is None:
                self.calls.clear()
            case _:
                pass

    def was_denied(self, call: str) -> bool:
        """Return whether a person denied a call, by the provider's id."""
        return call in self._denied

    def rest(self, position: int) -> RunRested | None:
        """Return why the agent rests as of this position; None if it works, or has work to do."""
        if self._commands:
            return None
        if self._halted is not None and self._loop is None:
            return RunRested("paused", position, self._stopped or self._halted)
        if self._loop is not None or self.calls:
            return self._wait(position)
        if self._unread or self._stopped == "contextCompacted":
            return None
        stop_reason = self._stopped
        if stop_reason in {"aborted", "userStop"}:
            return RunRested("aborted", position, stop_reason)
        fault = None if stop_reason is None else self._last.fault(stop_reason)
        if fault is not None or stop_reason == "error":
            return RunRested("failed", position, stop_reason, fault or "the agent failed")
        return RunRested("finished", position, stop_reason)

    def _wait(self, position: int) -> RunRested | None:
        """Return that a person has to act, if every open call waits for one."""
        if not self.calls or not self.calls.keys() <= self._waiting.keys() or not all(self._unread.values()):
            return None
        waiting = tuple(
            WaitingCall(call.id, self._waiting[known].turn_id, call.block, self._waiting[known].why)
            for known, call in self.calls.items()
        )
        return RunRested("waiting", position, waiting=waiting)


# Where a run is in the log: the entries that a client has to read to show it from its beginning. Pure.


class RunPlace(NamedTuple):
    """The beginning of a run."""

    first: int
    """position from which to read"""
    loop_id: str | None
    """the run's first loop; None if no loop has begun. Entries before its first turn may belong to an earlier run"""


def run_of_message(turns: TurnsState, position: int) -> RunPlace:
    """Return the run that answers a user's message: the one that has read it, otherwise the open one or the next one.

    Args:
        turns: state of `TURNS`, which includes the message.
        position: position of the message.
    """
    for turn in reversed(turns.turns):
        if position in turn.prompts and turn.loop_id is not None:
            return _place_of_loop(turns, turn.loop_id)
    loop_id = _open_loop(turns)
    return RunPlace(position, None) if loop_id is None else _place_of_loop(turns, loop_id)


def run_of_loop(turns: TurnsState, loop_id: str) -> RunPlace | None:
    """Return the run that a loop belongs to; None if there is no such loop."""
    return None if find_loop(turns, loop_id) is None else _place_of_loop(turns, loop_id)


def open_run(turns: TurnsState) -> RunPlace | None:
    """Return the run that is under way or waits for a person, or that a worker will begin; None if there is none."""
    loop_id = _open_loop(turns)
    if loop_id is not None:
        return _place_of_loop(turns, loop_id)
    return RunPlace(min(turns.waiting), None) if turns.waiting else None


def run_at(turns: TurnsState, position: int) -> RunPlace | None:
    """Return the run that a position belongs to, whether or not it has ended; None if no turn began before it."""
    for turn in reversed(turns.turns):
        known = (*turn.prompts, *turn.results, *(() if turn.message is None else (turn.message,)))
        if turn.loop_id is None or not known or min(known) > position:
            continue
        loop = find_loop(turns, turn.loop_id)
        if loop is not None and not loop.is_beside:
            return _place_of_loop(turns, turn.loop_id)
    return None


def _open_loop(turns: TurnsState) -> str | None:
    own = [loop for name in turns.running if (loop := find_loop(turns, name)) is not None and not loop.is_beside]
    if own:
        return own[-1].loop_id
    last = next((loop for loop in reversed(turns.loops) if not loop.is_beside), None)
    return last.loop_id if last is not None and _continues(last) else None


def _continues(loop: Loop) -> bool:
    return loop.stop_reason == "contextCompacted"  # the next loop belongs to the same run


def _place_of_loop(turns: TurnsState, loop_id: str) -> RunPlace:
    loop, seen = find_loop(turns, loop_id), {loop_id}
    while loop is not None and loop.parent is not None and loop.parent not in seen:
        before = find_loop(turns, loop.parent)
        if before is None or not _continues(before):
            break
        seen.add(before.loop_id)
        loop_id, loop = before.loop_id, before
    return RunPlace(_first_prompt(turns, loop_id), loop_id)


def _first_prompt(turns: TurnsState, loop_id: str) -> int:
    """Return the first prompt of a loop; if none is recorded, the position after the turn before the loop."""
    known = turns.turns
    at = next((at for at, turn in enumerate(known) if turn.loop_id == loop_id), len(known))
    if at < len(known) and known[at].prompts:
        return min(known[at].prompts)
    if at == 0:
        return 1
    last = known[at - 1]
    return max((*last.prompts, *last.results, last.message or 0)) + 1


def no_worker(agent: str) -> dict[str, JsonValue]:
    """Return the notice as clients get it: the agent, and a text for people."""
    return {"agent": agent, "text": f"No worker serves the agent {agent!r} now: the answer waits until one does."}
