"""Every bound, period and limit of the bus that changes what it does when it is reached, with its default.

A part's bounds are a frozen dataclass in the part's own module; here they are put together, to be passed to `Bus.open`.
Tests pass tiny ones: what only holds at large bounds is a fault.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lanebus.bus.archive.bounds import ArchiveBounds
from lanebus.bus.following.subscription import HubBounds
from lanebus.bus.groups.activity import ActivityBounds
from lanebus.bus.log.bounds import LogBounds
from lanebus.bus.log.work_bounds import WorkBounds
from lanebus.bus.media.bounds import MediaBounds
from lanebus.bus.previews.bounds import LiveBounds
from lanebus.bus.publishing.bounds import PublishBounds
from lanebus.bus.servers.bounds import ConnectionBounds

__all__ = ("Bounds",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of one bus. Each field is one part of it."""

    connection: ConnectionBounds = field(default_factory=ConnectionBounds)
    publish: PublishBounds = field(default_factory=PublishBounds)
    work: WorkBounds = field(default_factory=WorkBounds)
    """consumer groups, wake-ups and change notices"""
    log: LogBounds = field(default_factory=LogBounds)
    hub: HubBounds = field(default_factory=HubBounds)
    live: LiveBounds = field(default_factory=LiveBounds)
    archive: ArchiveBounds = field(default_factory=ArchiveBounds)
    media: MediaBounds = field(default_factory=MediaBounds)
    """of the store on the bus's own server"""
    activity: ActivityBounds = field(default_factory=ActivityBounds)
