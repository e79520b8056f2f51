"""Write requests to OpenAI's Responses API and read its answers."""

from lanebus.handlers.providers.openai.responses.answer import OpenAIResponsesAnswer, from_openai_responses
from lanebus.handlers.providers.openai.responses.form import to_openai_responses

__all__ = ("OpenAIResponsesAnswer", "from_openai_responses", "to_openai_responses")
