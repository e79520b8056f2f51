"""A model that needs no provider, for demos and tests."""
