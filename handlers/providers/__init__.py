"""Provider forms, both ways: a context as a request, a response or its stream of events as a message.

Plain JSON on both sides: no SDK is imported.
"""

from handlers.providers.answer import Answer, ModelEvent, Piece
from handlers.providers.anthropic import AnthropicAnswer, from_anthropic, to_anthropic
from handlers.providers.errors import ContentRefused, NoModel, ToolNotOffered
from handlers.providers.gemini import GeminiAnswer, from_gemini, to_gemini
from handlers.providers.openai_chat import OpenAIChatAnswer, from_openai_chat, to_openai_chat
from handlers.providers.openai_responses import OpenAIResponsesAnswer, from_openai_responses, to_openai_responses
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
