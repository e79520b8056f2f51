"""Leaves out the tests of a framework that is not installed: `make backends` installs all, and runs what is marked."""

from importlib.util import find_spec
from pathlib import Path

import pytest

__all__ = ()

NEEDS = {"langgraph": "langgraph", "pydantic_ai": "pydantic_ai", "openai_agents": "agents", "mcp": "mcp", "a2a": "a2a"}
"""folder → what its tests import"""


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Return True for the folder of a framework that cannot be imported."""
    needed = NEEDS.get(collection_path.name) if collection_path.parent == Path(__file__).parent else None
    return True if needed is not None and find_spec(needed) is None else None


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, for `make backends`."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.backends)
