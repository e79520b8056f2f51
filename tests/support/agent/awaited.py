"""Waiting for an event of an agent."""

from collections.abc import Callable
from contextlib import aclosing
from typing import TypeVar

from lanebus import ExtensionMessage, Session
from lanebus.messages import AgentEvent, parse_event

__all__ = ("first_event",)

E = TypeVar("E", bound=AgentEvent)


async def first_event(
    session: Session, kind: type[E], matches: Callable[[E], bool] = lambda _: True, *, after: int = 0
) -> E:
    """Wait for the first event of a kind that matches, after a position, and return it."""
    async with aclosing(session.follow(kinds={kind.KIND})) as envelopes:
        async for envelope in envelopes:
            if envelope.position > after and isinstance(envelope.message, ExtensionMessage):
                event = parse_event(envelope.message)
                if isinstance(event, kind) and matches(event):
                    return event
    raise AssertionError(kind)
