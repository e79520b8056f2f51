"""The base class of all agent events."""

from typing import Annotated, ClassVar, Self

from pydantic import Field, JsonValue, ValidationError

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.base import Wire
from lanebus.bus.messages.context_entry import Position
from lanebus.bus.messages.extension import ExtensionMessage

__all__ = ("AgentEvent", "Positions")

Positions = Annotated[tuple[Position, ...], Field(strict=False)]
"""Positions of entries, in JSON a list."""


class AgentEvent(Wire):
    """The base class of all agent events. `KIND` is the kind of the extension message."""

    KIND: ClassVar[str]

    timestamp: int | None = None
    """milliseconds UTC, if the event is published later than it happened; None means the entry's own time"""

    def as_extension(self) -> ExtensionMessage:
        """Return the extension message to publish for this event."""
        return ExtensionMessage(kind=self.KIND, data=self.model_dump(mode="json", by_alias=True, exclude_none=True))

    @classmethod
    def read(cls, data: JsonValue) -> Self:
        """Read the event from an extension message's `data`.

        Raises:
            DecodeError: the data does not fit this event.
        """
        try:
            return cls.model_validate(data, strict=False)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            raise DecodeError(".".join(("data", *map(str, first["loc"]))), first["msg"]) from None
