"""Remember the messages whose end a follower has seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.lanes import Lane

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lanebus.bus.wire.envelope import Envelope

__all__ = ("EndedMessages",)


class EndedMessages:
    """Remembers which messages have ended, so that a follower shows no delta of a message after the message's end.

    A late delta comes from a slow worker, or from a Redis command that the server executes late.
    """

    def __init__(self, limit: int) -> None:
        """Remember at most `limit` messages; the oldest is forgotten first."""
        self._ids: dict[str, None] = {}
        self._limit = limit

    def add(self, ids: Iterable[str]) -> None:
        """Remember that the messages with these ids have ended."""
        for id in ids:
            self._ids[id] = None
        while len(self._ids) > self._limit:
            del self._ids[next(iter(self._ids))]

    def is_late(self, envelope: Envelope) -> bool:
        """Return whether `envelope` is a delta of an ended message.

        If `envelope` itself ends a message, remember the message.
        """
        message = envelope.message
        if type(message) is not Delta:
            id = getattr(message, "id", None) if envelope.lane is Lane.LLM else None
        elif message.message_id in self._ids:
            return True
        else:
            id = message.message_id if message.kind == "cut" else None
        if id is not None:
            self.add((id,))
        return False
