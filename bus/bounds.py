"""All bounds of the bus in one dataclass, to pass to `Bus.open`.

Each part of the bus defines its own frozen dataclass of bounds, periods and limits, with defaults. Tests pass tiny
values, because the bus must behave the same at any bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lanebus.bus.archive.archive import ArchiveBounds
from lanebus.bus.errors import check_bounds
from lanebus.bus.following.subscription import HubBounds
from lanebus.bus.groups.status import ActivityBounds
from lanebus.bus.log.log import LogBounds, WorkBounds
from lanebus.bus.media.store import MediaBounds
from lanebus.bus.previews import LiveBounds
from lanebus.bus.publishing.outbox import PublishBounds
from lanebus.bus.servers.calls import ConnectionBounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Sizes, counts, periods and time-outs of one bus. Each field has the bounds of one of its components."""

    connection: ConnectionBounds = field(default_factory=ConnectionBounds)
    """time-outs, retries and connection counts, for all servers"""
    publish: PublishBounds = field(default_factory=PublishBounds)
    """the queue and the batches of `Session.publish`"""
    work: WorkBounds = field(default_factory=WorkBounds)
    """consumer groups, wake-ups and change notices"""
    log: LogBounds = field(default_factory=LogBounds)
    """sizes of the server's replies and of what a session stores besides its entries"""
    hub: HubBounds = field(default_factory=HubBounds)
    """reads for `Session.follow` and `Session.subscribe`"""
    live: LiveBounds = field(default_factory=LiveBounds)
    """the cache and the removal of live deltas. `LogBounds.live_bytes` limits what the server keeps"""
    archive: ArchiveBounds = field(default_factory=ArchiveBounds)
    """segment sizes of the archive"""
    media: MediaBounds = field(default_factory=MediaBounds)
    """the media store on the bus's own server. Other media stores ignore these bounds"""
    activity: ActivityBounds = field(default_factory=ActivityBounds)
    """the page size of `Bus.activity`"""

    def __post_init__(self) -> None:
        check_bounds(self, "bounds")
