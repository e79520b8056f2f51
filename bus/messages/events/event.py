"""The base class of all agent events."""

from typing import Annotated

from pydantic import Field

from lanebus.bus.messages.context_entry import Position
from lanebus.bus.messages.extension import ExtensionData

__all__ = ("AgentEvent", "Positions")

Positions = Annotated[tuple[Position, ...], Field(strict=False)]
"""Positions of entries, in JSON a list."""


class AgentEvent(ExtensionData):
    """The base class of all agent events. `KIND` is the kind of the extension message that contains the event."""

    timestamp: int | None = None
    """time of the event in milliseconds UTC, if the event is published later than it happened. None means the time of
    the entry"""
