"""Fold the entries and live deltas of a session into the events of a run. Pure.

A run begins with a user's message, or with the answer to a call that waited, and lasts until the agent rests: it may
have several turns, and several loops if the context is compacted or further messages arrive meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from lanebus.bus.errors import MessageError
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.events import (
    AgentEnded,
    MessageEnded,
    Progress,
    SessionLinked,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UsageSettled,
    parse_event,
)
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.bus.messages.usage import Usage
from lanebus.handlers.agent.decide.open_answer import is_cut
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
    StepBegun,
    StepEnded,
    UserSpoke,
)
from lanebus.handlers.protocols.shown_answer import ShownAnswer, call_id
from lanebus.handlers.protocols.work_state import OpenCall, WorkState

if TYPE_CHECKING:
    from lanebus.bus.messages.events import AgentEvent
    from lanebus.bus.messages.turn import TurnId
    from lanebus.bus.wire.envelope import Envelope

__all__ = ("RunFold", "message_id_of")


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
