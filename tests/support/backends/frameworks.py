"""Examples, pages and public modules that need a framework: skipped by name in `make test`, run by `make backends`.

Which one is needed shows in the code: it imports `lanebus.langgraph`, `lanebus.pydantic_ai`, …
"""

import re
from collections.abc import Iterable
from importlib.util import find_spec

import pytest

__all__ = ("FRAMEWORKS", "is_installed", "marks_of", "module_marks")

FRAMEWORKS = {"langgraph": "langgraph", "pydantic_ai": "pydantic_ai", "openai_agents": "agents", "a2a": "a2a"}
"""module of `lanebus` → the package that it needs. The package of `lanebus.mcp` is among those of `make test`"""

_USE = re.compile(rf"\b(?:lanebus\.|from lanebus import )({'|'.join(FRAMEWORKS)})\b")


def is_installed(framework: str) -> bool:
    """Return whether the package of a framework can be imported. Nothing is imported."""
    return find_spec(FRAMEWORKS[framework]) is not None


def module_marks(framework: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a test that needs the framework."""
    return [pytest.mark.needs(framework)]


def marks_of(code: Iterable[str]) -> list[pytest.MarkDecorator]:
    """Return the marks of a test that runs these pieces of code. Empty if they use no framework."""
    used = {match[1] for text in code for match in _USE.finditer(text)}
    return [mark for framework in sorted(used) for mark in module_marks(framework)]
