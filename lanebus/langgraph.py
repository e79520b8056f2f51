"""LangGraph on a bus. Using it needs the extra `langgraph`; importing this module imports no framework."""

from typing import TYPE_CHECKING

from lanebus.handlers.backends.blocking import BusInThread, WouldBlock, bus_in_thread
from lanebus.handlers.backends.bounds import BackendBounds
from lanebus.handlers.backends.extra import lazy_names

if TYPE_CHECKING:
    from lanebus.handlers.backends.langgraph.saver import LanebusSaver
    from lanebus.handlers.backends.langgraph.store import LanebusStore

__all__ = ("BackendBounds", "BusInThread", "LanebusSaver", "LanebusStore", "WouldBlock", "bus_in_thread")

__getattr__ = lazy_names(
    __name__,
    {
        "LanebusSaver": "lanebus.handlers.backends.langgraph.saver",
        "LanebusStore": "lanebus.handlers.backends.langgraph.store",
    },
    package="langgraph.checkpoint",
    extra="langgraph",
)
