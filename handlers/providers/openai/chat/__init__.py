"""Write requests to OpenAI's Chat Completions API and read its answers."""

from lanebus.handlers.providers.openai.chat.answer import OpenAIChatAnswer, from_openai_chat
from lanebus.handlers.providers.openai.chat.form import to_openai_chat

__all__ = ("OpenAIChatAnswer", "from_openai_chat", "to_openai_chat")
