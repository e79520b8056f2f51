"""What a model sees: the fold over the LLM lane, and its forms for providers."""

from handlers.context.anthropic import to_anthropic
from handlers.context.build import WarmContext, build_context
from handlers.context.errors import ContentRefused, Misplaced, NoModel, UnknownTarget
from handlers.context.fold import Context, Fault, evolve
from handlers.context.request import ProviderRequest

__all__ = (
    "ContentRefused",
    "Context",
    "Fault",
    "Misplaced",
    "NoModel",
    "ProviderRequest",
    "UnknownTarget",
    "WarmContext",
    "build_context",
    "evolve",
    "to_anthropic",
)
