"""Provider forms, both ways: a context as a request, a response or its stream of events as a message.

Plain JSON on both sides: no SDK is imported.
"""

from handlers.providers.answer import Answer, ModelEvent, Piece
from handlers.providers.anthropic import AnthropicAnswer, from_anthropic, to_anthropic
from handlers.providers.errors import ContentRefused, NoModel
from handlers.providers.gemini import GeminiAnswer, from_gemini, to_gemini
from handlers.providers.request import ProviderRequest
from handlers.providers.target import RequestOptions
from handlers.providers.tools import ToolChoice, ToolSpec

__all__ = (
    "Answer",
    "AnthropicAnswer",
    "ContentRefused",
    "GeminiAnswer",
    "ModelEvent",
    "NoModel",
    "Piece",
    "ProviderRequest",
    "RequestOptions",
    "ToolChoice",
    "ToolSpec",
    "from_anthropic",
    "from_gemini",
    "to_anthropic",
    "to_gemini",
)
