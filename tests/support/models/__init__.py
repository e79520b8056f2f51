"""Local servers that speak the APIs of the model providers."""
