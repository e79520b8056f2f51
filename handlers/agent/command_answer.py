"""Wait for a worker's answer to a command."""

from contextlib import suppress

import anyio

from lanebus.bus.errors import (
    CursorTrimmed,
    InvalidArgument,
    MessageError,
    SessionClosed,
    require_instance,
    require_seconds,
)
from lanebus.bus.messages.events import ControlAnswered, parse_event
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.session.session import Session, require_session
from lanebus.bus.wire.envelope import Cursor
from lanebus.bus.wire.receipt import Receipt
from lanebus.handlers.agent.delay import find_delay
from lanebus.handlers.agent.errors import AnswerTimeout

__all__ = ("answered",)


async def answered(session: Session, command: Receipt, *, seconds: float | None = None) -> ControlAnswered:
    """Wait until a worker has answered a command, and return the answer with its outcome and reason.

    Args:
        session: the session.
        command: the receipt that sending the command returned.
        seconds: longest time to wait. None waits until a worker runs and answers.

    Raises:
        InvalidArgument: the receipt is of a message and not of a command. No worker answers it as a command.
        AnswerTimeout: no worker answered within `seconds`. The command stays in the log. The error says why, such as
            that the command waits for a running turn.
        SessionClosed: the session was closed before a worker answered.
        LogRolledBack: the log lost its newest entries, and the command with them.
        StreamError: as for `Session.follow`.
        Unavailable: as for `Session.follow`.
        Closed: as for `Session.follow`.
    """
    require_session(session)
    require_instance("command", command, Receipt, "pass the receipt that sending the command returned")
    require_seconds("seconds", seconds, is_optional=True)
    lanes, kinds = {Lane.EXTENSION}, {ControlAnswered.KIND}
    with anyio.move_on_after(seconds):
        await _require_command(session, command)
        async for envelope in session.follow(lanes=lanes, kinds=kinds, after=command.cursor, until_closed=True):
            message = envelope.message
            if envelope.is_imported or not isinstance(message, ExtensionMessage):
                continue
            with suppress(MessageError):  # any client can publish an event that cannot be read
                event = parse_event(message)
                if isinstance(event, ControlAnswered) and event.control == command.position:
                    return event
        raise SessionClosed(session.id)
    delay = await find_delay(session)
    raise AnswerTimeout(session.id, command.position, seconds or 0.0, delay, what="command")


async def _require_command(session: Session, receipt: Receipt) -> None:
    """Raise InvalidArgument unless the receipt's last entry is a command. An entry that was trimmed is not checked."""
    before = Cursor(receipt.position - 1, 0, receipt.incarnation)
    with suppress(CursorTrimmed):
        async for envelope in session.read(lanes={Lane.EXTENSION}, after=before, until=receipt.position):
            if isinstance(envelope.message, ExtensionMessage) and envelope.message.is_control:
                return
        advice = "pass the receipt of a command, such as abort(…); to wait for the answer to a message, call ask(…)"
        raise InvalidArgument("command", receipt, advice)
