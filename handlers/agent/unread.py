"""A user who spoke while the model was thinking is answered by the next request, in which those words come last."""

from collections.abc import Collection
from dataclasses import replace

from bus.messages.message import AssistantMessage
from handlers.context.chunked import Chunked
from handlers.context.fold import Context
from handlers.context.pairing import Pairing

__all__ = ("with_prompts_last",)


def with_prompts_last(context: Context, prompts: Collection[int]) -> Context:
    """The context as the model is asked: the messages at these positions last, if an answer stands behind them.

    In the log such a message stands before an answer that was made without it. A request in that order would end with
    the answer, and a model would go on with its own words instead of reading the user's. Anywhere else the order of
    the log is kept.
    """
    messages = context.messages
    if not prompts or not messages or not isinstance(messages[-1], AssistantMessage):
        return context
    unread = {id(envelope.message) for envelope in context.path if envelope.position in prompts}
    read = [message for message in messages if id(message) not in unread]
    last = [message for message in messages if id(message) in unread]
    return replace(context, pairing=Pairing(Chunked([*read, *last]))) if last else context
