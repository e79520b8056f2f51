"""Commands to a running agent: abort it, steer it, approve its tool calls, pause and resume it.

Sending a command is one publish, so commands are ordered and wake the workers. A command with a `key` is applied once,
even if it is sent again. Each kind of command has keys of its own: a message or another command with the same key does
not count as a repeat. The session's worker answers each command in the step in which the command takes effect;
`answered` waits for the answer. `command_specs.py` lists the same commands by name, for programs that read commands as
text.

Cancelling a call leaves it open whether the command was published. Send it again with the same `key`.
"""

from collections.abc import Awaitable, Callable
from typing import Literal

from lanebus.bus.errors import (
    Conflict,
    KeyTooLong,
    require_instance,
    require_text,
)
from lanebus.bus.messages.control import Abort, Approve, Compact, Control, Deny, Handoff, Pause, Resume, Steer
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.session.session import Session, require_session
from lanebus.bus.wire.envelope import START, Cursor
from lanebus.bus.wire.receipt import Receipt
from lanebus.bus.wire.reserved_key import ReservedKey, check_key
from lanebus.handlers.agent.bounds import DEFAULT_RUN_BOUNDS
from lanebus.handlers.agent.command_arguments import make_control, read_turn_id
from lanebus.handlers.agent.command_specs import UNKNOWN_POSITION
from lanebus.handlers.agent.errors import CallDecided
from lanebus.handlers.agent.metadata_keys import FOLLOW_UP
from lanebus.handlers.agent.user_message import as_user_message
from lanebus.handlers.projections.agent_activity import earlier_decision
from lanebus.handlers.projections.agent_status import STATUS, Status
from lanebus.handlers.projections.projection import Projected, look

