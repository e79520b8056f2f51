"""Sessions and agents of OpenAI's Agents SDK. Needs the extra `openai-agents`; importing this module imports no SDK."""

from typing import TYPE_CHECKING

from lanebus.handlers.backends.extra import lazy_names
from lanebus.handlers.backends.openai_agents.bounds import SessionBounds
from lanebus.handlers.backends.openai_runner.bounds import RunnerBounds

if TYPE_CHECKING:
    from lanebus.handlers.backends.openai_agents.session import LanebusSession
    from lanebus.handlers.backends.openai_runner.runner_agent import RunnerAgent

__all__ = ("LanebusSession", "RunnerAgent", "RunnerBounds", "SessionBounds")

__getattr__ = lazy_names(
    __name__,
    {
        "LanebusSession": "lanebus.handlers.backends.openai_agents.session",
        "RunnerAgent": "lanebus.handlers.backends.openai_runner.runner_agent",
    },
    package="agents",
    extra="openai-agents",
)
