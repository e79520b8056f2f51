"""Fixtures of the laws, and how a law that failed is repeated."""

from collections.abc import Generator

import pytest

from tests.support.laws.crew import forks
from tests.support.suite.scale import SCALE, SEED

__all__ = ("forks",)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.sections.append(("To repeat it", f"LANEBUS_SEED={SEED} LANEBUS_SCALE={SCALE:g} make …"))
    return report