__all__ = (
    "abort",
    "approve",
    "decide_call",
    "deny",
    "follow_up",
    "handoff",
    "pause",
    "request_compaction",
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
    """End the running loop. Messages that were sent before this command are not answered.

    Args:
        session: the session.
        loop_id: abort only this loop; None aborts any open loop.
        when: "now" cuts the model's answer and cancels tools. "turn" lets the current turn finish first.
        reason: recorded in the log.
        by: name of the sender, recorded in the log.
        key: idempotency key; a repeat of this command with the same key adds nothing.

    Returns:
        The command's position, for `answered`.

    Raises:
        BusError: as for `Session.publish`.
    """
    return await send(session, make_control(Abort, loop_id=loop_id, when=when, reason=reason, by=by), key=key)


async def steer(
    session: Session,
    said: str | UserMessage,
    *,
    when: Literal["next", "now"] = "next",
    by: str | None = None,
    key: str | None = None,
) -> Receipt:
    """Send a user message to the running loop. If no loop is running, the message is answered like any other.

    Args:
        session: the session.
        said: the message.
        when: "next" puts it into the next request to the model. "now" also cuts the current answer and skips tools that
            are still running.
        by: name of the sender, recorded in the log.
        key: idempotency key; a repeat of this command with the same key adds nothing.

    Returns:
        The positions of the message and of the command.

    Raises:
        Conflict: other clients appended first, 1,000 times in a row.
        BusError: as for `Session.publish`.
    """
    return await send(
        session, make_control(Steer, position=UNKNOWN_POSITION, when=when, by=by), as_user_message(said), key=key
    )


async def follow_up(
    session: Session, said: str | UserMessage, *, key: str | None = None, agent: str | None = None
) -> Receipt:
    """Send a user message that waits until the running loop has ended.

    If no loop is running, the message is answered at once.

    Args:
        session: the session.
        said: the message.
        key: idempotency key; a repeat with the same key adds nothing. No other message of the session may have this
            key.
        agent: as for `Session.publish`.

    Raises:
        BusError: as for `Session.publish`.
    """
    require_session(session)
    message = as_user_message(said)
    follow_up = message.model_copy(update={"metadata": {**(message.metadata or {}), FOLLOW_UP: True}})
    return await session.publish(follow_up, key=key, agent=agent)


async def approve(
    session: Session,
    turn_id: TurnId | str,
    tool_call_id: str,
    *,
    call_hash: str | None = None,
    by: str | None = None,
    key: str | None = None,
) -> Receipt:
    """Approve a tool call that waits for a person, so that it runs.

    The call's `ToolWaiting` event contains `turn_id` and `tool_call_id`.

    Args:
        session: the session.
        turn_id: the turn of the call. A text such as "support-42.main.3#0" or "main.3#0" is accepted too.
        tool_call_id: the call's id.
        call_hash: `ToolCallBlock.call_hash` of the call that the person saw; a call with another hash is not approved.
            None approves the call unseen.
        by: name of the sender, recorded in the log.
        key: idempotency key; a repeat of this command with the same key adds nothing.

    Raises:
        InvalidArgument: `call_hash` is a text that is not a SHA-256 in hex.
        DecodeError: `turn_id` is a text that is not a turn id.
        BusError: as for `Session.publish`.
    """
    turn = read_turn_id(session, turn_id)
    return await send(
        session, make_control(Approve, turn_id=turn, tool_call_id=tool_call_id, call_hash=call_hash, by=by), key=key
    )


async def deny(
    session: Session,
    turn_id: TurnId | str,
    tool_call_id: str,
    *,
    reason: str | None = None,
    by: str | None = None,
    key: str | None = None,
) -> Receipt:
    """Refuse a tool call that waits for a person. The model reads that the call was denied, but not the reason.

    Args:
        session: the session.
        turn_id: the turn of the call. A text such as "support-42.main.3#0" or "main.3#0" is accepted too.
        tool_call_id: the call's id.
        reason: recorded in the log. To give the model a reason, send it a user message.
        by: name of the sender, recorded in the log.
        key: idempotency key; a repeat of this command with the same key adds nothing.

    Raises:
        DecodeError: `turn_id` is a text that is not a turn id.
        BusError: as for `Session.publish`.
    """
    turn = read_turn_id(session, turn_id)
    return await send(
        session, make_control(Deny, turn_id=turn, tool_call_id=tool_call_id, reason=reason, by=by), key=key
    )


async def decide_call(
    session: Session,
    control: Approve | Deny,
    *,
    key: str | None = None,
    agent: str | None = None,
    status: Callable[[], Awaitable[Projected[Status]]] | None = None,
) -> Receipt:
    """Publish an approval or denial if the log has none for this call yet.

    `approve` and `deny` publish in any case, and a worker answers a second command as late. This function is for
    people: a person who decides after another one is told so, even if no worker runs.

    Args:
        session: the session.
        control: the command.
        key: idempotency key; a repeat of this command with the same key adds nothing, and is not refused.
        agent: as for `Session.publish`.
        status: reads the session's `STATUS`, for example from a cache; None reads the log.

    Raises:
        CallDecided: another command has decided about the call, whether or not a worker has applied it.
        Conflict: other clients appended first, 1,000 times in a row.
        BusError: the log could not be read, or as for `Session.publish`.
    """
    require_session(session)
    require_instance("control", control, (Approve, Deny), "pass Approve(…) or Deny(…)")
    for attempt in range(DEFAULT_RUN_BOUNDS.publish_attempts):
        now = await (look(session, STATUS) if status is None else status())
        first = earlier_decision(now.state, control)
        try:
            if first is None:
                return await send(session, control, key=key, agent=agent, expected=now.cursor)
            if key is not None:  # before the first entry, only a repeat succeeds
                return await send(session, control, key=key, agent=agent, expected=START)
        except Conflict:
            if first is None and attempt == DEFAULT_RUN_BOUNDS.publish_attempts - 1:
                raise
        if first is not None:
            decision: Literal["approve", "deny"] = "approve" if first.message.kind == Approve.KIND else "deny"
            by = first.control.by if isinstance(first.control, Control) else None
            raise CallDecided(session.id, control.tool_call_id, decision, by, first.position)
    raise AssertionError


async def pause(
    session: Session, *, reason: str | None = None, by: str | None = None, key: str | None = None
) -> Receipt:
    """Stop after the current turn. User messages wait until `resume`.

    Args:
        session: the session.
        reason: recorded in the log.
        by: name of the sender, recorded in the log.
        key: idempotency key; a repeat of this command with the same key adds nothing.

    Raises:
        BusError: as for `Session.publish`.
    """
    return await send(session, make_control(Pause, reason=reason, by=by), key=key)


async def handoff(
    session: Session,
    *,
    to: str | None = None,
    reason: str | None = None,
    by: str | None = None,
    key: str | None = None,
) -> Receipt:
    """Stop after the current turn and hand the session to a person until `resume`.

    Args:
        session: the session.
        to: name of the person.
        reason: recorded in the log.
        by: name of the sender, recorded in the log.
        key: idempotency key; a repeat of this command with the same key adds nothing.

    Raises:
        BusError: as for `Session.publish`.
    """
    return await send(session, make_control(Handoff, to=to, reason=reason, by=by), key=key)


async def resume(session: Session, *, by: str | None = None, key: str | None = None) -> Receipt:
    """Continue after `pause` or `handoff`: run the open tool calls, then answer the user messages sent meanwhile.

    Args:
        session: the session.
        by: name of the sender, recorded in the log.
        key: idempotency key; a repeat of this command with the same key adds nothing.

    Raises:
        BusError: as for `Session.publish`.
    """
    return await send(session, make_control(Resume, by=by), key=key)


async def request_compaction(session: Session, *, by: str | None = None, key: str | None = None) -> Receipt:
    """Ask the agent to compact its context before the next turn, even if the context is short.

    An agent without a compactor refuses the command. To publish a summary of your own, call `lanebus.context.compact`.

    Args:
        session: the session.
        by: name of the sender, recorded in the log.
        key: idempotency key; a repeat of this command with the same key adds nothing.

    Raises:
        BusError: as for `Session.publish`.
    """
    return await send(session, make_control(Compact, by=by), key=key)


async def send(
    session: Session,
    control: Control,
    said: str | UserMessage | None = None,
    *,
    key: str | None = None,
    agent: str | None = None,
    expected: Cursor | None = None,
) -> Receipt:
    """Publish a command. The functions for single commands, such as `abort`, call this function.

    Args:
        session: the session.
        control: the command, for example from `read_control`.
        said: the user message of a `Steer`. `send` sets `Steer.position` to the position of this message. Ignored for
            other commands.
        key: idempotency key; a repeat of this command with the same key adds nothing.
        agent: as for `Session.publish`.
        expected: as for `Session.publish`. A `Steer` with a message has a cursor of its own instead.

    Returns:
        The positions of the published messages; the last position is the command's.

    Raises:
        Conflict: the session has moved on from `expected`; or, for a `Steer`, other clients appended first, 1,000 times
            in a row.
        BusError: as for `Session.publish`.
    """
    require_session(session)
    require_instance("control", control, Control, "pass a command, such as Abort()")
    require_text("key", key, is_optional=True, is_filled=True)
    check_key(key)
    message = as_user_message(said) if isinstance(control, Steer) and said is not None else None
    # In the log, messages and commands share one space of keys.
    prefix = ReservedKey(f"{control.KIND}:")
    try:
        stored = None if key is None else ReservedKey(f"{control.KIND}:{key}")
        return await _publish(session, control, message, key=stored, agent=agent, expected=expected)
    except KeyTooLong as error:
        raise KeyTooLong(error.size_bytes - len(prefix), error.limit_bytes - len(prefix)) from None


async def _publish(
    session: Session,
    control: Control,
    message: UserMessage | None,
    *,
    key: ReservedKey | None,
    agent: str | None,
    expected: Cursor | None,
) -> Receipt:
    """Publish a command under a stored key. A command with a message gets the message's position."""
    if message is None or not isinstance(control, Steer):
        return await session.publish(control.as_extension(), key=key, agent=agent, expected=expected)
    last = (await session.head()).cursor
    for attempt in range(DEFAULT_RUN_BOUNDS.publish_attempts):
        placed = control.model_copy(update={"position": last.position + 1})
        try:
            return await session.publish(message, placed.as_extension(), key=key, expected=last, agent=agent)
        except Conflict as conflict:
            if attempt == DEFAULT_RUN_BOUNDS.publish_attempts - 1:
                raise
            last = Cursor(conflict.found)
    raise AssertionError
