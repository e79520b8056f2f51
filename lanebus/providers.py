"""Model providers: build requests to a provider and read the provider's answers, as plain JSON. Imports no SDK."""

from lanebus.handlers.providers.answer import Answer, ModelEvent, Piece
from lanebus.handlers.providers.anthropic import AnthropicAnswer, from_anthropic, to_anthropic
from lanebus.handlers.providers.gemini import GeminiAnswer, from_gemini, to_gemini
from lanebus.handlers.providers.openai_chat import OpenAIChatAnswer, from_openai_chat, to_openai_chat
from lanebus.handlers.providers.openai_responses import (
    OpenAIResponsesAnswer,
    from_openai_responses,
    to_openai_responses,
)
from lanebus.handlers.providers.request import (
    ContentRefused,
    NoModel,
    ProviderRequest,
    RequestOptions,
    ToolChoice,
    ToolNotOffered,
    ToolSpec,
)

__all__ = (
    "Answer",
    "AnthropicAnswer",
    "ContentRefused",
    "GeminiAnswer",
    "ModelEvent",
    "NoModel",
    "OpenAIChatAnswer",
    "OpenAIResponsesAnswer",
    "Piece",
    "ProviderRequest",
    "RequestOptions",
    "ToolChoice",
    "ToolNotOffered",
    "ToolSpec",
    "from_anthropic",
    "from_gemini",
    "from_openai_chat",
    "from_openai_responses",
    "to_anthropic",
    "to_gemini",
    "to_openai_chat",
    "to_openai_responses",
)
