"""Fixtures of these tests."""

from tests.support.agent.agents import bus, opening, session

__all__ = ("bus", "opening", "session")
