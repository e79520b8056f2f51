"""A session's entries as seed 001's events, with the messages inside: a view for who may read both lanes.

Our events name messages by position, so the view needs the entries before them: an `EventWriter` is given each entry in
order. Messages say nothing by themselves, the events that name them do; prompts and results of tools, for which our
loop has no message events, are told with their turn and with their tool.
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
    """Writes a session's entries as 001's events, each given once and in order.

    `seen`: what is known of the session before; an `EventReader` has it, so that what was read is written the same.
    """

    def __init__(self, seen: Seen | None = None) -> None:
        self._seen = seen or Seen()

    def write(self, envelope: Envelope) -> Written:
        """The events for one entry or live delta, often none. What a message in them says beyond 001 is a loss.

        A turn's end whose message was not seen is passed over: 001's always has one.
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
    except MessageError:  # no event of the agent's, whatever it calls itself
        return None
