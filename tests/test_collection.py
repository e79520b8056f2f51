"""The imports that collecting the tests of this run caused."""

import pytest

from tests.support.suite.imports import IMPORTED

__all__ = ()


def test_collecting_imports_no_sdk(pytestconfig: pytest.Config) -> None:
    imported = pytestconfig.stash[IMPORTED]
    assert imported == [], "import it in the function that uses it, and for annotations under TYPE_CHECKING"
