"""pydantic-ai's conversations in sessions. Using it needs the extra `pydantic-ai`; importing this module does not."""

from typing import TYPE_CHECKING

from lanebus.handlers.backends.extra import lazy_names

if TYPE_CHECKING:
    from lanebus.handlers.backends.pydantic_ai.conversation_store import BusConversationStore

__all__ = ("BusConversationStore",)

_PACKAGE = "lanebus.handlers.backends.pydantic_ai"

__getattr__ = lazy_names(
    __name__,
    {"BusConversationStore": f"{_PACKAGE}.conversation_store"},
    package="pydantic_ai",
    extra="pydantic-ai",
)
