"""Control when the test processes collect garbage: after each file of tests, and rarely in between.

Python would visit the imported and collected objects again and again, although they are alive: a tenth of the suite's
CPU time. So no garbage is collected while tests are collected, and objects that are alive after it, and after each
file, are frozen. A resource that a test left open in a cycle is reported at the end of its file at the latest.
"""

import gc
from collections.abc import Generator, Iterator

import pytest

__all__ = ()

gc.disable()  # until all tests are collected


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Enable it again, also in the process that only directs the others, and in one where the collection fails."""
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 50, 100)
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def look_for_garbage() -> Iterator[None]:
    """Report with the last test of a file what its tests left open."""
    yield
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before pytest collects garbage and reports it
def pytest_unconfigure() -> None:
    gc.unfreeze()
