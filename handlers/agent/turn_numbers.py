"""The numbers of loops and turns, and what a loop took so far, read off the log. Pure."""

from bus.messages.message import AssistantMessage, LlmMessage, ToolResultMessage
from bus.messages.turn import TurnId
from bus.messages.usage import Usage
from handlers.agent.open_answer import backwards
from handlers.agent.status import LoopStatus, Status
from handlers.context.fold import Context

__all__ = ("last_loop", "loop_usage", "new_loop", "next_turn")

_MOST_DIGITS = 15
"""Ids come from others, too; nobody counts so far."""


def new_loop(context: Context, status: Status, config: str) -> str:
    """The id of the session's next loop of this configuration."""
    prefix = f"{context.session}.{config}."
    known = [last_loop(context, prefix)]
    if status.loop is not None:
        known.append(_number(status.loop.loop_id, prefix))
    return f"{prefix}{max(known) + 1}"


def next_turn(context: Context, loop_id: str, loop: LoopStatus | None) -> TurnId:
    """The turn in which an open loop speaks next: the one that has begun, if nothing came of it, else the one after."""
    for envelope in backwards(context.entries):
        message = envelope.message
        if isinstance(message, AssistantMessage | ToolResultMessage) and message.turn_id is not None:
            if message.turn_id.loop_id != loop_id:
                break
            return TurnId(loop_id=loop_id, turn_index=message.turn_id.turn_index + 1)
    begun = loop.turn if loop is not None and loop.loop_id == loop_id else None
    return begun or TurnId(loop_id=loop_id, turn_index=0)


def last_loop(context: Context, prefix: str) -> int:
    """The number of the newest loop whose id begins with `prefix`, "<session>.<config>."; 0 if there was none.

    A loop that died before its first answer is not seen here, and gets its number again.
    """
    for envelope in backwards(context.entries):
        turn_id = envelope.message.turn_id if isinstance(envelope.message, LlmMessage) else None
        if turn_id is not None and (number := _number(turn_id.loop_id, prefix)):
            return number
    return 0


def loop_usage(context: Context, loop_id: str) -> Usage:
    """The sum over the answers of a session's newest loop so far."""
    usage = Usage()
    for envelope in backwards(context.entries):
        message = envelope.message
        if isinstance(message, AssistantMessage) and message.turn_id is not None:
            if message.turn_id.loop_id != loop_id:
                break
            usage = usage.combine(message.usage or Usage())
    return usage


def _number(loop_id: str, prefix: str) -> int:
    number = loop_id[len(prefix) :] if loop_id.startswith(prefix) else ""
    return int(number) if number.isdecimal() and len(number) <= _MOST_DIGITS else 0
