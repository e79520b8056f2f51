"""Conversations, steps and agents of pydantic-ai on lanebus."""
