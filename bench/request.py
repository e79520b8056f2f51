"""Convert a warm context to a provider's request. Pure: no server is involved."""

import time
from collections.abc import Mapping, Sequence
from statistics import median

from bench.rounds import ROUNDS, Spread, spread
from lanebus import Envelope, LlmMessage
from lanebus.context import Context, evolve
from lanebus.providers import to_anthropic, to_gemini, to_openai_chat, to_openai_responses

__all__ = ("CONTEXT", "requests")

CONTEXT = 450
"""number of messages in the context"""

_TIMES = 50
_FORMS = (to_anthropic, to_gemini, to_openai_chat, to_openai_responses)


def requests(messages: Sequence[LlmMessage]) -> Mapping[str, Spread]:
    """Return the milliseconds to build the request of a context of `CONTEXT` messages, by provider form."""
    context = Context("bench")
    for position, message in enumerate(messages, 1):
        context = evolve(context, Envelope("bench", position, message.lane, message, 0.0, "bench"))
        if len(context.messages) >= CONTEXT:
            break

    def once() -> float:
        began = time.perf_counter()
        form(context, model="bench")
        return (time.perf_counter() - began) * 1e3

    taken: dict[str, Spread] = {}
    for form in _FORMS:
        once()
        taken[form.__name__] = spread([median(once() for _ in range(_TIMES)) for _ in range(ROUNDS)])
    return taken
