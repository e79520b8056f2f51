"""A batch of appends that is sent in one round trip."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lanebus.bus.publishing.append import SessionAppend
    from lanebus.bus.publishing.outbox import Outbox

__all__ = ("Batch",)


class Batch(NamedTuple):
    """The appends that are sent in one round trip."""

    appends: list[tuple[Outbox, SessionAppend]]
    size: int
    """number of publishes"""
