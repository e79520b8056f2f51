"""Local servers that implement the APIs of the model providers."""
