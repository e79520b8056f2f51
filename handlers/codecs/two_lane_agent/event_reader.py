"""Seed 001's events as what the bus appends: each message once, where it is first told, and events that name it.

001's events carry whole messages, the same ones up to four times: at their start, their end, their turn's end and their
loop's. Here a message is appended when it ends, or when a later event tells of one that did not; all others name its
position. 001 leaves the turn out of most of them; here every message is stamped.
"""

from pydantic import JsonValue

from lanebus.bus.errors import UnknownKind
from lanebus.bus.messages.json_parser import require_json
from lanebus.handlers.codecs.two_lane_agent.fields import Fields
from lanebus.handlers.codecs.two_lane_agent.loop_events import LOOP_EVENTS
from lanebus.handlers.codecs.two_lane_agent.other_events import OTHER_EVENTS
from lanebus.handlers.codecs.two_lane_agent.reading_state import ReadingState, Told
from lanebus.handlers.codecs.two_lane_agent.seen import Seen

__all__ = ("EventReader",)

_READERS = {**LOOP_EVENTS, **OTHER_EVENTS}


class EventReader:
    """Reads the events of one session in their order.

    `position`: of the session's last entry. What is read is meant to be appended after it with nothing between, as the
    events name positions.
    """

    def __init__(self, *, position: int = 0) -> None:
        self._now = ReadingState(position)

    @property
    def seen(self) -> Seen:
        """What was read until now, for an `EventWriter`."""
        return self._now.seen

    def read(self, value: JsonValue) -> tuple[Told, ...]:
        """What one event comes to, in order: entries to append and live deltas to send.

        `TurnRequest` comes to nothing: it repeats the context that the log gives.

        Raises:
            UnknownKind: 001 has no such event.
            UnknownRole, DecodeError: it has not the shape of its kind; names the path to the fault.
        """
        require_json(value)
        fields = Fields(value)
        kind = fields.text("type")
        if kind == "TurnRequest":
            return ()
        if kind not in _READERS:
            raise UnknownKind(kind)
        return tuple(_READERS[kind](self._now, fields))
