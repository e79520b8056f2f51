"""Every bound, period and limit of the bus that changes what it does when it is reached, with its default.

A part's bounds are a frozen dataclass in the part's own module; here they are put together, to be passed to `Bus.open`.
Tests pass tiny ones: what only holds at large bounds is a fault.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bus.activity import ActivityBounds
from bus.archive.bounds import ArchiveBounds
from bus.connection_bounds import ConnectionBounds
from bus.live import LiveBounds
from bus.log import LogBounds
from bus.media.bounds import MediaBounds
from bus.publish import PublishBounds
from bus.subscription import HubBounds
from bus.work_bounds import WorkBounds

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
