"""Write a session's entries as the two-lane agent's events, a view for readers of both lanes.

The two-lane agent's events contain whole messages; lanebus events name messages by position. So an `EventWriter` needs
every entry, in order. Messages alone produce no events. lanebus has no message events for prompts and tool results. The
writer adds such events after the turn's start and after the tool's end.
"""

from collections.abc import Iterator

from lanebus.bus.errors import MessageError
from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.events import AgentEvent, parse_event
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.wire.envelope import DecodeFailure, Envelope
from lanebus.handlers.codecs.codec import Written
from lanebus.handlers.codecs.two_lane_agent.event_form import EventForm
from lanebus.handlers.codecs.two_lane_agent.loop_views import update_view, view_of_loop
from lanebus.handlers.codecs.two_lane_agent.other_views import view_of_other
from lanebus.handlers.codecs.two_lane_agent.seen import Seen
from lanebus.handlers.json_fields import Object

__all__ = ("EventWriter",)


class EventWriter:
    """Writes a session's entries as the two-lane agent's events. Pass each entry once, in order.

    Args:
        seen: what the session held before the first entry that `write` gets. None means that the session was empty.
            With the `seen` of an `EventReader`, the writer returns the same events that the reader was given.
    """

    def __init__(self, seen: Seen | None = None) -> None:
        self._seen = seen or Seen()

    def write(self, envelope: Envelope) -> Written:
        """Return the events of one entry or live delta. Many entries have no events.

        The result's `losses` list the parts of messages that the two-lane agent cannot represent. A turn's end has no
        event if the turn's message is unknown, because the event must contain the message.

        Args:
            envelope: the next entry or live delta.
        """
        message = envelope.message
        if isinstance(message, DecodeFailure):
            return Written(())
        self._seen.add(envelope.position, message)
        form = EventForm(self._seen, envelope)
        return Written(tuple(_events(form, envelope)), tuple(form.losses))


def _events(form: EventForm, envelope: Envelope) -> Iterator[Object]:
    match envelope.message:
        case Delta() as delta:
            yield from update_view(form, delta)
        case ExtensionMessage() as message:
            event = _parsed(message)
            if event is not None:
                yield from view_of_loop(form, event)
                yield from view_of_other(form, event)
        case _:
            return


def _parsed(message: ExtensionMessage) -> AgentEvent | None:
    try:
        return parse_event(message)
    except MessageError:  # not an event of the agent, despite its kind
        return None
