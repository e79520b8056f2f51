"""Processes and helpers of the tests of pydantic-ai on lanebus."""
