"""What a model sees: the fold over the LLM lane. Its forms for providers are in `handlers.providers`."""

from handlers.context.build import WarmContext, build_context
from handlers.context.errors import Misplaced, UnknownTarget
from handlers.context.fold import Context, Fault, evolve

__all__ = (
    "Context",
    "Fault",
    "Misplaced",
    "UnknownTarget",
    "WarmContext",
    "build_context",
    "evolve",
)
