"""Tasks and events for A2A servers. Using them needs the extra `a2a`; importing this module imports no SDK."""

from typing import TYPE_CHECKING

from lanebus.bus.faces import lazy_names
from lanebus.handlers.integrations.bounds import BackendBounds

if TYPE_CHECKING:
    from lanebus.handlers.integrations.a2a.task_store import LanebusEventStream, LanebusTaskStore

__all__ = ("BackendBounds", "LanebusEventStream", "LanebusTaskStore")

__getattr__ = lazy_names(
    __name__,
    {
        "lanebus.handlers.integrations.a2a.task_store": (
            "LanebusEventStream",
            "LanebusTaskStore",
        ),
    },
    package="a2a",
    extra="a2a",
)


def __dir__() -> list[str]:
    return [*__all__]
