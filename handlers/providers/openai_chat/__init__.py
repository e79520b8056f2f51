"""OpenAI's Chat Completions API: requests out, answers in."""

from handlers.providers.openai_chat.answer import OpenAIChatAnswer, from_openai_chat
from handlers.providers.openai_chat.form import to_openai_chat

__all__ = ("OpenAIChatAnswer", "from_openai_chat", "to_openai_chat")
