"""Fixtures of these tests: a bus on each kind of server."""

from tests.support.agent.agents import bus, opening, session

__all__ = ("bus", "opening", "session")
