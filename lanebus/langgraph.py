"""LangGraph on a bus. Using it needs the extra `langgraph`; importing this module imports no framework."""

from typing import TYPE_CHECKING

from lanebus.bus.faces import lazy_names
from lanebus.handlers.integrations.blocking import BusInThread, WouldBlock, bus_in_thread
from lanebus.handlers.integrations.bounds import BackendBounds

if TYPE_CHECKING:
    from lanebus.handlers.integrations.langgraph.saver import LanebusSaver
    from lanebus.handlers.integrations.langgraph.store import LanebusStore

__all__ = ("BackendBounds", "BusInThread", "LanebusSaver", "LanebusStore", "WouldBlock", "bus_in_thread")

__getattr__ = lazy_names(
    __name__,
    {
        "lanebus.handlers.integrations.langgraph.saver": ("LanebusSaver",),
        "lanebus.handlers.integrations.langgraph.store": ("LanebusStore",),
    },
    package="langgraph.checkpoint",
    extra="langgraph",
)


def __dir__() -> list[str]:
    return [*__all__]
