"""Conversations in the form of OpenAI's Chat Completions API: the document, and the messages in it."""

from lanebus.handlers.transcripts.openai_chat.format import OPENAI_CHAT, SeveralConversations

__all__ = ("OPENAI_CHAT", "SeveralConversations")
