"""Codecs, which convert messages of other systems to lanebus messages and back."""

from lanebus.handlers.codecs.codec import ORIGIN, Codec, Unsayable, Written
from lanebus.handlers.codecs.coding_agent.dialect import CODING_AGENT, coding_agent_codec
from lanebus.handlers.codecs.graph.v1 import GRAPH_V1
from lanebus.handlers.codecs.graph.v2 import GRAPH_V2
from lanebus.handlers.codecs.two_lane_agent.codec import TWO_LANE_AGENT, TWO_LANE_AGENT_CAMEL
from lanebus.handlers.codecs.two_lane_agent.event_reader import EventReader
from lanebus.handlers.codecs.two_lane_agent.event_writer import EventWriter
from lanebus.handlers.codecs.universal_client.dialect import UNIVERSAL_CLIENT, universal_client_codec

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
