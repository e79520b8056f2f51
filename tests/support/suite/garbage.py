"""When the test processes look for garbage: after each file of tests, and seldom in between.

Python looks again and again through what was imported and collected, which is in no cycle: a tenth of the suite's CPU
time. What is alive after the collection of tests, and after each file, is therefore not looked at any more before the
end. What a test left open, in a cycle, is told of at the end of its file at the latest.
"""

import gc
from collections.abc import Iterator

import pytest

__all__ = ()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)


@pytest.fixture(scope="module", autouse=True)
def look_for_garbage() -> Iterator[None]:
    """Have what the tests of a file left behind told of with the last of them."""
    yield
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)  # pytest looks for garbage after this, and tells of it
def pytest_unconfigure() -> None:
    gc.unfreeze()
