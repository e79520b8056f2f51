"""Imports a session into another one, as `lanebus import` does with an exported file."""

from lanebus import Bus, Delta
from lanebus.bus.wire import DecodeFailure

__all__ = ("import_session",)


async def import_session(bus: Bus, source: str, target: str, agent: str | None = None) -> None:
    """Append all entries of a session to another one, marked as imported."""
    session, end = bus.session(target, agent=agent), (await bus.session(source).head()).position
    async for envelope in bus.session(source).read(until=end):
        if not isinstance(envelope.message, Delta | DecodeFailure):
            await session.publish(envelope.message, imported=True)
