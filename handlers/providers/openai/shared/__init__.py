"""Code that OpenAI's two APIs have in common."""
