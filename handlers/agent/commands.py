"""Commands of people and programs to a running agent. Each is one publish: ordered, waking the workers, and with a
`key` of your own applied once however often it is sent.

Nothing is done by the one who sends. The session's worker answers each command in the step in which it takes effect;
`answered` waits for that. `command_specs.py` lists the same commands by name, for programs that read them.
"""

from typing import Literal

from lanebus.bus.errors import Conflict, SessionClosed
from lanebus.bus.messages.control import Abort, Approve, Compact, Control, Deny, Handoff, Pause, Resume, Steer
from lanebus.bus.messages.events import ControlAnswered, parse_event
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import Cursor
from lanebus.bus.wire.receipt import Receipt
from lanebus.handlers.agent.bounds import DEFAULT_RUN_BOUNDS
from lanebus.handlers.agent.command_specs import UNKNOWN_POSITION
from lanebus.handlers.agent.metadata_keys import FOLLOW_UP

__all__ = (
    "abort",
    "answered",
    "approve",
    "compact_now",
    "deny",
    "follow_up",
    "handoff",
    "pause",
    "resume",
    "send",
    "steer",
)


async def abort(
    session: Session,
    *,
    loop_id: str | None = None,
    when: Literal["now", "turn"] = "now",
    reason: str | None = None,
    by: str | None = None,
    key: str | None = None,
) -> Receipt:
    """End what the agent does, and have nothing answered that was said before this.

    Args:
        loop_id: only if it is this loop; None is whatever goes on.
        when: now: the model is cut short and tools are cancelled. turn: the turn that is under way is finished first.
        reason: for those who read the log.
        by: who asks, for the same.
        key: your own name for this publish; a repeat adds nothing.

    Raises:
        BusError: as for `Session.publish`.
    """
    return await send(session, Abort(loop_id=loop_id, when=when, reason=reason, by=by), key=key)


async def steer(
    session: Session,
    said: str | UserMessage,
    *,
    when: Literal["next", "now"] = "next",
    by: str | None = None,
    key: str | None = None,
) -> Receipt:
    """Say something to the loop that is running. Where none is, it is answered like any other word of a user.

    Args:
        when: next: the next request to the model has it. now: the answer that is being spoken is cut, and tools that
            still run are skipped.
        Others: as for `abort`.

    Returns:
        The positions of the message and of the command.

    Raises:
        Conflict: others were faster a thousand times.
        BusError: as for `Session.publish`.
    """
    return await send(session, Steer(position=UNKNOWN_POSITION, when=when, by=by), said, key=key)


async def follow_up(session: Session, said: str | UserMessage, *, key: str | None = None) -> Receipt:
    """Say something that waits until the loop that is running is over. Where none is, it is answered at once.

    Raises:
        BusError: as for `Session.publish`.
    """
    message = _message(said)
    marked = message.model_copy(update={"metadata": {**(message.metadata or {}), FOLLOW_UP: True}})
    return await session.publish(marked, key=key)


async def approve(
    session: Session, turn_id: TurnId, tool_call_id: str, *, by: str | None = None, key: str | None = None
) -> Receipt:
    """Let a tool run that waits for a person: its `ToolWaiting` names the turn and the call.

    Raises:
        BusError: as for `Session.publish`.
    """
    return await send(session, Approve(turn_id=turn_id, tool_call_id=tool_call_id, by=by), key=key)


async def deny(
    session: Session,
    turn_id: TurnId,
    tool_call_id: str,
    *,
    reason: str | None = None,
    by: str | None = None,
    key: str | None = None,
) -> Receipt:
    """Do not let it run. The model is told so, and not the reason: what it is to know, a user says.

    Raises:
        BusError: as for `Session.publish`.
    """
    return await send(session, Deny(turn_id=turn_id, tool_call_id=tool_call_id, reason=reason, by=by), key=key)


async def pause(
    session: Session, *, reason: str | None = None, by: str | None = None, key: str | None = None
) -> Receipt:
    """Stop after the turn that is under way. What users say from then on waits for `resume`.

    Raises:
        BusError: as for `Session.publish`.
    """
    return await send(session, Pause(reason=reason, by=by), key=key)


async def handoff(
    session: Session,
    *,
    to: str | None = None,
    reason: str | None = None,
    by: str | None = None,
    key: str | None = None,
) -> Receipt:
    """As `pause`, and the session is a person's until `resume`.

    Args:
        to: whom it is handed to.

    Raises:
        BusError: as for `Session.publish`.
    """
    return await send(session, Handoff(to=to, reason=reason, by=by), key=key)


async def resume(session: Session, *, by: str | None = None, key: str | None = None) -> Receipt:
    """Go on after `pause` or `handoff`, with what was left and with what users said since.

    Raises:
        BusError: as for `Session.publish`.
    """
    return await send(session, Resume(by=by), key=key)


async def compact_now(session: Session, *, by: str | None = None, key: str | None = None) -> Receipt:
    """Tell the context shorter before the next turn, however far from full it is.

    Raises:
        BusError: as for `Session.publish`.
    """
    return await send(session, Compact(by=by), key=key)


async def answered(session: Session, command: Receipt) -> ControlAnswered:
    """Wait until a worker has answered a command: what became of it, and why.

    Args:
        command: what sending it gave.

    Raises:
        SessionClosed: it was closed before that.
        StreamError, Unavailable, Closed: as following the session does.
    """
    kinds = {ControlAnswered.KIND}
    after = Cursor(command.position)
    async for envelope in session.follow(lanes={Lane.EXTENSION}, kinds=kinds, after=after, until_closed=True):
        message = envelope.message
        event = parse_event(message) if isinstance(message, ExtensionMessage) else None
        if isinstance(event, ControlAnswered) and event.control == command.position:
            return event
    raise SessionClosed(session.id)


async def send(
    session: Session, control: Control, said: str | UserMessage | None = None, *, key: str | None = None
) -> Receipt:
    """Publish a command. What the functions above do, for a command that was read from elsewhere.

    Args:
        said: what the user says with a `Steer`, which is given its position; no other command takes it.
        key: your own name for this publish; a repeat adds nothing.

    Returns:
        The positions; the last one is the command's.

    Raises:
        Conflict: others were faster a thousand times.
        BusError: as for `Session.publish`.
    """
    if not isinstance(control, Steer) or said is None:
        return await session.publish(control.as_extension(), key=key)
    message = _message(said)
    last = (await session.head()).position
    for attempt in range(DEFAULT_RUN_BOUNDS.tries):
        placed = control.model_copy(update={"position": last + 1})
        try:
            return await session.publish(message, placed.as_extension(), key=key, expected=last)
        except Conflict as conflict:
            if attempt == DEFAULT_RUN_BOUNDS.tries - 1:
                raise
            last = conflict.found
    raise AssertionError


def _message(said: str | UserMessage) -> UserMessage:
    return UserMessage.text(said) if isinstance(said, str) else said
