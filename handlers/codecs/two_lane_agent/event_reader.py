"""Read the two-lane agent's events as entries: each message once, and events that name its position.

The two-lane agent's events contain whole messages. The same message appears up to four times: at its start, at its end,
at the end of its turn and at the end of its loop. This reader appends a message when the message ends. A message
without an end is appended when the end of its turn or loop contains it. All other events name the message's position.
The two-lane agent omits the turn of most messages; this reader adds it.
"""

from pydantic import JsonValue

from lanebus.bus.errors import UnknownKind, require_count
from lanebus.bus.messages.json_parser import require_json
from lanebus.handlers.codecs.two_lane_agent.fields import Fields
from lanebus.handlers.codecs.two_lane_agent.loop_events import LOOP_EVENTS
from lanebus.handlers.codecs.two_lane_agent.other_events import OTHER_EVENTS
from lanebus.handlers.codecs.two_lane_agent.reading_state import EntryOrDelta, ReadingState
from lanebus.handlers.codecs.two_lane_agent.seen import Seen

__all__ = ("EventReader",)

_READERS = {**LOOP_EVENTS, **OTHER_EVENTS}


class EventReader:
    """Reads the events of one session, in order.

    Append the returned entries directly after `position` and without other entries in between, because the events name
    positions.

    Args:
        position: position of the session's last entry; 0 for an empty session.
    """

    def __init__(self, *, position: int = 0) -> None:
        require_count("position", position)
        self._now = ReadingState(position)

    @property
    def seen(self) -> Seen:
        """The messages, results and drafts that were read so far. Pass them to an `EventWriter`."""
        return self._now.seen

    def read(self, value: JsonValue) -> tuple[EntryOrDelta, ...]:
        """Convert one event to the entries and live deltas that describe it in a lanebus session, in order.

        A `TurnRequest` is converted to nothing, because it only repeats messages of earlier events.

        Args:
            value: the event's JSON, in the two-lane agent's format.

        Raises:
            UnknownKind: the two-lane agent has no such event.
            UnknownRole: a message in the event has a role that the two-lane agent does not have.
            DecodeError: a field is missing or has the wrong form. The error names the path to it.
        """
        require_json(value)
        fields = Fields(value)
        kind = fields.text("type")
        if kind == "TurnRequest":
            return ()
        if kind not in _READERS:
            raise UnknownKind(kind)
        return tuple(_READERS[kind](self._now, fields))
