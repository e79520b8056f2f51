"""OpenAI's two APIs: `chat.py` for Chat Completions, `responses.py` for Responses, `wire.py` for what both share."""
