"""pydantic-ai's conversations and steps in sessions, and its agents in workers.

Using a name needs the extra `pydantic-ai`, and `LanebusStepStore` also needs `pydantic-ai-harness`. Importing this
module needs neither.
"""

from typing import TYPE_CHECKING

from lanebus.handlers.backends.extra import lazy_names

if TYPE_CHECKING:
    from lanebus.handlers.backends.pydantic_conversations.conversation_store import LanebusConversationStore
    from lanebus.handlers.backends.pydantic_runner.agent import PydanticAgent
    from lanebus.handlers.backends.pydantic_steps.step_store import LanebusStepStore

__all__ = ("LanebusConversationStore", "LanebusStepStore", "PydanticAgent")

_DEFINED_IN = {
    "PydanticAgent": "lanebus.handlers.backends.pydantic_runner.agent",
    "LanebusConversationStore": "lanebus.handlers.backends.pydantic_conversations.conversation_store",
    "LanebusStepStore": "lanebus.handlers.backends.pydantic_steps.step_store",
}
_OF_PYDANTIC_AI = lazy_names(__name__, _DEFINED_IN, package="pydantic_ai", extra="pydantic-ai")
_OF_HARNESS = lazy_names(__name__, _DEFINED_IN, package="pydantic_ai_harness", extra="pydantic-ai-harness")


def __getattr__(name: str) -> object:
    return (_OF_HARNESS if name == "LanebusStepStore" else _OF_PYDANTIC_AI)(name)
