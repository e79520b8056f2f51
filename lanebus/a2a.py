"""Task store and event stream for A2A servers. Using them needs the extra `a2a`; importing this module does not."""

from typing import TYPE_CHECKING

from lanebus.handlers.backends.extra import lazy_names

if TYPE_CHECKING:
    from lanebus.handlers.backends.a2a.bounds import A2aBounds
    from lanebus.handlers.backends.a2a.event_stream import LogTaskEventStream
    from lanebus.handlers.backends.a2a.task_store import LogTaskStore

__all__ = ("A2aBounds", "LogTaskEventStream", "LogTaskStore")

__getattr__ = lazy_names(
    __name__,
    {
        "LogTaskEventStream": "lanebus.handlers.backends.a2a.event_stream",
        "LogTaskStore": "lanebus.handlers.backends.a2a.task_store",
        "A2aBounds": "lanebus.handlers.backends.a2a.bounds",
    },
    package="a2a",
    extra="a2a",
)
