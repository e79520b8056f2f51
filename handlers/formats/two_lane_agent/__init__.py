"""The two-lane agent: the exact JSON of its messages, its events as a view of the log, helper functions.

Start with `codec.py` for messages, also those that events name. `event_reader.py` and `event_writer.py` convert its
events.
"""

from lanebus.handlers.formats.two_lane_agent.codec import (
    TWO_LANE_AGENT,
    TWO_LANE_AGENT_CAMEL,
    Seen,
    extract_json,
    node_text,
    parse_node_id,
)
from lanebus.handlers.formats.two_lane_agent.event_reader import EventReader
from lanebus.handlers.formats.two_lane_agent.event_writer import EventWriter

__all__ = (
    "TWO_LANE_AGENT",
    "TWO_LANE_AGENT_CAMEL",
    "EventReader",
    "EventWriter",
    "Seen",
    "extract_json",
    "node_text",
    "parse_node_id",
)
