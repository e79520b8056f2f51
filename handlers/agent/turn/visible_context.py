"""The context that a model is shown, which lacks the deferred messages. Pure."""

from collections.abc import Collection
from dataclasses import replace

from lanebus.bus.messages.llm import LlmMessage
from lanebus.handlers.context.fold import Context

__all__ = ("visible_context",)


def visible_context(context: Context, deferred: Collection[int]) -> Context:
    """Return the context without the messages at the positions in `deferred`.

    To rebuild the context that a model was sent for an answer, pass the context at the position `READ_UP_TO` of the
    answer's metadata, and the metadata's `DEFERRED`.
    """
    if not deferred:
        return context
    waiting = (envelope.message for envelope in context.path if envelope.position in deferred)
    hidden = [message for message in waiting if isinstance(message, LlmMessage)]
    return replace(context, pairing=context.pairing.leaving_out(hidden))
