"""The `coding-agent` format: `{"role":…,"contents":[{"type":…}],"id":…,"timestamp":…}`.

`codec.py` reads and writes messages with their images and sounds, and `transcript.py` reads session files.
"""

from lanebus.handlers.formats.coding_agent.codec import CODING_AGENT, coding_agent_codec, to_base64

__all__ = (
    "CODING_AGENT",
    "coding_agent_codec",
    "to_base64",
)
