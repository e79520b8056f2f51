"""OpenAI's Responses API: requests out, answers in."""

from handlers.providers.openai_responses.answer import OpenAIResponsesAnswer, from_openai_responses
from handlers.providers.openai_responses.form import to_openai_responses

__all__ = ("OpenAIResponsesAnswer", "from_openai_responses", "to_openai_responses")
