"""The ids of a session's next loop and next turn, derived from the log. Pure."""

from lanebus.bus.digits import number_in
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.bus.messages.turn import TurnId
from lanebus.handlers.agent.decide.loop_state import SessionSnapshot

__all__ = ("new_loop", "next_turn")

_MOST_DIGITS = 15
"""Longer numbers are ignored: ids may come from foreign clients."""
_MOST_IMPORTED_DIGITS = 9
"""An import can name any number. The next numbers must stay within `_MOST_DIGITS`."""


def new_loop(snapshot: SessionSnapshot, config: str) -> str:
    """Return the id of the session's next loop, `<session>.<config>.<N>`.

    If a loop left neither an answer nor an event, its number is used again.
    """
    context, loop = snapshot.context, snapshot.status.loop
    prefix = f"{context.session}.{config}."
    number = 0 if loop is None else _number(loop.loop_id, prefix)
    for envelope in reversed(context.entries):
        turn_id = envelope.message.turn_id if isinstance(envelope.message, LlmMessage) else None
        if turn_id is None:
            continue
        if envelope.is_imported:  # the number may be smaller than those of earlier entries
            number = max(number, _number(turn_id.loop_id, prefix, _MOST_IMPORTED_DIGITS))
        elif last := _number(turn_id.loop_id, prefix):
            number = max(number, last)
            break
    return f"{prefix}{number + 1}"


def next_turn(snapshot: SessionSnapshot, loop_id: str) -> TurnId:
    """Return the turn of an open loop's next model call: a turn that has begun and has no answer, else a new turn."""
    for envelope in reversed(snapshot.context.entries):
        message = envelope.message
        if envelope.is_imported:
            continue
        if isinstance(message, AssistantMessage | ToolResultMessage) and message.turn_id is not None:
            if message.turn_id.loop_id != loop_id:
                break
            return TurnId(loop_id=loop_id, turn_index=message.turn_id.turn_index + 1)
    loop = snapshot.status.loop
    begun = loop.turn if loop is not None and loop.loop_id == loop_id else None
    return begun or TurnId(loop_id=loop_id, turn_index=0)


def _number(loop_id: str, prefix: str, digits: int = _MOST_DIGITS) -> int:
    number = loop_id[len(prefix) :] if loop_id.startswith(prefix) else ""
    return number_in(number, digits) or 0
