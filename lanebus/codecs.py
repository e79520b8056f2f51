"""Codecs, which convert messages of other systems to lanebus messages and back."""

from lanebus.handlers.formats.codec import ORIGIN, Codec, Unsayable, Written
from lanebus.handlers.formats.coding_agent.codec import CODING_AGENT, coding_agent_codec
from lanebus.handlers.formats.graph.codec import GRAPH_V1, GRAPH_V2
from lanebus.handlers.formats.two_lane_agent.codec import TWO_LANE_AGENT, TWO_LANE_AGENT_CAMEL
from lanebus.handlers.formats.two_lane_agent.event_reader import EventReader
from lanebus.handlers.formats.two_lane_agent.event_writer import EventWriter
from lanebus.handlers.formats.universal_client import UNIVERSAL_CLIENT, universal_client_codec

__all__ = (
    "CODING_AGENT",
    "GRAPH_V1",
    "GRAPH_V2",
    "ORIGIN",
    "TWO_LANE_AGENT",
    "TWO_LANE_AGENT_CAMEL",
    "UNIVERSAL_CLIENT",
    "Codec",
    "EventReader",
    "EventWriter",
    "Unsayable",
    "Written",
    "coding_agent_codec",
    "universal_client_codec",
)
