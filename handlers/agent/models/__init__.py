"""What a loop asks of a model, and the adapters of the providers."""
