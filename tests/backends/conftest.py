"""Leaves out the tests of a framework that is not installed: `make backends` installs all."""

from importlib.util import find_spec
from pathlib import Path

from tests.support.agent.agents import bus, opening

__all__ = ("bus", "opening")

NEEDS = {"langgraph": "langgraph", "pydantic_ai": "pydantic_ai", "openai_agents": "agents", "mcp": "mcp", "a2a": "a2a"}
"""folder → what its tests import"""


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Return True for the folder of a framework that cannot be imported."""
    needed = NEEDS.get(collection_path.name) if collection_path.parent == Path(__file__).parent else None
    return True if needed is not None and find_spec(needed) is None else None
