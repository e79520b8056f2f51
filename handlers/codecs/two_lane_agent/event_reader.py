"""Read seed 001's events as entries: each message once, and events that name it by position.

001's events contain whole messages, the same one up to four times: at its start, its end, its turn's end and its loop's
end. Here a message is appended when it ends, or when a later event contains one that did not. All other events name its
position. 001 omits the turn of most messages; here each has one.
"""

from pydantic import JsonValue

from lanebus.bus.errors import UnknownKind
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

    The entries must be appended directly after `position`, with nothing in between, as the events name positions.

    Args:
        position: position of the session's last entry; 0 for an empty session.
    """

    def __init__(self, *, position: int = 0) -> None:
        self._now = ReadingState(position)

    @property
    def seen(self) -> Seen:
        """What was read so far, for an `EventWriter`."""
        return self._now.seen

    def read(self, value: JsonValue) -> tuple[EntryOrDelta, ...]:
        """Return the entries and live deltas of one event, in order.

        `TurnRequest` has none: it repeats the context, which the log has already.

        Args:
            value: the event's JSON.

        Raises:
            UnknownKind: 001 has no such event.
            UnknownRole: a message in the event has a role that 001 does not have.
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
