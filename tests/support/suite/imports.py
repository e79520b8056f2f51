"""Record the SDKs that the collection of tests imported: none, as each takes up to 3 CPU seconds in every process."""

import sys

import pytest

__all__ = ("IMPORTED", "SDKS")

SDKS = ("anthropic", "openai", "google.genai", "mcp", "moto", "obstore", "playwright", "schemathesis")

IMPORTED = pytest.StashKey[list[str]]()
"""stash key of the configuration: the `SDKS` that were imported when all tests had been collected"""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[IMPORTED] = [name for name in SDKS if name in sys.modules]
