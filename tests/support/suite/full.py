"""Add the marker `full` to what the quick set leaves out by rule. `make test` selects the tests without it.

- A test that needs Node or the package of a framework.
- A test on a cluster or behind a Sentinel of its own. `servers/kinds.py` marks variants on other servers than Valkey.
- In `laws/`, all variants of a law but its first.

Every other test that costs too much for the quick set is marked by hand.
"""

import pytest

from tests.support.backends.frameworks import FRAMEWORKS
from tests.support.suite.needs import needs_of

__all__ = ()

NEEDS = {"referees", "client", *FRAMEWORKS}
FIXTURES = {"cluster", "sentinel"}


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    laws: set[str] = set()
    for item in items:
        is_variant = False
        if item.path.parent.name == "laws":
            law = item.nodeid.partition("[")[0]
            is_variant = law in laws
            laws.add(law)
        fixtures = item.fixturenames if isinstance(item, pytest.Function) else []
        if is_variant or NEEDS & {*needs_of(item)} or FIXTURES & {*fixtures}:
            item.add_marker("full")
