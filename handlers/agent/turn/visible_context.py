"""What a model is shown of a session: its context without what waits for its turn. Pure."""

from collections.abc import Collection
from dataclasses import replace

from lanebus.bus.messages.message import LlmMessage
from lanebus.handlers.context.fold import Context

__all__ = ("visible_context",)


def visible_context(context: Context, deferred: Collection[int]) -> Context:
    """The context without the messages at these positions. With what an answer's marks say of itself, `READ_UP_TO` and
    `DEFERRED`, it gives the request that the answer came of, from the log alone."""
    if not deferred:
        return context
    waiting = (envelope.message for envelope in context.path if envelope.position in deferred)
    hidden = [message for message in waiting if isinstance(message, LlmMessage)]
    return replace(context, pairing=context.pairing.leaving_out(hidden))
