"""What OpenAI's two APIs have in common."""
