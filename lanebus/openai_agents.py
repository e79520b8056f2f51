"""Sessions and agents of OpenAI's Agents SDK. Needs the extra `openai-agents`; importing this module imports no SDK."""

from typing import TYPE_CHECKING

from lanebus.bus.faces import lazy_names
from lanebus.handlers.integrations.bounds import RunnerBounds, SessionBounds

if TYPE_CHECKING:
    from lanebus.handlers.integrations.openai_agents.runner import RunnerAgent
    from lanebus.handlers.integrations.openai_agents.session import LanebusSession

__all__ = ("LanebusSession", "RunnerAgent", "RunnerBounds", "SessionBounds")

__getattr__ = lazy_names(
    __name__,
    {
        "lanebus.handlers.integrations.openai_agents.session": ("LanebusSession",),
        "lanebus.handlers.integrations.openai_agents.runner": ("RunnerAgent",),
    },
    package="agents",
    extra="openai-agents",
)


def __dir__() -> list[str]:
    return [*__all__]
