"""pydantic-ai's conversations and steps in sessions, and its agents in workers.

Using a name needs the extra `pydantic-ai`, and `LanebusStepStore` also needs `pydantic-ai-harness`. Importing this
module needs neither.
"""

from typing import TYPE_CHECKING

from lanebus.bus.faces import lazy_names

if TYPE_CHECKING:
    from lanebus.handlers.integrations.pydantic_ai.agent import PydanticAgent
    from lanebus.handlers.integrations.pydantic_ai.conversations import LanebusConversationStore
    from lanebus.handlers.integrations.pydantic_ai.steps import LanebusStepStore

__all__ = ("LanebusConversationStore", "LanebusStepStore", "PydanticAgent")

_OF_PYDANTIC_AI = lazy_names(
    __name__,
    {
        "lanebus.handlers.integrations.pydantic_ai.agent": ("PydanticAgent",),
        "lanebus.handlers.integrations.pydantic_ai.conversations": ("LanebusConversationStore",),
    },
    package="pydantic_ai",
    extra="pydantic-ai",
)
_OF_HARNESS = lazy_names(
    __name__,
    {"lanebus.handlers.integrations.pydantic_ai.steps": ("LanebusStepStore",)},
    package="pydantic_ai_harness",
    extra="pydantic-ai-harness",
)


def __getattr__(name: str) -> object:
    return (_OF_HARNESS if name == "LanebusStepStore" else _OF_PYDANTIC_AI)(name)


def __dir__() -> list[str]:
    return [*__all__]
