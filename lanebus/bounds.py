"""Bounds, periods and limits with defaults. Each part of the bus has a dataclass, and `Bounds` combines all of them."""

from lanebus.bus.archive.archive import ArchiveBounds
from lanebus.bus.following.subscription import HubBounds
from lanebus.bus.groups.status import ActivityBounds
from lanebus.bus.log.log import LogBounds, WorkBounds
from lanebus.bus.media.store import MediaBounds
from lanebus.bus.opening import Bounds
from lanebus.bus.previews import LiveBounds
from lanebus.bus.publishing.outbox import PublishBounds
from lanebus.bus.servers.calls import ConnectionBounds

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
