"""Fold the events of an agent for a terminal: one row says how a turn went. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from lanebus.bus.errors import MessageError
from lanebus.bus.messages.events import (
    AgentEnded,
    AgentEvent,
    AgentStarted,
    MessageEnded,
    MessageStarted,
    Progress,
    RequestDefined,
    ToolEnded,
    ToolStarted,
    ToolUpdated,
    ToolWaiting,
    TurnEnded,
    TurnStarted,
    UsageSettled,
    parse_event,
)
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.wire.envelope import Envelope
from lanebus.handlers.cli.terminal.text import about, count, duration, money, shell_word
from lanebus.handlers.projections.turns_state import fault_of

__all__ = ("TurnFold", "answer_commands", "event_of", "short_id")

_FOLDED = (
    AgentStarted,
    MessageEnded,
    MessageStarted,
    Progress,
    RequestDefined,
    ToolStarted,
    ToolUpdated,
    TurnStarted,
    UsageSettled,
)
"""events that say no more than the row of their turn, or than the entries of the LLM lane"""

_NORMAL = frozenset({"stop", "toolUse"})
"""reasons at which a turn or loop ends well; they are not repeated"""


class _Open(NamedTuple):
    started: float
    tools: Mapping[str, int]
    """tool call id → number of times the call was started"""


class TurnFold:
    """Turns the events of one session into rows, in order of position."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._open = dict[TurnId, _Open]()

    def rows(self, envelope: Envelope) -> list[tuple[str, str]] | None:
        """Return the rows of an event, each with a kind and a text. None if the entry is no event that is folded.

        What a framework stores has no row.
        """
        if isinstance(envelope.message, ExtensionMessage) and envelope.message.is_stored_state:
            return []
        event = event_of(envelope)
        match event:
            case None:
                return None
            case TurnStarted(turn_id=turn):
                self._open[turn] = _Open(envelope.time, {})
            case ToolStarted(turn_id=turn, tool_call_id=call, attempt=attempt) if turn in self._open:
                was = self._open[turn]
                attempts = attempt or was.tools.get(call, 0) + 1
                self._open[turn] = was._replace(tools={**was.tools, call: attempts})
            case TurnEnded():
                return [("turn", self._ended(event, envelope.time))]
            case ToolWaiting():
                return [("waits", self._waiting(event))]
            case ToolEnded(outcome=outcome, tool_name=name) if outcome not in {None, "completed", "failed"}:
                return [("tool", f"{name} {fault_of(outcome)}")]
            case AgentEnded(stop_reason=reason, rejection=rejection):
                self._open.clear()
                if reason in _NORMAL:
                    return []
                return [("loop", f"{self._short(event.loop_id)} {reason}{f': {rejection}' if rejection else ''}")]
            case _:
                pass
        return [] if isinstance(event, (*_FOLDED, ToolEnded)) else None

    def _ended(self, event: TurnEnded, time: float) -> str:
        opened = self._open.pop(event.turn_id, None)
        parts = [
            *([] if event.stop_reason in _NORMAL else [event.stop_reason]),
            *([_calls(opened.tools)] if opened and opened.tools else []),
            *([duration(time - opened.started)] if opened else []),
            f"{about(event.usage.estimated)}{count(event.usage.total_tokens)} tokens",
            *([money(event.usage.cost.total)] if event.usage.cost else []),
        ]
        return f"{short_id(event.turn_id, self._session)}: {', '.join(parts)}"

    def _waiting(self, event: ToolWaiting) -> str:
        why = "for a person" if event.why == "approval" else "for a person: it was started, and its outcome is unknown"
        return f"{event.tool_name} waits {why}: {answer_commands(event, self._session)[0]}"

    def _short(self, loop_id: str) -> str:
        return loop_id.removeprefix(f"{self._session}.")


def _calls(tools: Mapping[str, int]) -> str:
    """Return the number of tool calls, and the number of attempts if a call was started again."""
    calls, attempts = len(tools), sum(tools.values())
    text = f"{calls} tool{'' if calls == 1 else 's'}"
    return text if attempts == calls else f"{text} in {attempts} attempts"


def event_of(envelope: Envelope) -> AgentEvent | None:
    """Return the event of an agent that an entry contains; None for other entries and unreadable events."""
    message = envelope.message
    if not isinstance(message, ExtensionMessage):
        return None
    try:
        return parse_event(message)
    except MessageError:
        return None


def short_id(turn: TurnId, session: str) -> str:
    """Return a turn id as people type it after the name of its session, such as `main.3#0`."""
    return str(turn).removeprefix(f"{session}.")


def answer_commands(event: ToolWaiting, session: str) -> tuple[str, str]:
    """Return the commands that approve and deny a tool call that waits for a person."""
    words = short_id(event.turn_id, session), event.tool_call_id
    end = "-- " if any(word.startswith("-") for word in words) else ""
    call = end + " ".join(map(shell_word, words))
    return f"lanebus control {session} approve {call}", f"lanebus control {session} deny {call}"
