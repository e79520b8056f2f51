"""The parts of the bus that the methods of a session use."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from lanebus.bus.archive.archive import Archive
    from lanebus.bus.concurrency import BusOrigin
    from lanebus.bus.following.hub import Hub
    from lanebus.bus.groups.wake_ups import WakeUps
    from lanebus.bus.hooks import Redaction, Tracing
    from lanebus.bus.log.log import Log
    from lanebus.bus.media.store import MediaStore
    from lanebus.bus.previews import Previews, PreviewWriter
    from lanebus.bus.publishing.publisher import SessionPublisher


class SessionResources(NamedTuple):
    """The id of a session, and the parts of the bus that serve the session. Sessions share these parts."""

    id: str
    log: Log
    publisher: SessionPublisher
    hub: Hub
    wake_ups: WakeUps
    previews: Previews
    preview_writer: PreviewWriter
    media: MediaStore
    archive: Archive | None
    agent: str
    """the agent that the session gets with its first message"""
    tracing: Tracing
    redaction: Redaction
    """changes each message before it is published or previewed"""
    origin: BusOrigin
    """refuses calls from another process or event loop"""


class HasResources(Protocol):
    """The type of `self` in functions that other modules define and that `Session` uses as methods."""

    @property
    def resources(self) -> SessionResources:
        """The session's id, and the parts of the bus that serve the session."""
        ...
