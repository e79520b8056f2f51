"""The `coding-agent` format: `{"role":…,"contents":[{"type":…}],"id":…,"timestamp":…}`."""

from lanebus.handlers.codecs.coding_agent.dialect import CODING_AGENT, coding_agent_codec
from lanebus.handlers.codecs.coding_agent.media import to_base64

__all__ = ("CODING_AGENT", "coding_agent_codec", "to_base64")
