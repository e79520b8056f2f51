"""Agents: a model and its tools in a loop, and the workers that run them. Adapters are imported from their modules."""
