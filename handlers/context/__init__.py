"""What a model sees: the fold over the LLM lane. Its forms for providers are in `lanebus.handlers.providers`."""
