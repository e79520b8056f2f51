"""OpenAI's two APIs, Chat Completions and Responses. `shared` holds the code that both APIs use."""
