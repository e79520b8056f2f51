"""The two-lane agent: the exact JSON of its messages, its events as a view of the log, helper functions."""

from lanebus.handlers.codecs.two_lane_agent.codec import TWO_LANE_AGENT, TWO_LANE_AGENT_CAMEL
from lanebus.handlers.codecs.two_lane_agent.event_reader import EventReader
from lanebus.handlers.codecs.two_lane_agent.event_writer import EventWriter
from lanebus.handlers.codecs.two_lane_agent.json_answer import extract_json
from lanebus.handlers.codecs.two_lane_agent.nodes import node_text, parse_node_id
from lanebus.handlers.codecs.two_lane_agent.seen import Seen

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
