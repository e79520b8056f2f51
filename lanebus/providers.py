"""Model providers: build requests to a provider and read the provider's answers, as plain JSON. Imports no SDK."""

from lanebus.handlers.providers.anthropic.answer import AnthropicAnswer, from_anthropic
from lanebus.handlers.providers.anthropic.form import to_anthropic
from lanebus.handlers.providers.common.answer import Answer, ModelEvent, Piece
from lanebus.handlers.providers.common.errors import ContentRefused, NoModel, ToolNotOffered
from lanebus.handlers.providers.common.request import ProviderRequest
from lanebus.handlers.providers.common.target import RequestOptions
from lanebus.handlers.providers.common.tools import ToolChoice, ToolSpec
from lanebus.handlers.providers.gemini.answer import GeminiAnswer, from_gemini
from lanebus.handlers.providers.gemini.form import to_gemini
from lanebus.handlers.providers.openai.chat.answer import OpenAIChatAnswer, from_openai_chat
from lanebus.handlers.providers.openai.chat.form import to_openai_chat
from lanebus.handlers.providers.openai.responses.answer import OpenAIResponsesAnswer, from_openai_responses
from lanebus.handlers.providers.openai.responses.form import to_openai_responses

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
