"""Fixtures of these tests."""

from tests.support.agent.agents import bus, opening, other, session

__all__ = ("bus", "opening", "other", "session")
