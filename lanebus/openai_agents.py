"""Sessions for OpenAI's Agents SDK. Needs the extra `openai-agents`; importing this module imports no SDK."""

from typing import TYPE_CHECKING

from lanebus.handlers.backends.extra import lazy_names
from lanebus.handlers.backends.openai_agents.bounds import SessionBounds

if TYPE_CHECKING:
    from lanebus.handlers.backends.openai_agents.session import LanebusSession

__all__ = ("LanebusSession", "SessionBounds")

__getattr__ = lazy_names(
    __name__,
    {"LanebusSession": "lanebus.handlers.backends.openai_agents.session"},
    package="agents",
    extra="openai-agents",
)
