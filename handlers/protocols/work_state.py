"""Whether the agent of a session rests, and why. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from lanebus.bus.errors import MessageError
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.control import Approve, Deny, parse_control
from lanebus.bus.messages.events import (
    AgentEnded,
    AgentStarted,
    ControlAnswered,
    MessageStarted,
    ToolStarted,
    ToolWaiting,
    TurnStarted,
)
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.handlers.agent.decide.open_answer import is_cut, wanted_calls
from lanebus.handlers.agent.last_answer import LastAnswer
from lanebus.handlers.agent.metadata_keys import FOLLOW_UP
from lanebus.handlers.context.read_marks import deferred_positions, is_prompt, read_position
from lanebus.handlers.protocols.run_events import RunRested, WaitingCall
from lanebus.handlers.protocols.shown_answer import call_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lanebus.bus.messages.assistant import StopReason
    from lanebus.bus.messages.content import ToolCallBlock
    from lanebus.bus.messages.control import Control
    from lanebus.bus.messages.events import AgentEvent
    from lanebus.bus.messages.extension import ExtensionMessage
    from lanebus.bus.wire.envelope import Envelope

__all__ = ("OpenCall", "WorkState")

_HALTS: Mapping[str, Literal["paused", "handoff"]] = {"paused": "paused", "handoff": "handoff"}
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
                self._halted = _HALTS.get(stop_reason) or self._halted
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
