"""Fixtures of these tests."""

from tests.support.agent.agents import bus, session

__all__ = ("bus", "session")
