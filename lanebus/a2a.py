"""Tasks and events for A2A servers. Using them needs the extra `a2a`; importing this module imports no SDK."""

from typing import TYPE_CHECKING

from lanebus.handlers.backends.bounds import BackendBounds
from lanebus.handlers.backends.extra import lazy_names

if TYPE_CHECKING:
    from lanebus.handlers.backends.a2a.event_stream import LanebusEventStream
    from lanebus.handlers.backends.a2a.task_store import LanebusTaskStore

__all__ = ("BackendBounds", "LanebusEventStream", "LanebusTaskStore")

__getattr__ = lazy_names(
    __name__,
    {
        "LanebusEventStream": "lanebus.handlers.backends.a2a.event_stream",
        "LanebusTaskStore": "lanebus.handlers.backends.a2a.task_store",
    },
    package="a2a",
    extra="a2a",
)
