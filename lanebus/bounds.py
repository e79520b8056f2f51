"""Bounds, periods and limits with defaults. Each part of the bus has a dataclass, and `Bounds` combines all of them."""

from lanebus.bus.archive.bounds import ArchiveBounds
from lanebus.bus.bounds import Bounds
from lanebus.bus.following.subscription import HubBounds
from lanebus.bus.groups.activity import ActivityBounds
from lanebus.bus.log.bounds import LogBounds
from lanebus.bus.log.work_bounds import WorkBounds
from lanebus.bus.media.bounds import MediaBounds
from lanebus.bus.previews.bounds import LiveBounds
from lanebus.bus.publishing.bounds import PublishBounds
from lanebus.bus.servers.bounds import ConnectionBounds

__all__ = (
    "ActivityBounds",
    "ArchiveBounds",
    "Bounds",
    "ConnectionBounds",
    "HubBounds",
    "LiveBounds",
    "LogBounds",
    "MediaBounds",
    "PublishBounds",
    "WorkBounds",
)
