"""What a cut call really took, told once it is known."""

import logging

from bus.envelope import Envelope
from bus.messages.events import UsageSettled
from bus.messages.message import AssistantMessage
from bus.messages.usage import Usage
from handlers.agent.model import Model, Settling
from handlers.agent.run import Run

__all__ = ("is_settleable", "settle")

_log = logging.getLogger(__name__)


def is_settleable(model: Model, envelope: Envelope) -> bool:
    """Whether an entry is an answer with an estimated usage, and its model one that can be asked what it took."""
    message = envelope.message
    return (
        isinstance(message, AssistantMessage)
        and message.usage is not None
        and bool(message.usage.estimated)
        and message.turn_id is not None
        and (message.provider, message.model) == (model.provider, model.name)
        and isinstance(model, Settling)
    )


async def settle(run: Run, model: Model, envelope: Envelope) -> bool:
    """Ask what the call took that an answer in the log came of, and tell it in the log; gives whether it is told now.

    It may be repeated and be done by several at once: it is told once. What the log says of the message stays.

    Args:
        envelope: the answer's entry, of the run's own session.

    Raises:
        Fenced: the lease is lost.
        BusError: as for `Session.publish`.
    """
    message = envelope.message
    if not is_settleable(model, envelope) or envelope.session != run.session.id:
        return False
    if not isinstance(message, AssistantMessage) or message.turn_id is None or not isinstance(model, Settling):
        raise AssertionError
    usage = await model.settle(message)
    if usage is None:
        _log.debug("session %s: what entry %d took is not to be learnt", envelope.session, envelope.position)
        return False
    own = Usage().combine(usage)  # which leaves the provider's own object out
    event = UsageSettled(turn_id=message.turn_id, message=envelope.position, usage=own)
    await run.publish(event.as_extension(), key=f"{envelope.position}.settled")
    return True
