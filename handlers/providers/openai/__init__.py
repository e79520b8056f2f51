"""OpenAI's two APIs, Chat Completions and Responses; `shared` has what they have in common."""
