"""Read conversations in the form of OpenAI's Chat Completions API: the JSON document and its messages."""

from lanebus.handlers.transcripts.openai_chat.format import OPENAI_CHAT, SeveralConversations

__all__ = ("OPENAI_CHAT", "SeveralConversations")
