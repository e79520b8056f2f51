"""The state of a session whose appends were refused or not answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lanebus.bus.messages.lanes import Lane
    from lanebus.bus.publishing.append import SessionAppend
    from lanebus.bus.publishing.pending_publish import PendingPublish
    from lanebus.bus.servers.backoff import Backoff

__all__ = ("Trouble",)


@dataclass(slots=True, eq=False)
class Trouble:
    """The problems of a session that the recovery has to solve before appends are sent directly again."""

    backoff: Backoff | None = None
    """the recovery's pauses between attempts; None if the last attempt succeeded"""
    retry_at: float = 0.0
    """time of the next attempt, on the event loop's clock"""
    doubtful: list[SessionAppend] = field(default_factory=list["SessionAppend"])
    """appends that were sent and never answered, in order"""
    waiting: list[PendingPublish] = field(default_factory=list["PendingPublish"])
    """publishes that are certainly not in the log, in the order in which to send them"""
    waiting_bytes: int = 0
    """size of the waiting publishes"""
    is_rolled_back: bool = False
    """whether the log lost its last entries. The next append number then has to be forced, see `Outbox.to_settle`"""
    is_single: bool = False
    """whether each waiting publish is sent alone, to find the publish that the server refuses for good"""
    floor: int | None = None
    """if the server refused the producer's term, the number that the next term must exceed; otherwise None"""
    foreign: Lane | None = None
    """the lane in which a foreign entry blocks appends; None if no lane is blocked"""
    moved: int = 0
    """how often foreign entries were quarantined since the last successful append"""

    @property
    def needs_settling(self) -> bool:
        """Whether append numbers have to be settled before anything else is sent, see `Outbox.to_settle`."""
        return bool(self.doubtful) or self.is_rolled_back
