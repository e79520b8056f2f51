"""OpenAI's two APIs, Chat Completions and Responses. `shared` holds what they have in common."""
