"""Fold given messages with a projection."""

from collections.abc import Iterable
from typing import TypeVar

from lanebus import Envelope
from lanebus.bus.messages import AgentEvent, Control, Delta, Lane, Publishable
from lanebus.projections import Projection

S = TypeVar("S")


Said = Publishable | AgentEvent | Control


def stored(message: Said) -> Publishable:
    """Return what the log holds of a message, an event or a command."""
    return message.as_extension() if isinstance(message, AgentEvent | Control) else message


def log_of(*messages: Said) -> list[Envelope]:
    """Return envelopes of the messages. Each entry's time is its position, in seconds."""
    entries = enumerate(map(stored, messages), 1)
    return [Envelope("s1", at, Lane(message.lane), message, float(at), "test") for at, message in entries]


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
