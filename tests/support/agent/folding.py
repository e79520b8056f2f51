"""Fold given messages with a projection."""

from collections.abc import Iterable
from typing import TypeVar

from lanebus.bus.messages import Delta, Lane, Publishable
from lanebus.bus.wire import Envelope
from lanebus.handlers.projections import Projection

__all__ = ("fold", "log_of", "through_json")

S = TypeVar("S")


def log_of(*messages: Publishable) -> list[Envelope]:
    """Return envelopes of the messages. Each entry's time is its position, in seconds."""
    return [
        Envelope("s1", position, Lane(message.lane), message, float(position), "test")
        for position, message in enumerate(messages, 1)
    ]


def fold(projection: Projection[S], entries: Iterable[Envelope], start: S | None = None) -> S:
    """Return the state after the entries."""
    state = projection.initial if start is None else start
    for envelope in entries:
        assert not isinstance(envelope.message, Delta)
        state = projection.evolve(state, envelope)
    return state


def through_json(projection: Projection[S], state: S) -> S:
    """Return the state after storing and loading it as JSON."""
    return projection.state.validate_json(projection.dump(state))
