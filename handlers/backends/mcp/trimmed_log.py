"""A session that keeps only its newest entries."""

import logging

from lanebus.bus.error_text import logged
from lanebus.bus.errors import BusError
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.session.session import Session
from lanebus.bus.wire.receipt import Receipt

__all__ = ("append_trimmed",)

_log = logging.getLogger(__name__)


async def append_trimmed(session: Session, message: ExtensionMessage, *, kept: int) -> Receipt:
    """Append one message without waking a worker, and trim the session if it is its turn.

    Of all processes, the one whose entry has a multiple of `kept` as its position trims. A trim that fails is logged,
    and the next one makes up for it. If the call is cancelled, the message may be appended.

    Args:
        session: the session.
        message: the message.
        kept: number of the newest entries to keep.

    Raises:
        BusError: the errors of `Session.publish`.
    """
    receipt = await session.publish(message, wake=False)
    position = receipt.positions[-1]
    if position % kept == 0 and position > kept:
        try:
            await session.trim(position - kept + 1)
        except BusError as error:
            _log.warning("session %s was not trimmed", session.id, exc_info=logged(error))
    return receipt
